"""A hash table in arrays: rows of whole numbers, found by a checksum, many at a time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from firehose.methods.experts.contexts import Keys

LANES = 8  # rows of a bucket: 64 bytes, which a processor fetches at once
FULL = 0.92  # of the rows, before there are more
ROOMY = 0.8  # of the rows are taken after that
SMALLEST = 31
AT_ONCE = 1 << 16  # rows that are entered anew at a time
NONE = -1
_NUMBER = np.uint64(0xFFFF)
_16, _32, _TOP = np.uint64(16), np.uint64(32), np.uint64(56)
_WHICH_BYTE, _SUM_OF_BYTES = np.uint64(0x0001020304050607), np.uint64(0x0101010101010101)

Slots = NDArray[np.int64]


class Table:
    """Rows by the first 48 bits of a checksum: a number of 16 bits, and columns beside it.

    A row is all zeros when it is new; one whose number is 0 again may be left out. A row is in the
    bucket that its checksum names or, where that was full, in the next one at a distance that
    depends on the checksum. Two checksums that agree in 48 bits are taken for one: among 10 million
    rows that is one in 30 million questions for what is not there.
    """

    def __init__(self, columns: Mapping[str, DTypeLike] = {}) -> None:
        self.kinds = dict(columns)
        self._make(SMALLEST)

    def _make(self, buckets: int) -> None:
        self.words = np.zeros((buckets, LANES), np.uint64)  # checksum and number; 0: no row
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros(buckets * LANES, kind) for name, kind in self.kinds.items()
        }
        self.used = 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self.words.nbytes + sum(column.nbytes for column in self.columns.values())

    def find(self, keys: Keys) -> Slots:
        """The slot of each checksum; NONE where there is no row for it."""
        return self._find(_marks(keys))

    def _find(self, marks: Keys) -> Slots:
        found = np.full(len(marks), NONE, np.int64)
        asking = np.arange(len(marks))
        bucket, step = self._path(marks)
        while len(asking):
            rows = self.words.take(bucket, axis=0)
            lane, same = _lane(rows, marks)
            found[asking[same]] = bucket[same] * LANES + lane[same]
            going = np.flatnonzero(~same & (rows[:, -1] != 0))
            asking, marks, step = asking[going], marks[going], step[going]
            bucket = (bucket[going] + step) % len(self.words)
        return found

    def get(self, name: str, slots: Slots) -> NDArray[np.int64]:
        """The values of a column; 0 where there is no row."""
        return np.where(slots == NONE, 0, self.columns[name][slots]).astype(np.int64)

    def numbers(self, slots: Slots) -> NDArray[np.int64]:
        """The numbers of rows; 0 where there is no row."""
        numbers = (self.words.reshape(-1)[slots] & _NUMBER).astype(np.int64)
        return np.where(slots == NONE, 0, numbers)

    def put_numbers(self, slots: Slots, numbers: NDArray[np.int64]) -> None:
        """Set the numbers of rows, all different."""
        words = self.words.reshape(-1)
        words[slots] = (words[slots] & ~_NUMBER) | numbers.astype(np.uint64)

    def enter(self, keys: Keys) -> Slots:
        """The slot of each checksum, all different; rows are made for those that have none."""
        if self.used + len(keys) > FULL * self.words.size:
            self._rebuild(len(keys))
        marks = _marks(keys)
        found = self._find(marks)
        new = np.flatnonzero(found == NONE)
        found[new] = self._place(marks[new])
        return found

    def _place(self, marks: Keys) -> Slots:
        """Make rows for marks that have none."""
        found = np.full(len(marks), NONE, np.int64)
        asking = np.arange(len(marks))
        bucket, step = self._path(marks)
        while len(asking):
            order = np.argsort(bucket, kind="stable")
            asking, bucket, step = asking[order], bucket[order], step[order]
            begins = np.append(True, bucket[1:] != bucket[:-1])
            rank = np.arange(len(bucket)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
            lane = (
                _taken(self.words.take(bucket, axis=0)) + rank
            )  # rows of a bucket are taken in order
            fits = lane < LANES
            slots, placed = bucket[fits] * LANES + lane[fits], asking[fits]
            self.words.reshape(-1)[slots] = marks[placed]
            found[placed] = slots
            asking, step = asking[~fits], step[~fits]
            bucket = (bucket[~fits] + step) % len(self.words)
        self.used += len(marks)
        return found

    def _rebuild(self, more: int) -> None:
        """Make room for so many more rows; those whose number is 0 are left out."""
        words, columns = self.words.reshape(-1), self.columns
        taken = np.flatnonzero(words & _NUMBER)
        rows = len(taken) + more
        self._make(_prime(max(int(rows / (ROOMY * LANES)), SMALLEST)))
        for start in range(0, len(taken), AT_ONCE):
            chosen = taken[start : start + AT_ONCE]
            slots = self._place(words[chosen] & ~_NUMBER)
            self.words.reshape(-1)[slots] = words[chosen]
            for name, values in columns.items():
                self.columns[name][slots] = values[chosen]

    def _path(self, marks: Keys) -> tuple[Slots, Slots]:
        """The first bucket of each mark, and the distance to the next one."""
        size = np.uint64(len(self.words))
        bucket = ((marks >> _32) * size) >> _32
        step = ((((marks >> _16) & _NUMBER) * (size - np.uint64(1))) >> _16) + np.uint64(1)
        return bucket.astype(np.int64), step.astype(np.int64)

    def state(self) -> dict[str, Any]:
        """All arrays."""
        return {"words": self.words, "columns": dict(self.columns)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.words = state["words"].copy()
        columns = state.get("columns", {})
        self.columns = {name: columns[name].copy() for name in self.kinds}
        self.used = int((self.words != 0).sum())


def _marks(keys: Keys) -> Keys:
    """The 48 bits by which rows are known, never 0, with a number of 0 behind them."""
    marks: Keys = np.maximum(keys & ~_NUMBER, _NUMBER + np.uint64(1))
    return marks


def _lane(rows: NDArray[np.uint64], marks: Keys) -> tuple[Slots, NDArray[np.bool_]]:
    """Where in its bucket the row of each mark is, and whether it is there at all."""
    same = _as_bytes((rows ^ marks[:, None]) <= _NUMBER)
    # At most one byte is 1: it moves the byte of the factor to the top that says which one it is.
    return (same * _WHICH_BYTE >> _TOP).astype(np.int64), same != 0


def _taken(rows: NDArray[np.uint64]) -> Slots:
    """How many rows of each bucket are taken."""
    return (_as_bytes(rows != 0) * _SUM_OF_BYTES >> _TOP).astype(np.int64)


def _as_bytes(lanes: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Eight truths as the bytes of one number, the first as the lowest."""
    return lanes.view("<u8")[:, 0]


def _prime(least: int) -> int:
    """The smallest prime that is not below ``least``, so that every distance reaches all."""
    number = least | 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number += 2
    return number
