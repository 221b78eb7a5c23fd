"""What a game asks of a model: to score posts, and to give the gradient of its loss."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from firehose.batch import Batch
from firehose.models.users import Users
from firehose.optim.gradient import Gradient


class Paid(NamedTuple):
    """The cost of each post of a batch in nats, and its number of words."""

    nats: NDArray[np.float64]  # [posts]
    words: NDArray[np.int32]  # [posts]


class Model(Protocol):
    """Shared weights, and a table of users."""

    users: Users

    def parameters(self) -> Iterator[nn.Parameter]:
        """The shared weights."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The same, with their names."""

    def train(self) -> Any:
        """From now on, gradients are for learning."""

    def gradient(self, batch: Batch) -> Gradient:
        """Of its loss on a batch; who is new in it has a row now."""

    def cost(self, batch: Batch) -> float:
        """The loss, without changing anything."""

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""
