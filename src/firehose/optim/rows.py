"""Rows of a table of users: whose they are, and what an update rule keeps for each."""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class UserIndex:
    """Gives users the rows 0, 1, 2 …; what that costs does not depend on how many there are."""

    def __init__(self) -> None:
        self.assign(np.zeros(0, np.int64))

    def __len__(self) -> int:
        return self.count

    def assign(self, users: NDArray[np.int64]) -> None:
        """Give rows to these users in this order, and to nobody else."""
        self.count = len(users)
        self.user_of = users.copy()  # [capacity]
        self.row_of = np.full(int(users.max(initial=-1)) + 1, -1)  # [largest user + 1], −1: none
        self.row_of[users] = np.arange(len(users))

    def numbers(self) -> NDArray[np.int64]:
        """The users who have a row, row by row."""
        return self.user_of[: self.count].copy()

    def rows(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """The rows of users; −1 for those who have none."""
        within = (users >= 0) & (users < len(self.row_of))
        rows = np.full(len(users), -1, np.int64)
        rows[within] = self.row_of[users[within]]
        return rows

    def add(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """Give rows to users who have none, each named once; returns these rows."""
        rows = np.arange(self.count, self.count + len(users))
        self.row_of = grown(self.row_of, int(users.max(initial=-1)) + 1, fill=-1)
        self.user_of = grown(self.user_of, self.count + len(users))
        self.row_of[users], self.user_of[rows] = rows, users
        self.count += len(users)
        return rows

    def meet(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """The rows of users; those who have none get one."""
        rows = self.rows(users)
        if (rows >= 0).all():
            return rows
        self.add(np.unique(users[rows < 0]))
        return self.rows(users)

    def remove(self, user: int) -> int:
        """Take the row of a user away, and return it; −1: there was none.

        Who has the last row gets this one instead.
        """
        row = int(self.rows(np.array([user]))[0])
        if row >= 0:
            self.count -= 1
            self.user_of[row] = self.user_of[self.count]
            self.row_of[self.user_of[row]] = row
            self.row_of[user] = -1
        return row


def grown(array: NDArray[Any], needed: int, fill: int = 0) -> NDArray[Any]:
    """The array with at least so many rows; it doubles, so growing costs little a row."""
    if needed <= len(array):
        return array
    more = max(needed, 2 * len(array), 64) - len(array)
    return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])


class UserRows(Protocol):
    """A table with a vector for each user, as far as an update rule needs it."""

    vectors: Tensor  # [capacity, d_user]
    total: Tensor  # [d_user], of the vectors of all rows in use

    def __len__(self) -> int:
        """The number of rows in use."""

    def rows(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """The rows of users; −1 for those who have none."""

    def put(self, rows: Tensor, vectors: Tensor) -> None:
        """Set the vectors of some rows, each named once."""

    def attach(self, state: "RowState") -> None:
        """Let ``state`` follow when a row moves, and lose what belongs to a forgotten user."""


class RowState:
    """A tensor with an entry for each row of a table of users; zero until it is set.

    Numbers are of the type of the users' vectors, if no other is given.
    """

    def __init__(
        self, table: UserRows, width: tuple[int, ...] = (), dtype: torch.dtype | None = None
    ) -> None:
        self.table = table
        self._values = torch.zeros(0, *width, dtype=dtype or table.vectors.dtype)
        table.attach(self)

    @property
    def values(self) -> Tensor:
        """The entries of all rows that the table has room for."""
        room = len(self.table.vectors)
        if room > len(self._values):
            self._values = torch.from_numpy(grown(self._values.numpy(), room))
        return self._values

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self.values[rows]

    def __setitem__(self, rows: Tensor, values: Tensor) -> None:
        self.values[rows] = values

    def moving(self, rows: Tensor) -> None:
        """Called before the vectors of these rows change."""

    def added(self, rows: Tensor) -> None:
        """Called when these rows are new, and have their first vectors."""

    def move(self, source: int, target: int) -> None:
        """Let row ``target`` take over what row ``source`` has, and clear ``source``."""
        self.values[target] = self.values[source]
        self.values[source] = 0

    def state(self) -> Tensor:
        """The entries of all rows in use."""
        return self.values[: len(self.table)]

    def restore(self, values: Tensor) -> None:
        """Take over the entries that ``state`` returned."""
        self._values = values.clone()
