"""Reservoir: a uniform sample of all posts ever seen (Vitter 1985)."""

import numpy as np

from firehose.batch import Batch
from firehose.methods.buffers import BufferSettings
from firehose.methods.buffers.storage import Pool, place_posts
from firehose.methods.step import Setup


class Reservoir(Pool):
    """A uniform sample of all posts that were ever pushed, where the limit is in posts.

    A limit per user grows: the room that a new user brings is filled by what comes next, so newer
    posts are more frequent than in a uniform sample. Compare strategies at a limit in posts.
    """

    counters = ("count", "pushed")

    def __init__(self, settings: BufferSettings, setup: Setup) -> None:
        super().__init__(settings, setup)
        self.pushed = 0

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let posts in with the probability that keeps the sample uniform."""
        self.columns.fit(batch)
        most = self.limit(batch.user)
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

    def _shrink(self, most: int, generator: np.random.Generator) -> Batch:
        """Let random posts leave: the limit fell because a user was forgotten."""
        kept = np.zeros(self.count, bool)
        kept[generator.choice(self.count, most, replace=False)] = True
        left = self.columns.take(np.flatnonzero(~kept))
        self.keep(np.flatnonzero(kept))
        return left
