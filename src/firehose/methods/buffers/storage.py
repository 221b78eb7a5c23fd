"""Slots to keep posts in: columns that grow, and which post takes which slot."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch, UniformBatch
from firehose.errors import FirehoseError
from firehose.methods.buffers import BufferSettings

Slots = NDArray[np.int64]
State = dict[str, NDArray[Any]]


class Columns:
    """Posts in numbered slots: for every column of a batch an array with a row for each slot."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.kind: type[Batch] = Batch
        self.rows: dict[str, NDArray[Any]] = {}

    def fit(self, batch: Batch) -> None:
        """Take the columns of this batch, if none are known yet."""
        if not self.rows:
            self.kind = type(batch)
            self.rows = batch.select(np.zeros(0, np.int64)).to_rows(self.max_tokens)

    def put(self, slots: Slots, batch: Batch) -> None:
        """Put the posts of a batch into these slots, all different."""
        added = batch.to_rows(self.max_tokens)
        if added.keys() != self.rows.keys():
            raise FirehoseError(
                f"A buffer with the columns {', '.join(self.rows)} was given posts with "
                f"{', '.join(added)}; a learner must add the same columns to all posts."
            )
        for name, rows in added.items():
            self.rows[name] = grown(self.rows[name], int(slots.max(initial=-1)) + 1)
            self.rows[name][slots] = rows

    def take(self, slots: Slots) -> Batch:
        """The posts in these slots."""
        return self.kind.from_rows({name: rows[slots] for name, rows in self.rows.items()})

    def state(self) -> dict[str, NDArray[Any]]:
        """Every column, by name."""
        return {f"column.{name}": rows for name, rows in self.rows.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over the columns that ``state`` returned."""
        names = [name for name in state if name.startswith("column.")]
        self.rows = {name.removeprefix("column."): state[name].copy() for name in names}
        self.kind = Batch if "length" in self.rows else UniformBatch


def grown(array: NDArray[Any], needed: int, fill: int = 0) -> NDArray[Any]:
    """The array with at least so many rows; it doubles, so growing costs little a row."""
    if needed <= len(array):
        return array
    more = max(needed, 2 * len(array), 64) - len(array)
    return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])


def place_posts(
    columns: Columns, batch: Batch, target: Sequence[int], used: NDArray[np.bool_]
) -> Batch:
    """Put each post into its target slot, −1 for none; the last one stays where several meet.

    ``used`` says for each post whether its slot held a post before. Returns the posts that are in
    no slot afterwards: those that were in these slots, and those of the batch that did not stay.
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
        """Take a user out; the last one takes the free place."""
        place, last = self.place.pop(user), self.users.pop()
        if last != user:
            self.users[place], self.place[last] = last, place


class Limit:
    """How many posts a memory of all users together may hold; per user, it grows with them."""

    def __init__(self, settings: BufferSettings) -> None:
        self.settings = settings
        self.seen = np.zeros(0, bool)  # [users]
        self.users = 0

    def after(self, users: NDArray[np.integer]) -> int:
        """The limit after these users were seen."""
        if self.settings.posts is not None:
            return self.settings.posts
        self.seen = grown(self.seen, int(users.max(initial=-1)) + 1)
        new = np.unique(users[~self.seen[users]])
        self.seen[new] = True
        self.users += len(new)
        return self.users * (self.settings.per_user or 0)

    def forget(self, user: int) -> None:
        """Count without this user."""
        if user < len(self.seen) and self.seen[user]:
            self.seen[user] = False
            self.users -= 1

    def state(self) -> dict[str, NDArray[Any]]:
        """Which users were seen."""
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` was taken from."""
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
