"""Predictors: what pays for posts and what people see; the model is what gradients move."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.methods.step import Setup
from firehose.models.model import Paid
from firehose.plugins import Choice, Plugin, Registry


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


class Predictor(Plugin):
    """Predicts posts and pays for them; it may learn from what it has paid for.

    ``weights`` are the sets of weights that its model can have; the first are those that are saved,
    and that people see.
    """

    def __init__(self, settings: Choice, setup: Setup, weights: Sequence[WeightSet]) -> None:
        self.settings = settings
        self.model: Any = setup.model
        self.weights = weights

    def prime(self, past: Iterable[Batch]) -> None:
        """Called before the first round, with the posts that come before the stream."""

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""
        raise NotImplementedError

    def learn(self, batch: Batch) -> None:
        """Called in every round after it was paid for, when the steps were taken."""

    def forget(self, user: int) -> int:
        """Erase what is kept of a user; returns how many things there were.

        The user's vector, and all that is kept for its row, is forgotten by the game.
        """
        return 0

    def in_use(self, users: NDArray[np.integer] | None = None) -> AbstractContextManager[None]:
        """Let the model have the weights inside that are saved, and that people see."""
        return self.weights[0].in_use(users)


class ModelPredictor(Predictor):
    """Predicts with the model alone, under the first of the sets of weights there are."""

    class Settings(Choice):
        """Nothing to set."""

        kind: str = "model"

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""
        with self.weights[0].in_use(batch.user):
            paid: Paid = self.model.pay(batch)
        return paid


PREDICTORS = Registry(
    "predictor",
    Predictor,
    {
        "model": "firehose.methods.predictor:ModelPredictor",
        "mixture": "firehose.methods.experts.mixture:Mixture",
    },
    default="model",
)
