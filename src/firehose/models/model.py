"""What a game asks of a model: to score posts, and to give the gradient of its loss."""

from collections.abc import Mapping, Sequence
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
