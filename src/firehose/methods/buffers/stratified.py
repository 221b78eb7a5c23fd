"""Stratified: the same number of posts for every user, the newest or a uniform sample of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch, gather
from firehose.methods.buffers import Buffer, BufferSettings
from firehose.methods.buffers.balanced import Balanced
from firehose.methods.buffers.storage import Columns, place_posts, rank
from firehose.methods.step import Setup
from firehose.optim.rows import UserIndex, grown
from firehose.parallel.divided import Share
from firehose.parallel.shards import Shards


class Stratified(Buffer):
    """The newest posts of every user, ``per_user`` of them, in a row of slots for each user."""

    is_reservoir = False  # instead of the newest, a uniform sample of all posts of the user

    @classmethod
    def make(cls, settings: BufferSettings, *parts: Any) -> Any:
        """With a limit in posts instead of posts per user, the users share it evenly."""
        if settings.posts is None:
            return cls(settings, *parts)
        return Balanced(settings, parts[0], cls.is_reservoir)

    def __init__(self, settings: BufferSettings, setup: Setup) -> None:
        self.columns = Columns(setup.max_tokens)
        self.per_user = settings.per_user or 0
        self.users = UserIndex(Shards.here())  # each has a row of slots
        self.pushed = np.zeros(0, np.int32)  # [rows here], posts of this user so far
        self._pushed = Share(self.users.shards, lambda: self.pushed)
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let each user's posts in; returns the older ones that make room for them."""
        if not self.per_user:
            return batch
        self.columns.fit(batch)
        rows = self.users.meet(batch.user)
        shards = self.users.shards
        self.pushed = grown(self.pushed, shards.room(len(self.users)))
        (before,) = shards.fetch(rows, self.pushed)
        number = before + rank(rows)  # of the post among all of its user
        place = number % self.per_user
        if self.is_reservoir:
            drawn = np.floor(generator.random(len(batch)) * (number + 1)).astype(np.int64)
            place = np.where(number < self.per_user, number, drawn)
        target = np.where(place < self.per_user, rows * self.per_user + place, -1)
        used = place < before
        np.add.at(self.pushed, rows[shards.mine(rows)] // shards.parts, 1)
        self.count += int((number < self.per_user).sum())
        return place_posts(self.columns, batch, target.tolist(), used)

    def sample(self, count: int, generator: np.random.Generator) -> Batch:
        """Posts drawn with replacement: a user, all alike, then one of the user's posts."""
        rows = generator.integers(0, len(self.users), count)
        (pushed,) = self.users.shards.fetch(rows, self.pushed)
        held = np.minimum(pushed, self.per_user)
        return self.columns.take(rows * self.per_user + generator.integers(0, held))

    def all(self) -> Batch:
        """User by user."""
        (pushed,) = self.users.shards.fetch(np.arange(len(self.users)), self.pushed)
        held = np.minimum(pushed, self.per_user).astype(np.int64)
        places, _ = gather(np.arange(len(held)) * self.per_user, held)
        return self.columns.take(places)

    def forget(self, user: int) -> int:
        """Erase a user's posts; returns how many. The last row moves into the gap."""
        row = self.users.remove(user)
        if row < 0:
            return 0
        erased = int(min(self.pushed[row], self.per_user))
        last = len(self.users)
        gap, end = (slice(r * self.per_user, (r + 1) * self.per_user) for r in (row, last))
        for rows in self.columns.rows.values():
            moved = rows[end]  # fewer than per_user where the last row was never full
            rows[gap][: len(moved)], rows[gap][len(moved) :] = moved, 0
            rows[end] = 0
        self.pushed[row], self.pushed[last] = self.pushed[last], 0
        self.count -= erased
        return erased

    def state(self) -> dict[str, Any]:
        """The posts, and all that decides what happens to the next ones."""
        users = len(self.users)
        pushed = self._pushed.whole(users)
        held = self.columns.state(users * self.per_user)
        return held | {"user_of": self.users.whole(), "pushed": pushed}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` was taken from."""
        self.columns.restore(state)
        self.users.assign(state["user_of"])
        self.pushed = self.users.shards.part(state["pushed"]).copy()
        self.count = int(np.minimum(state["pushed"], self.per_user).sum())


class StratifiedReservoir(Stratified):
    """A uniform sample of all posts of every user, ``per_user`` of them."""

    is_reservoir = True
