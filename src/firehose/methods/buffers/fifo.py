"""FIFO: the newest posts of all users together; the oldest leave first."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.methods.buffers import Buffer, BufferSettings
from firehose.methods.buffers.storage import Columns, Limit, Slots, State
from firehose.methods.step import Setup


class FIFO(Buffer):
    """The newest posts of all users together, in a ring."""

    def __init__(self, settings: BufferSettings, setup: Setup) -> None:
        self.columns = Columns(setup.max_tokens)
        self.limit = Limit(settings)
        self.ring = 0  # number of slots
        self.oldest = 0  # the slot of the oldest post
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let the batch in; returns the oldest posts, which make room for it."""
        self.columns.fit(batch)
        most = self.limit.after(batch.user)
        leaving = max(0, self.count + len(batch) - most)
        old = min(leaving, self.count)
        gone = self.columns.take(self._slots(0, old))
        self.oldest, self.count = (self.oldest + old) % max(self.ring, 1), self.count - old
        refused, staying = np.split(np.arange(len(batch)), [leaving - old])
        if self.count + len(staying) > self.ring:
            ring = max(self.count + len(staying), 2 * self.ring)
            self._lay(self._slots(0, self.count), ring)
        self.columns.put(self._slots(self.count, len(staying)), batch.select(staying))
        self.count += len(staying)
        return batch.join([gone, batch.select(refused)])

    def sample(self, count: int, generator: np.random.Generator) -> Batch:
        """Posts drawn uniformly, with replacement."""
        return self.columns.take(self._slot(generator.integers(0, self.count, count)))

    def all(self) -> Batch:
        """The oldest first."""
        return self.columns.take(self._slots(0, self.count))

    def forget(self, user: int) -> int:
        """Erase a user's posts; returns how many. Looks through the whole buffer."""
        self.limit.forget(user)
        slots = self._slots(0, self.count)
        keep = self.columns.rows["user"][slots] != user if self.count else np.zeros(0, bool)
        self._lay(slots[keep], self.ring)
        return int((~keep).sum())

    def state(self) -> State:
        """The posts, and all that decides what happens to the next ones."""
        numbers = np.array([self.ring, self.oldest, self.count])
        return self.columns.state() | self.limit.state() | {"numbers": numbers}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` was taken from."""
        self.columns.restore(state)
        self.limit.restore(state)
        self.ring, self.oldest, self.count = state["numbers"].tolist()

    def _slot(self, place: Slots) -> Slots:
        return (self.oldest + place) % max(self.ring, 1)

    def _slots(self, first: int, number: int) -> Slots:
        return self._slot(np.arange(first, first + number))

    def _lay(self, slots: Slots, ring: int) -> None:
        """A ring of this size with the posts of these slots, the oldest first."""
        for name, rows in self.columns.rows.items():
            laid = np.zeros((ring, *rows.shape[1:]), rows.dtype)
            laid[: len(slots)] = rows[slots]
            self.columns.rows[name] = laid
        self.ring, self.oldest, self.count = ring, 0, len(slots)
