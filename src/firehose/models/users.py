"""The growing table of user vectors: nobody is enumerated in advance.

A step touches the rows of the users in its batch and no other: their gradient, what an update rule
keeps for them, their share of the gradient norm. So its cost does not depend on how many users
there are, and a user who is silent does not drift.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.optim.rows import RowState

NOBODY = -1


class UserVectors(NamedTuple):
    """The vectors of the users of a batch, each user once."""

    rows: Tensor  # [users], their rows in the table; −1: none, the vector is the mean of all
    vectors: Tensor  # [users, d_user], to be differentiated
    which: Tensor  # [posts], the vector of each post


class Users:
    """A vector for each user, by the user's number.

    A user without a row gets one when first taken to learn; it starts at the mean of the known
    ones, or at zero. A user without a row who is only looked at is given the same vector, and
    the table stays as it is.
    """

    def __init__(self, d_user: int, start: Literal["mean", "zero"] = "mean") -> None:
        self.d_user = d_user
        self.start = start
        self.count = 0
        self.vectors = torch.zeros(0, d_user)  # [capacity, d_user]
        self.attached: list[RowState] = []  # what update rules keep for each row
        self.user_of = np.zeros(0, np.int64)  # [capacity]
        self.row_of = np.zeros(0, np.int64)  # [largest user + 1], −1: none
        self.total = torch.zeros(d_user, dtype=torch.float64)  # of all vectors, kept up to date

    def __len__(self) -> int:
        return self.count

    def mean(self) -> Tensor:
        """The vector of somebody unknown."""
        if self.start == "zero" or not self.count:
            return torch.zeros(self.d_user)
        return (self.total / self.count).float()

    def take(self, users: NDArray[np.integer], learn: bool) -> UserVectors:
        """The vectors of these users; with ``learn``, those who have no row get one."""
        unique, which = np.unique(users, return_inverse=True)
        rows = self.rows(unique)
        if learn and (new := (rows < 0) & (unique != NOBODY)).any():
            self._add(unique[new])
            rows = self.rows(unique)
        places = torch.from_numpy(rows)
        vectors = self.mean().repeat(len(unique), 1)
        known = places >= 0
        vectors[known] = self.vectors[places[known]]
        return UserVectors(places, vectors.requires_grad_(learn), torch.from_numpy(which))

    def rows(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """The rows of users; −1 for those who have none."""
        within = (users >= 0) & (users < len(self.row_of))
        rows = np.full(len(users), -1, np.int64)
        rows[within] = self.row_of[users[within]]
        return rows

    def put(self, rows: Tensor, vectors: Tensor) -> None:
        """Set the vectors of rows, each named once."""
        old = self.vectors[rows]
        self.total += (vectors.double() - old.double()).sum(0)
        self.vectors[rows] = vectors

    def numbers(self) -> NDArray[np.int64]:
        """The users who have a row, row by row."""
        return self.user_of[: self.count].copy()

    def enter(self, users: NDArray[np.int64], vectors: Tensor) -> None:
        """Give users rows in this order, each with a vector; nobody may be there yet."""
        if len(users):
            self._add(users)
            self.put(torch.arange(self.count - len(users), self.count), vectors)

    def attach(self, state: RowState) -> None:
        """Let the state of an update rule follow when a row moves or is erased."""
        self.attached.append(state)

    def forget(self, user: int) -> bool:
        """Erase a user's vector and all that is kept for its row; False: there was none.

        The last row moves into the gap.
        """
        row = int(self.rows(np.array([user]))[0])
        if row < 0:
            return False
        last = self.count - 1
        self.total -= self.vectors[row].double()
        self.vectors[row] = self.vectors[last]
        self.vectors[last] = 0
        for state in self.attached:
            state.move(last, row)
        self.user_of[row] = self.user_of[last]
        self.row_of[self.user_of[row]] = row
        self.row_of[user] = -1
        self.count = last
        return True

    def state(self) -> dict[str, Tensor]:
        """The vectors, whose they are, and their exact sum."""
        user_of = torch.from_numpy(self.user_of[: self.count].copy())
        vectors = self.vectors[: self.count]
        return {"vectors": vectors, "user_of": user_of, "total": self.total.clone()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Become what ``state`` was taken from."""
        numbers = state["user_of"].numpy()
        self.count = len(numbers)
        self.vectors = state["vectors"].clone()
        self.user_of = numbers.copy()
        self.row_of = np.full(int(numbers.max(initial=-1)) + 1, -1)
        self.row_of[numbers] = np.arange(self.count)
        self.total = state["total"].clone()

    def _add(self, users: NDArray[np.integer]) -> None:
        """Give rows to users who have none."""
        needed = self.count + len(users)
        if needed > len(self.vectors):
            self._grow(max(needed, 2 * len(self.vectors), 64))
        if users.max() >= len(self.row_of):
            most = max(int(users.max()) + 1, 2 * len(self.row_of))
            self.row_of = np.concatenate([self.row_of, np.full(most - len(self.row_of), -1)])
        rows = np.arange(self.count, needed)
        self.row_of[users], self.user_of[rows] = rows, users
        mean = self.mean()
        self.count = needed
        self.put(torch.from_numpy(rows), mean.repeat(len(rows), 1))

    def _grow(self, capacity: int) -> None:
        """Make room; the capacity doubles, so the cost per user is constant."""
        room = capacity - len(self.vectors)
        self.vectors = torch.cat([self.vectors, torch.zeros(room, self.d_user)])
        self.user_of = np.concatenate([self.user_of, np.zeros(room, np.int64)])
