"""Predictors: what pays for posts and what people see; the model is what gradients move."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.models.model import Model, Paid


class WeightSet(Protocol):
    """Weights that a model can predict with: those that learn, or an average of them."""

    @property
    def name(self) -> str:
        """What it is called: "raw", "average 500"."""

    def in_use(self, users: NDArray[np.integer] | None = None) -> AbstractContextManager[None]:
        """Let the model have these weights inside, where nothing may be learned.

        One set is in use at a time. ``users`` are those whose posts will be looked at; None:
        everybody, which takes longer the more there are.
        """


class RawWeights:
    """The weights that learn: they are always in use, where no others are."""

    name = "raw"

    def in_use(self, users: NDArray[np.integer] | None = None) -> AbstractContextManager[None]:
        """Nothing to do."""
        return nullcontext()


class Predictor(Protocol):
    """Predicts posts and pays for them; it may learn from what it has paid for.

    Like a plug-in, it keeps what it needs between rounds in its ``state``.
    """

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""

    def learn(self, batch: Batch) -> None:
        """Called in every round after it was paid for, when the steps were taken."""

    def forget(self, user: int) -> int:
        """Erase what is kept of a user; returns how many things there were."""

    def in_use(self, users: NDArray[np.integer] | None = None) -> AbstractContextManager[None]:
        """Let the model have the weights inside that are saved, and that people see."""

    def state(self) -> dict[str, Any]:
        """What it keeps between rounds."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""


class ModelPredictor:
    """Predicts with the model alone, under the first of the sets of weights there are."""

    def __init__(self, model: Model, weights: Sequence[WeightSet] = (RawWeights(),)) -> None:
        self.model = model
        self.weights = weights

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""
        with self.weights[0].in_use(batch.user):
            return self.model.pay(batch)

    def learn(self, batch: Batch) -> None:
        """Nothing: the model has learned by its steps."""

    def forget(self, user: int) -> int:
        """Nothing: the game forgets the user's vector, and all that is kept for its row."""
        return 0

    def in_use(self, users: NDArray[np.integer] | None = None) -> AbstractContextManager[None]:
        """Let the model have the weights inside that pay."""
        return self.weights[0].in_use(users)

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing was kept."""
