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

from firehose.optim.rows import RowState, UserIndex, grown

NOBODY = -1


class UserVectors(NamedTuple):
    """The vectors of the users of a batch, each user once."""

    rows: Tensor  # [users], their rows in the table; −1: none, the vector is the mean of all
    vectors: Tensor  # [users, d_user], to be differentiated
    which: Tensor  # [posts], the vector of each post


class Users(UserIndex):
    """A vector for each user, by the user's number.

    A user without a row gets one when first taken to learn; it starts at the mean of the known
    ones, or at zero. A user without a row who is only looked at is given the same vector, and
    the table stays as it is.
    """

    def __init__(self, d_user: int, start: Literal["mean", "zero"] = "mean") -> None:
        super().__init__()
        self.start = start
        self.vectors = torch.zeros(0, d_user)  # [capacity, d_user]
        self.attached: list[RowState] = []  # what is kept for each row beside
        self.total = torch.zeros(d_user, dtype=torch.float64)  # of all vectors, kept up to date

    def mean(self) -> Tensor:
        """The vector of somebody unknown."""
        if self.start == "zero" or not len(self):
            return torch.zeros(len(self.total))
        return (self.total / len(self)).to(self.vectors.dtype)

    def take(self, users: NDArray[np.integer], learn: bool) -> UserVectors:
        """The vectors of these users; with ``learn``, those who have no row get one."""
        unique, which = np.unique(users, return_inverse=True)
        rows = self.rows(unique)
        if learn and (new := (rows < 0) & (unique != NOBODY)).any():
            rows[new] = self.add(unique[new])
        places = torch.from_numpy(rows)
        vectors = self.mean().repeat(len(unique), 1)
        known = places >= 0
        vectors[known] = self.vectors[places[known]]
        return UserVectors(places, vectors.requires_grad_(learn), torch.from_numpy(which))

    def add(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """Give rows to users who have none, each named once; returns these rows."""
        mean, rows = self.mean(), super().add(users)
        self.vectors = torch.from_numpy(grown(self.vectors.numpy(), len(self)))
        new = torch.from_numpy(rows)
        self.put(new, mean.repeat(len(rows), 1))
        for state in self.attached:
            state.added(new)
        return rows

    def enter(self, users: NDArray[np.int64], vectors: Tensor) -> None:
        """Give users rows in this order, each with a vector; nobody may be there yet."""
        self.put(torch.from_numpy(self.add(users)), vectors)

    def put(self, rows: Tensor, vectors: Tensor) -> None:
        """Set the vectors of rows, each named once."""
        for state in self.attached:
            state.moving(rows)
        old = self.vectors[rows]
        self.total += (vectors.double() - old.double()).sum(0)
        self.vectors[rows] = vectors

    def attach(self, state: RowState) -> None:
        """Let what is kept for each row follow when rows come, move or are erased."""
        self.attached.append(state)

    def forget(self, user: int) -> bool:
        """Erase a user's vector and all that is kept for its row; False: there was none.

        The last row moves into the gap.
        """
        row = self.remove(user)
        if row < 0:
            return False
        last = len(self)
        for state in self.attached:
            state.move(last, row)
        self.total -= self.vectors[row].double()
        self.vectors[row] = self.vectors[last]
        self.vectors[last] = 0
        return True

    def state(self) -> dict[str, Tensor]:
        """The vectors, whose they are, and their exact sum."""
        vectors, user_of = self.vectors[: len(self)], torch.from_numpy(self.numbers())
        return {"vectors": vectors, "user_of": user_of, "total": self.total.clone()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Become what ``state`` was taken from."""
        self.assign(state["user_of"].numpy())
        self.vectors, self.total = state["vectors"].clone(), state["total"].clone()
