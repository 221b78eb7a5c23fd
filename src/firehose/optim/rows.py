"""Rows of a table of users: whose they are, and what an update rule keeps for each."""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.parallel.divided import Share
from firehose.parallel.shards import Shards


class UserIndex:
    """Gives users the rows 0, 1, 2 …; what that costs does not depend on how many there are.

    With ``shards``, each process knows the rows of a share of the users.
    """

    def __init__(self, shards: Shards | None = None) -> None:
        self.shards = shards or Shards()
        self._users = Share(self.shards, lambda: self.user_of)
        self.assign(np.zeros(0, np.int64))

    def __len__(self) -> int:
        return self.count

    def assign(self, users: NDArray[np.int64]) -> None:
        """Give rows to these users in this order, and to nobody else."""
        shards, self.count = self.shards, len(users)
        self.user_of = shards.part(users).copy()  # [capacity], those of the rows here
        room = shards.room(int(users.max(initial=-1)) + 1)
        self.row_of = np.full(room, -1)  # [largest user here + 1], −1: none
        rows = np.flatnonzero(shards.mine(users))
        self.row_of[users[rows] // shards.parts] = rows

    def numbers(self) -> NDArray[np.int64]:
        """The users who have a row, row by row."""
        (users,) = self.shards.fetch(np.arange(self.count), self.user_of)
        return users

    def whole(self) -> Any:
        """The same, to be written."""
        return self.numbers() if self.shards.parts == 1 else self._users.whole(self.count)

    def rows(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """The rows of users; −1 for those who have none."""
        places = users[self.shards.mine(users)] // self.shards.parts
        within = (places >= 0) & (places < len(self.row_of))
        rows = np.full(len(places), -1, np.int64)
        rows[within] = self.row_of[places[within]]
        return self.shards.gather(users, rows)[0]

    def add(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """Give rows to users who have none, each named once; returns these rows."""
        shards, rows = self.shards, np.arange(self.count, self.count + len(users))
        self.count += len(users)
        self.row_of = grown(self.row_of, shards.room(int(users.max(initial=-1)) + 1), fill=-1)
        self.user_of = grown(self.user_of, shards.room(self.count))
        known, here = shards.mine(users), shards.mine(rows)
        self.row_of[users[known] // shards.parts] = rows[known]
        self.user_of[rows[here] // shards.parts] = users[here]
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

        Who has the last row gets this one instead. Only a process alone forgets.
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
    more = grown_to(len(array), needed) - len(array)
    if not more:
        return array
    return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])


def grown_to(room: int, needed: int) -> int:
    """How many rows there is room for, once there must be room for so many."""
    return room if needed <= room else max(needed, 2 * room, 64)


class UserRows(Protocol):
    """A table with a vector for each user, as far as an update rule needs it."""

    vectors: Tensor  # [capacity, d_user], of the rows that this process holds
    total: Tensor  # [d_user], of the vectors of all rows in use here
    shards: Shards

    def __len__(self) -> int:
        """The number of rows in use, of all processes."""

    def own(self, rows: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        """Of some rows, the places of those that this process holds, and these of each column."""

    def rows(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """The rows of users; −1 for those who have none."""

    def put(self, places: Tensor, vectors: Tensor) -> None:
        """Set the vectors at some places, each named once."""

    def attach(self, state: "RowState") -> None:
        """Let ``state`` follow when a row moves, and lose what belongs to a forgotten user."""


class RowState:
    """A tensor with an entry for each row of a table of users; zero until it is set.

    A process has those of the rows that it holds, and knows them by their places, which ``own``
    tells. Numbers are of the type of the users' vectors, if no other is given.
    """

    def __init__(
        self, table: UserRows, width: tuple[int, ...] = (), dtype: torch.dtype | None = None
    ) -> None:
        self.table = table
        self._values = torch.zeros(0, *width, dtype=dtype or table.vectors.dtype)
        self._share = Share(table.shards, lambda: self.values)
        table.attach(self)

    @property
    def values(self) -> Tensor:
        """The entries of all places that the table has room for."""
        room = len(self.table.vectors)
        if room > len(self._values):
            self._values = torch.from_numpy(grown(self._values.numpy(), room))
        return self._values

    def __getitem__(self, places: Tensor) -> Tensor:
        return self.values[places]

    def __setitem__(self, places: Tensor, values: Tensor) -> None:
        self.values[places] = values

    def moving(self, places: Tensor) -> None:
        """Called before the vectors at these places change."""

    def added(self, places: Tensor) -> None:
        """Called when these places are new, and have their first vectors."""

    def move(self, source: int, target: int) -> None:
        """Let ``target`` take over what ``source`` has, and clear ``source``."""
        self.values[target] = self.values[source]
        self.values[source] = 0

    def state(self) -> Any:
        """The entries of all rows in use, to be written."""
        return as_tensor(self._share.whole(len(self.table)))

    def restore(self, values: Tensor) -> None:
        """Take over the entries that ``state`` returned."""
        self._values = self.table.shards.part(values).clone()


def as_tensor(whole: Any) -> Any:
    """An array as a tensor; one that is in several places is one when it is read again."""
    if isinstance(whole, np.ndarray):
        return torch.from_numpy(whole)
    whole.mark = "tensor"
    return whole
