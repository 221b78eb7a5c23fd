"""What a buffer is, and slots to keep posts in: columns that grow, and who settles where."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from firehose.batch import Batch
from firehose.config import Section

Strategy = Literal["fifo", "reservoir", "stratified", "stratified-reservoir"]
Slots = NDArray[np.int64]
State = dict[str, NDArray[Any]]


class Buffer(Protocol):
    """A memory."""

    def __len__(self) -> int:
        """The posts in it."""

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let posts in; returns all that are not in the buffer afterwards."""

    def sample(self, posts: int, generator: np.random.Generator) -> Batch:
        """So many posts, drawn with replacement from a buffer that has any."""

    def all(self) -> Batch:
        """Every post in a buffer that has any."""

    def forget(self, user: int) -> int:
        """Erase a user's posts, and say how many."""


class SavedBuffer(Buffer, Protocol):
    """A memory of games that are interrupted."""

    def state(self) -> State:
        """To be saved."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what was saved."""


class BufferPlan(Section):
    """A buffer: its rule, and its limit in posts, or in posts for each user seen so far."""

    strategy: Strategy = "stratified"
    per_user: int | None = Field(default=None, ge=0)
    posts: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.per_user is None) == (self.posts is None):
            raise ValueError("a buffer has one limit: give posts, or per_user")
        return self


class Columns:
    """Posts in numbered slots: for every column of a batch an array with a row for each slot."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.kind: type[Batch] = Batch
        self.rows: dict[str, NDArray[Any]] = {}

    def fit(self, batch: Batch) -> None:
        """Be columns of this kind of batch."""
        if not self.rows:
            self.kind = type(batch)
            self.rows = batch.select(np.zeros(0, np.int64)).rows(self.longest)

    def put(self, slots: Slots, batch: Batch) -> None:
        """Into these slots, all different."""
        for name, rows in batch.rows(self.longest).items():
            self.rows[name] = roomy(self.rows[name], int(slots.max(initial=-1)) + 1)
            self.rows[name][slots] = rows

    def take(self, slots: Slots) -> Batch:
        """The posts in these slots."""
        return self.kind.of_rows({name: rows[slots] for name, rows in self.rows.items()})

    def state(self) -> dict[str, NDArray[Any]]:
        """To be saved."""
        return {f"column.{name}": rows for name, rows in self.rows.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Hold what was saved."""
        names = [name for name in state if name.startswith("column.")]
        self.rows = {name.removeprefix("column."): state[name].copy() for name in names}


def roomy(array: NDArray[Any], needed: int, fill: int = 0) -> NDArray[Any]:
    """The array with at least so many rows; it doubles, so growing costs little a row."""
    if needed <= len(array):
        return array
    more = max(needed, 2 * len(array), 64) - len(array)
    return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])


def settle(columns: Columns, batch: Batch, target: Sequence[int], used: NDArray[np.bool_]) -> Batch:
    """Put each post into its target slot, −1 for none; the last one stays where several meet.

    Returns who is not there then: those who were in these slots (``used`` says where anybody
    was), and those of the batch who did not stay.
    """
    last = {slot: post for post, slot in enumerate(target) if slot >= 0}
    if not last:
        return batch
    taken, stays = (np.array(each) for each in zip(*sorted(last.items()), strict=True))
    gone = columns.take(taken[used[stays]])
    columns.put(taken, batch.select(stays))
    if len(stays) == len(batch):
        return gone
    refused = np.delete(np.arange(len(batch)), stays)
    return batch.join([gone, batch.select(refused)])


class Bag:
    """Users to draw from: adding, removing and drawing take the same time, however many."""

    def __init__(self) -> None:
        self.users: list[int] = []
        self.place: dict[int, int] = {}

    def add(self, user: int) -> None:
        """Put a user in who is not there."""
        self.place[user] = len(self.users)
        self.users.append(user)

    def remove(self, user: int) -> None:
        """The last one takes the place of who goes."""
        place, last = self.place.pop(user), self.users.pop()
        if last != user:
            self.users[place], self.place[last] = last, place


class Limit:
    """How many posts a memory of all users together may hold; per user, it grows with them."""

    def __init__(self, plan: BufferPlan) -> None:
        self.plan = plan
        self.seen = np.zeros(0, bool)  # [users]
        self.users = 0

    def after(self, users: NDArray[np.integer]) -> int:
        """The limit, once these users were seen."""
        if self.plan.posts is not None:
            return self.plan.posts
        self.seen = roomy(self.seen, int(users.max(initial=-1)) + 1)
        new = np.unique(users[~self.seen[users]])
        self.seen[new] = True
        self.users += len(new)
        return self.users * (self.plan.per_user or 0)

    def state(self) -> dict[str, NDArray[Any]]:
        """To be saved."""
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Be what was saved."""
        self.seen = state["seen"].copy()
        self.users = int(self.seen.sum())


def rank(values: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many equal values come before each."""
    order = np.argsort(values, kind="stable")
    begins = np.flatnonzero(np.diff(values[order], prepend=-1))
    within = np.arange(len(values)) - np.repeat(begins, np.diff(begins, append=len(values)))
    ranks = np.empty(len(values), np.int64)
    ranks[order] = within
    return ranks
