"""A hash table in arrays: rows of whole numbers, found by a checksum, many at a time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from firehose.methods.experts.contexts import Keys

FULL = 0.85  # of the slots, before there are more
ROOMY = 0.72  # of the slots are taken after that
SMALLEST = 251
NONE = -1
_BITS = np.uint64(48)  # of a checksum, by which a row is known
_LOW = np.uint64(0xFFFFFFFF)
_STEP = np.uint64(20)

Slots = NDArray[np.int64]


class Table:
    """Rows of numbers by the first 48 bits of a checksum; a row is all zeros when it is new.

    Slots are tried one after another at a distance that depends on the checksum, until the row is
    found or a slot is empty. Two checksums that agree in 48 bits are taken for one: among 10
    million rows that is one in 30 million questions for what is not there.
    """

    def __init__(self, columns: Mapping[str, DTypeLike], slots: int = SMALLEST) -> None:
        self.kinds = dict(columns)
        self._make(slots)

    def _make(self, slots: int) -> None:
        self.low = np.zeros(slots, np.uint32)
        self.high = np.zeros(slots, np.uint16)  # both are 0 where a slot is empty
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros(slots, kind) for name, kind in self.kinds.items()
        }
        self.used = 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        arrays = (self.low, self.high, *self.columns.values())
        return sum(array.nbytes for array in arrays)

    def find(self, keys: Keys) -> Slots:
        """The slot of each checksum; NONE where there is no row for it."""
        marks = _marks(keys)
        found = np.full(len(marks), NONE, np.int64)
        asking = np.arange(len(marks))
        slot, step = self._path(marks)
        while len(asking):
            here = self._mark_at(slot)
            same, empty = here == marks[asking], here == 0
            found[asking[same]] = slot[same]
            going = ~(same | empty)
            asking, step = asking[going], step[going]
            slot = (slot[going] + step) % len(self.low)
        return found

    def get(self, name: str, slots: Slots) -> NDArray[Any]:
        """The values of a column; 0 where there is no row."""
        return np.where(slots == NONE, 0, self.columns[name][slots])

    def enter(self, keys: Keys) -> Slots:
        """The slot of each checksum, all different; rows are made for those that have none."""
        if self.used + len(keys) > FULL * len(self.low):
            self._rebuild(self.used + len(keys), np.ones(len(self.low), bool))
        return self._enter(_marks(keys))

    def _enter(self, marks: Keys) -> Slots:
        found = np.full(len(marks), NONE, np.int64)
        asking = np.arange(len(marks))
        slot, step = self._path(marks)
        while len(asking):
            here = self._mark_at(slot)
            empty = np.flatnonzero(here == 0)
            if len(empty):  # of several that want the same slot, the last to write has it
                self.low[slot[empty]] = (marks[asking[empty]] & _LOW).astype(np.uint32)
                self.high[slot[empty]] = (marks[asking[empty]] >> np.uint64(32)).astype(np.uint16)
                here = self._mark_at(slot)
            same = here == marks[asking]
            self.used += int(same[empty].sum())
            found[asking[same]] = slot[same]
            asking, step = asking[~same], step[~same]
            slot = (slot[~same] + step) % len(self.low)
        return found

    def drop(self, gone: NDArray[np.bool_]) -> None:
        """Remove the rows of the slots where ``gone`` is true, without a trace."""
        self._rebuild(self.used, ~gone)

    def _rebuild(self, rows: int, keep: NDArray[np.bool_]) -> None:
        """Make room for so many rows, and enter those again that are to be kept."""
        taken = np.flatnonzero(keep & (self._mark_at(slice(None)) != 0))
        marks, before = self._mark_at(taken), self.columns
        self._make(_prime(max(int(rows / ROOMY), SMALLEST)))
        slots = self._enter(marks)
        for name, values in before.items():
            self.columns[name][slots] = values[taken]

    def _mark_at(self, slots: Slots | slice) -> Keys:
        return self.low[slots] | (self.high[slots].astype(np.uint64) << np.uint64(32))

    def _path(self, marks: Keys) -> tuple[Slots, Slots]:
        """The first slot of each mark, and the distance to the next one."""
        size = np.uint64(len(self.low))
        step = (marks >> _STEP) % (size - np.uint64(1)) + np.uint64(1)
        return (marks % size).astype(np.int64), step.astype(np.int64)

    def state(self) -> dict[str, Any]:
        """All arrays."""
        return {"low": self.low, "high": self.high, "columns": dict(self.columns)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.low, self.high = state["low"].copy(), state["high"].copy()
        self.columns = {name: column.copy() for name, column in state["columns"].items()}
        self.used = int((self._mark_at(slice(None)) != 0).sum())


def _marks(keys: Keys) -> Keys:
    """The 48 bits by which rows are known, never 0."""
    return np.maximum(keys >> (np.uint64(64) - _BITS), np.uint64(1))


def _prime(least: int) -> int:
    """The smallest prime that is not below ``least``, so that every distance reaches all slots."""
    number = least | 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number += 2
    return number
