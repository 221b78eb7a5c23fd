"""Predictors: what pays for posts and what people see; the model is what gradients move."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.methods.step import Setup
from firehose.models.companion import Companion
from firehose.models.model import Paid, Speaker, WeightSet
from firehose.optim.average import Average
from firehose.plugins import Choice, Plugin, Registry


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

    def to_learn_from(self, batch: Batch) -> Batch:
        """The posts that were just paid for, as the model should learn from them."""
        return batch

    def learn(self, batch: Batch) -> None:
        """Called in every round after it was paid for, when the steps were taken."""

    @property
    def leaves_out(self) -> bool:
        """Whether it remembers posts that ``without`` can leave out."""
        return False

    def without(self, batch: Batch) -> AbstractContextManager[None]:
        """Inside, predict as if these posts were not remembered; nothing may be learned meanwhile.

        The weights stay as they are, though they have learned from these posts.
        """
        return nullcontext()

    def forget(self, user: int) -> int:
        """Erase what is kept of a user; returns how many things there were.

        The user's vector, and all that is kept for its row, is forgotten by the game.
        """
        return 0

    def users(self) -> NDArray[np.int64]:
        """The numbers of the users of whom something is kept beside the model."""
        return np.zeros(0, np.int64)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Know users by other numbers; all of ``users`` are given one, no two the same."""

    def protect(self, min_users: int) -> bool:
        """Tell nobody what fewer than ``min_users`` have written; False: a part is silent now.

        What is a user's own is told to that user. It is not part of the state.
        """
        return True

    @property
    def speaker(self) -> Speaker | None:
        """Itself, if it has a say beside the model when texts are written."""
        return None

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


def companion_of(predictor: Predictor, name: Callable[[int], str]) -> Companion | None:
    """What is saved of a predictor beside its model; None: it is the model alone.

    The first set of weights is the model's own; others that are mixed are saved with it.
    """
    if isinstance(predictor, ModelPredictor):
        return None
    speaker = predictor.speaker
    more = [] if speaker is None else speaker.mixed[1:]
    weights = {str(number): _weights(predictor, each) for number, each in enumerate(more)}
    state = {"predictor": predictor.state(), "weights": weights}
    users = {name(number): number for number in predictor.users().tolist()}
    return Companion(predictor.settings.public(), state, users)


def frozen_weights(model: Any, saved: Companion) -> list[WeightSet]:
    """The sets of weights that were saved beside those of the model; they do not learn."""
    found: list[WeightSet] = []
    for weights in saved.state["weights"].values():
        # An average that follows nothing is a set of weights whose rows come and go with users.
        average = Average(model, horizon=1)
        average.name = weights["name"]
        rows = weights["rows"] | {"stamps": torch.zeros(len(weights["rows"]["average"])).double()}
        state = {"steps": 0, "shared": weights["shared"], "rows": rows | {"clock": 0.0}}
        average.restore(state)
        found.append(average)
    return found


def _weights(predictor: Predictor, weights: WeightSet) -> dict[str, Any]:
    """One of the sets of weights, as ``frozen_weights`` makes it again."""
    model = predictor.model
    with weights.in_use():
        shared = {name: each.detach().clone() for name, each in model.named_parameters()}
        vectors, total = model.users.everybody(), model.users.sum()
    return {"name": weights.name, "shared": shared, "rows": {"average": vectors, "total": total}}


PREDICTORS = Registry(
    "predictor",
    Predictor,
    {
        "model": "firehose.methods.predictor:ModelPredictor",
        "mixture": "firehose.methods.experts.mixture:Mixture",
    },
    default="model",
)
