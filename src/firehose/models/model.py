"""What a game is played with: anything that pays for posts and can be differentiated."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from firehose.batch import Batch
from firehose.models.users import Taken, Users


class Paid(NamedTuple):
    """What each post of a batch cost: nats, and the words they are spread over."""

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
        """From now on, ``loss`` is for learning."""

    def loss(self, batch: Batch) -> tuple[Tensor, Taken]:
        """A number to differentiate, and the vectors of the users in the batch."""

    def cost(self, batch: Batch) -> float:
        """What ``loss`` would be, without changing anything."""

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""
