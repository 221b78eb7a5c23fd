"""The growing table of user vectors: nobody is enumerated in advance.

A step touches the rows of the users in its batch and no other: their gradient, what an update rule
keeps for them, their share of the gradient norm. So its cost does not depend on how many users
there are, and a user who is silent does not drift.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.optim.rows import RowState, UserIndex, as_tensor, grown
from firehose.parallel import group
from firehose.parallel.divided import Share
from firehose.parallel.shards import Shards

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
    the table stays as it is. Where the table is dealt out to processes, each holds some rows, at
    places of its own; alone, the place of a row is its number.
    """

    def __init__(self, d_user: int, start: Literal["mean", "zero"] = "mean") -> None:
        super().__init__(Shards.here())
        self.start = start
        self.vectors = torch.zeros(0, d_user)  # [capacity, d_user], of the rows here
        self.attached: list[RowState] = []  # what is kept for each row beside
        self.total = torch.zeros(d_user, dtype=torch.float64)  # of the vectors here, up to date
        self._vectors = Share(self.shards, lambda: self.vectors)
        self._total = Share(self.shards, lambda: self.total[None])

    def mean(self) -> Tensor:
        """The vector of somebody unknown."""
        if self.start == "zero" or not len(self):
            return torch.zeros(len(self.total))
        return (self.sum() / len(self)).to(self.vectors.dtype)

    def sum(self) -> Tensor:
        """The sum of all vectors, exact to 64 bits."""
        total = self.total.clone()
        if self.shards.parts > 1:
            group.add_up(total)
        return total

    def own(self, rows: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        """Of some rows, the places of those that this process holds, and these of each column."""
        if self.shards.parts == 1:
            return rows, *columns
        here = rows % self.shards.parts == self.shards.own
        return rows[here] // self.shards.parts, *(column[here] for column in columns)

    def take(self, users: NDArray[np.integer], learn: bool) -> UserVectors:
        """The vectors of these users; with ``learn``, those who have no row get one."""
        unique, which = np.unique(users, return_inverse=True)
        rows = self.rows(unique)
        if learn and (new := (rows < 0) & (unique != NOBODY)).any():
            rows[new] = self.add(unique[new])
        known = rows >= 0
        (found,) = self.shards.fetch(rows[known], self.vectors.numpy())
        vectors = torch.from_numpy(found)
        if len(vectors) < len(unique):
            vectors = self.mean().repeat(len(unique), 1)
            vectors[torch.from_numpy(known)] = torch.from_numpy(found)
        places = torch.from_numpy(rows)
        return UserVectors(places, vectors.requires_grad_(learn), torch.from_numpy(which))

    def everybody(self) -> Tensor:
        """The vectors of all users who have a row, row by row."""
        (found,) = self.shards.fetch(np.arange(len(self)), self.vectors.numpy())
        return torch.from_numpy(found)

    def add(self, users: NDArray[np.integer]) -> NDArray[np.int64]:
        """Give rows to users who have none, each named once; returns these rows."""
        mean, rows = self.mean(), super().add(users)
        room = self.shards.room(len(self))
        self.vectors = torch.from_numpy(grown(self.vectors.numpy(), room))
        (new,) = self.own(torch.from_numpy(rows))
        self.put(new, mean.repeat(len(new), 1))
        for state in self.attached:
            state.added(new)
        return rows

    def enter(self, users: NDArray[np.int64], vectors: Tensor) -> None:
        """Give users rows in this order, each with a vector; nobody may be there yet."""
        self.put(*self.own(torch.from_numpy(self.add(users)), vectors))

    def put(self, places: Tensor, vectors: Tensor) -> None:
        """Set the vectors at places of this process, each named once."""
        for state in self.attached:
            state.moving(places)
        old = self.vectors[places]
        self.total += (vectors.double() - old.double()).sum(0)
        self.vectors[places] = vectors

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

    def state(self) -> dict[str, Any]:
        """The vectors, whose they are, and their exact sum, to be written."""
        vectors, users = as_tensor(self._vectors.whole(len(self))), as_tensor(self.whole())
        total = torch.from_numpy(self._total.sum())
        return {"vectors": vectors, "user_of": users, "total": total}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Become what ``state`` was taken from."""
        self.assign(state["user_of"].numpy())
        self.vectors = self.shards.part(state["vectors"]).clone()
        self.total = self.shards.once(state["total"])
