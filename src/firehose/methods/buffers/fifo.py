"""FIFO: the newest posts of all users together; the oldest leave first."""

import numpy as np

from firehose.batch import Batch
from firehose.methods.buffers import BufferSettings
from firehose.methods.buffers.storage import Pool, Slots
from firehose.methods.step import Setup


class FIFO(Pool):
    """The newest posts of all users together, in a ring; the oldest is at place 0."""

    counters = ("count", "ring", "oldest")

    def __init__(self, settings: BufferSettings, setup: Setup) -> None:
        super().__init__(settings, setup)
        self.ring = 0  # number of slots
        self.oldest = 0  # the slot of the oldest post

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let the batch in; returns the oldest posts, which make room for it."""
        self.columns.fit(batch)
        leaving = max(0, self.count + len(batch) - self.limit(batch.user))
        old = min(leaving, self.count)
        gone = self.columns.take(self.slots(np.arange(old)))
        self.oldest, self.count = (self.oldest + old) % max(self.ring, 1), self.count - old
        refused, staying = np.split(np.arange(len(batch)), [leaving - old])
        count = self.count + len(staying)
        if count > self.ring:
            self.keep(self.slots(np.arange(self.count)))
            self.ring = max(count, 2 * self.ring)
        self.columns.put(self.slots(np.arange(self.count, count)), batch.select(staying))
        self.count = count
        return batch.join([gone, batch.select(refused)])

    def slots(self, places: Slots) -> Slots:
        """Where the posts at these places are kept."""
        return (self.oldest + places) % max(self.ring, 1)

    def keep(self, slots: Slots) -> None:
        """Move the posts of these slots to the first ones, and erase all others."""
        super().keep(slots)
        self.oldest = 0
