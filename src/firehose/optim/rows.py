"""State that an update rule keeps for each row of a table of users: moments, counts of steps."""

from typing import Protocol

import torch
from torch import Tensor


class UserRows(Protocol):
    """A table with a vector for each user, as far as an update rule needs it."""

    vectors: Tensor  # [capacity, d_user]

    def __len__(self) -> int:
        """The number of rows in use."""

    def put(self, rows: Tensor, vectors: Tensor) -> None:
        """Set the vectors of some rows, each named once."""

    def attach(self, state: "RowState") -> None:
        """Let ``state`` follow when a row moves, and lose what belongs to a forgotten user."""


class RowState:
    """A tensor with an entry for each row of a table of users; zero until it is set."""

    def __init__(
        self, table: UserRows, width: tuple[int, ...] = (), dtype: torch.dtype = torch.float32
    ) -> None:
        self.table = table
        self.values = torch.zeros(0, *width, dtype=dtype)
        table.attach(self)

    def __getitem__(self, rows: Tensor) -> Tensor:
        self._grow()
        return self.values[rows]

    def __setitem__(self, rows: Tensor, values: Tensor) -> None:
        self._grow()
        self.values[rows] = values

    def move(self, source: int, target: int) -> None:
        """Let row ``target`` take over what row ``source`` has, and clear ``source``."""
        self._grow()
        self.values[target] = self.values[source]
        self.values[source] = 0

    def state(self) -> Tensor:
        """The entries of all rows in use."""
        self._grow()
        return self.values[: len(self.table)]

    def restore(self, values: Tensor) -> None:
        """Take over the entries that ``state`` returned."""
        self.values = values.clone()

    def _grow(self) -> None:
        """Have as many entries as the table has room for, which doubles when it is full."""
        missing = len(self.table.vectors) - len(self.values)
        if missing > 0:
            empty = self.values.new_zeros(missing, *self.values.shape[1:])
            self.values = torch.cat([self.values, empty])
