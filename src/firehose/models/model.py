"""What a game asks of a model: to score posts, and to give the gradient of its loss."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.batch import Batch
from firehose.models.users import Users, UserVectors
from firehose.optim.gradient import Gradient
from firehose.optim.rule import Trainable


class Paid(NamedTuple):
    """The cost of each post of a batch in nats, and its number of words."""

    nats: NDArray[np.float64]  # [posts]
    words: NDArray[np.int32]  # [posts]


class Outlook(NamedTuple):
    """What a model says of each piece of a batch that it predicts, and how sure it was."""

    log_prob: NDArray[np.float64]  # [places], of the piece that came
    largest: NDArray[np.float64]  # [places], of the most probable piece
    entropy: NDArray[np.float64]  # [places], nats


class Payer(Protocol):
    """A model or a predictor."""

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""


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


class Speaker(Protocol):
    """What has a say beside the model when a text is written piece by piece."""

    @property
    def mixed(self) -> Sequence[WeightSet]:
        """The weights under which the model is asked."""

    def speak(self, tokens: Tensor, user: int, of_model: Sequence[Tensor]) -> Tensor:
        """Log-probabilities of the next piece after several texts of a user, ``[texts, pieces]``.

        ``tokens`` are the texts, ``[texts, tokens]``; ``of_model`` what the model says under each
        of its weights, in the form of the result.
        """


class Model(Trainable, Protocol):
    """Shared weights and, where it makes a difference who writes, a table of users."""

    @property
    def users(self) -> Users | None:
        """The users' vectors; None: the model knows no users."""

    @property
    def max_tokens(self) -> int:
        """The tokens of a post that are trained on."""

    def train(self) -> Any:
        """Compute gradients for learning from now on (with dropout)."""

    def gradient(self, batch: Batch) -> Gradient:
        """The gradient of the loss on a batch; users who are new in it get a row."""

    def cost(self, batch: Batch) -> float:
        """The loss on a batch, without changing anything."""

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""

    def with_outputs(self, batch: Batch, count: int) -> Batch:
        """The posts, and in columns beside them what the model predicts, without changing it.

        That is the ``count`` most probable pieces after each token, or the logits of all classes.
        """

    def gradient_toward_outputs(self, batch: Batch) -> Gradient:
        """The gradient of the cross-entropy to what ``with_outputs`` has put beside the posts."""

    def state(self) -> dict[str, Any]:
        """All that the model has learned, and the state of its random numbers."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""


def differentiate(
    loss: Tensor, parameters: Sequence[Tensor], users: UserVectors, tokens: int
) -> Gradient:
    """The gradient of any loss of the shared weights and of some users' vectors."""
    vectors = [users.vectors] if users.vectors.requires_grad else []
    found = torch.autograd.grad(loss, [*parameters, *vectors], allow_unused=True)
    shared: list[Tensor | None] = list(found[: len(parameters)])
    rows, by_row = users.rows[:0], users.vectors.detach()[:0]
    if vectors and found[-1] is not None:
        known = users.rows >= 0
        rows, by_row = users.rows[known], found[-1][known]
    return Gradient(float(loss.detach()), shared, rows, by_row, tokens)
