"""Slots to keep posts in: columns that grow, and which post takes which slot."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch, UniformBatch
from firehose.errors import FirehoseError
from firehose.methods.buffers import Buffer, BufferSettings
from firehose.methods.step import Setup
from firehose.optim.rows import UserIndex, grown, grown_to
from firehose.parallel.divided import Share
from firehose.parallel.shards import Shards

Slots = NDArray[np.int64]


class Columns:
    """Posts in numbered slots: for every column of a batch an array with a row for each slot.

    Where tables are dealt out to processes, each holds a share of the slots.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.shards = Shards.here()
        self.kind: type[Batch] = Batch
        self.slots = 0  # that there is room for, in all processes
        self.rows: dict[str, NDArray[Any]] = {}  # of the slots here
        self.shares: dict[str, Share] = {}

    def fit(self, batch: Batch) -> None:
        """Take the columns of this batch, if none are known yet."""
        if not self.rows:
            self._take_over(
                type(batch), batch.select(np.zeros(0, np.int64)).to_rows(self.max_tokens)
            )

    def put(self, slots: Slots, batch: Batch) -> None:
        """Put the posts of a batch into these slots, all different."""
        added, shards = batch.to_rows(self.max_tokens), self.shards
        if added.keys() != self.rows.keys():
            raise FirehoseError(
                f"A buffer with the columns {', '.join(self.rows)} was given posts with "
                f"{', '.join(added)}; a learner must add the same columns to all posts."
            )
        self.slots = grown_to(self.slots, int(slots.max(initial=-1)) + 1)
        here = shards.mine(slots)
        places = slots[here] // shards.parts
        for name, rows in added.items():
            self.rows[name] = grown(self.rows[name], shards.room(self.slots))
            self.rows[name][places] = rows[here]

    def take(self, slots: Slots) -> Batch:
        """The posts in these slots."""
        found = self.shards.fetch(slots, *self.rows.values())
        return self.kind.from_rows(dict(zip(self.rows, found, strict=True)))

    def keep(self, slots: Slots) -> None:
        """Move the posts of these slots to the first ones, in this order, and erase all others."""
        if not np.array_equal(slots, np.arange(len(slots))):
            found = self.shards.fetch(slots, *self.rows.values())
            for rows, values in zip(self.rows.values(), found, strict=True):
                own = self.shards.part(values)
                rows[: len(own)] = own
        for rows in self.rows.values():
            rows[self.shards.room(len(slots)) :] = 0

    def state(self, slots: int | None = None) -> dict[str, Any]:
        """Every column by name, of all slots or of so many, to be written."""
        count = self.slots if slots is None else min(slots, self.slots)
        return {f"column.{name}": share.whole(count) for name, share in self.shares.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over the columns that ``state`` returned."""
        names = [name for name in state if name.startswith("column.")]
        rows = {name.removeprefix("column."): state[name] for name in names}
        self._take_over(Batch if "length" in rows else UniformBatch, rows)

    def _take_over(self, kind: type[Batch], rows: Mapping[str, NDArray[Any]]) -> None:
        """Have these columns, and of their rows those that are to be here."""
        self.kind = kind
        self.slots = max(map(len, rows.values()), default=0)
        self.rows = {name: self.shards.part(column).copy() for name, column in rows.items()}
        self.shares = {name: self._share(name) for name in rows}

    def _share(self, name: str) -> Share:
        return Share(self.shards, lambda: self.rows[name])


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

    def __init__(self, users: Iterable[int] = ()) -> None:
        self.users = list(users)
        self.place = {user: place for place, user in enumerate(self.users)}

    def add(self, user: int) -> None:
        """Put a user in who is not there."""
        self.place[user] = len(self.users)
        self.users.append(user)

    def remove(self, user: int) -> None:
        """Take a user out; the last one takes the free place."""
        place, last = self.place.pop(user), self.users.pop()
        if last != user:
            self.users[place], self.place[last] = last, place


class Pool(Buffer):
    """A memory of the posts of all users together, with one limit.

    A limit in posts per user grows with the users seen so far.
    """

    counters: ClassVar[tuple[str, ...]] = ("count",)  # attributes that belong to the state

    def __init__(self, settings: BufferSettings, setup: Setup) -> None:
        self.settings = settings
        self.columns = Columns(setup.max_tokens)
        self.seen = UserIndex(Shards.here())
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def limit(self, users: NDArray[np.integer]) -> int:
        """How many posts it may hold after these users were seen."""
        if self.settings.posts is not None:
            return self.settings.posts
        self.seen.meet(users)
        return len(self.seen) * (self.settings.per_user or 0)

    def slots(self, places: Slots) -> Slots:
        """Where the posts at these places, from 0 to ``count`` − 1, are kept."""
        return places

    def sample(self, count: int, generator: np.random.Generator) -> Batch:
        """Posts drawn uniformly, with replacement."""
        return self.columns.take(self.slots(generator.integers(0, self.count, count)))

    def all(self) -> Batch:
        """Place by place."""
        return self.columns.take(self.slots(np.arange(self.count)))

    def forget(self, user: int) -> int:
        """Erase a user's posts; returns how many. Looks through the whole buffer."""
        self.seen.remove(user)
        before, slots = self.count, self.slots(np.arange(self.count))
        if before:
            self.keep(slots[self.columns.rows["user"][slots] != user])
        return before - self.count

    def keep(self, slots: Slots) -> None:
        """Move the posts of these slots to the first ones, in this order, and erase all others."""
        self.count = len(slots)
        self.columns.keep(slots)

    def state(self) -> dict[str, Any]:
        """The posts, and all that decides what happens to the next ones."""
        counters = {name: getattr(self, name) for name in self.counters}
        return self.columns.state() | {"seen": self.seen.whole()} | counters

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.columns.restore(state)
        self.seen.assign(state["seen"])
        for name in self.counters:
            setattr(self, name, state[name])


def rank(values: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many equal values come before each."""
    order = np.argsort(values, kind="stable")
    begins = np.flatnonzero(np.diff(values[order], prepend=-1))
    within = np.arange(len(values)) - np.repeat(begins, np.diff(begins, append=len(values)))
    ranks = np.empty(len(values), np.int64)
    ranks[order] = within
    return ranks
