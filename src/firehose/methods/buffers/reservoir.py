"""Reservoir: a uniform sample of all posts ever seen (Vitter 1985)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.methods.buffers import Buffer, BufferSettings
from firehose.methods.buffers.storage import Columns, Limit, State, place_posts
from firehose.methods.step import Setup


class Reservoir(Buffer):
    """A uniform sample of all posts that were ever pushed, where the limit is in posts.

    A limit per user grows: the room that a new user brings is filled by what comes next, so newer
    posts are more frequent than in a uniform sample. Compare strategies at a limit in posts.
    """

    def __init__(self, settings: BufferSettings, setup: Setup) -> None:
        self.columns = Columns(setup.max_tokens)
        self.limit = Limit(settings)
        self.count = 0
        self.pushed = 0

    def __len__(self) -> int:
        return self.count

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let posts in with the probability that keeps the sample uniform."""
        self.columns.fit(batch)
        most = self.limit.after(batch.user)
        surplus = self._shrink(most, generator) if self.count > most else None
        number = self.pushed + np.arange(len(batch))
        target = np.floor(generator.random(len(batch)) * (number + 1)).astype(np.int64)
        free = min(most - self.count, len(batch))
        target[:free] = self.count + np.arange(free)
        target[target >= most] = -1
        before = self.count
        self.count, self.pushed = before + free, self.pushed + len(batch)
        gone = place_posts(self.columns, batch, target.tolist(), target < before)
        return gone if surplus is None else batch.join([surplus, gone])

    def sample(self, count: int, generator: np.random.Generator) -> Batch:
        """Posts drawn uniformly, with replacement."""
        return self.columns.take(generator.integers(0, self.count, count))

    def all(self) -> Batch:
        """In any order."""
        return self.columns.take(np.arange(self.count))

    def forget(self, user: int) -> int:
        """Erase a user's posts; returns how many. Looks through the whole buffer."""
        self.limit.forget(user)
        before = self.count
        self._keep(self.columns.rows["user"][:before] != user if before else np.zeros(0, bool))
        return before - self.count

    def state(self) -> State:
        """The posts, and all that decides what happens to the next ones."""
        numbers = np.array([self.count, self.pushed])
        return self.columns.state() | self.limit.state() | {"numbers": numbers}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` was taken from."""
        self.columns.restore(state)
        self.limit.restore(state)
        self.count, self.pushed = state["numbers"].tolist()

    def _shrink(self, most: int, generator: np.random.Generator) -> Batch:
        """Let random posts leave: the limit fell because a user was forgotten."""
        kept = np.zeros(self.count, bool)
        kept[generator.choice(self.count, most, replace=False)] = True
        left = self.columns.take(np.flatnonzero(~kept))
        self._keep(kept)
        return left

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        """Keep some of the posts, and erase the others."""
        count = int(kept.sum())
        for rows in self.columns.rows.values():
            rows[:count], rows[count : self.count] = rows[: self.count][kept], 0
        self.count = count
