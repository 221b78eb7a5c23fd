"""A hash table in arrays: rows of whole numbers, found by a checksum."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from firehose.methods.experts.compiled import compiled
from firehose.methods.experts.contexts import Keys
from firehose.methods.experts.room import copied, zeros
from firehose.parallel.divided import Sections
from firehose.parallel.shards import Shards

LANES = 8  # rows of a bucket: 64 bytes, which a processor fetches at once
FULL = 0.92  # of the rows, before there are more
ROOMY = 0.8  # of the rows are taken after that
SMALLEST = 31
AT_ONCE = 1 << 20  # rows that are put into a larger table at once
NUMBER = np.uint64(0xFFFF)  # the bits of a row's number
_MARK, _FIRST = ~NUMBER, NUMBER + np.uint64(1)
_1, _16, _32 = np.uint64(1), np.uint64(16), np.uint64(32)

Slots = NDArray[np.int64]
Words = NDArray[np.uint64]  # [buckets, LANES], a checksum and a number each; 0: no row


class Table:
    """Rows by the first 48 bits of a checksum: a number of 16 bits, and columns beside it.

    A row is all zeros when it is new; one whose number is 0 again may be left out. A row is in the
    bucket that its checksum names or, where that was full, in the next one at a distance that
    depends on the checksum. Two checksums that agree in 48 bits are taken for one: among 10 million
    rows that is one in 30 million questions for what is not there.

    With ``shards`` a process has the rows that ``mine`` names.
    """

    def __init__(self, columns: Mapping[str, DTypeLike] = {}, shards: Shards | None = None) -> None:
        self.kinds, self.shards = dict(columns), shards or Shards()
        self._make(SMALLEST)
        self._words = Sections(self.shards, lambda: self.words)
        self._columns = {name: self._section(name) for name in self.kinds}

    def _section(self, name: str) -> Sections:
        rows = np.dtype(self.kinds[name]).shape
        return Sections(self.shards, lambda: self.columns[name].reshape(-1, LANES, *rows))

    def _make(self, buckets: int) -> None:
        self.words: Words = zeros(buckets * LANES, np.uint64).reshape(buckets, LANES)
        self.columns: dict[str, NDArray[Any]] = {
            name: zeros(buckets * LANES, kind) for name, kind in self.kinds.items()
        }
        self.used = 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def mine(self, keys: Keys) -> NDArray[np.bool_]:
        """Which checksums are those of rows that are here."""
        return self.shards.mine(np.maximum(keys & _MARK, _FIRST) >> _16)

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self.words.nbytes + sum(column.nbytes for column in self.columns.values())

    @contextmanager
    def put_back(self, keys: Keys) -> Iterator[None]:
        """Afterwards, the rows of these checksums are as they were; none may be made inside."""
        slots = find(self.words, keys)
        slots, words = slots[slots >= 0], self.words.reshape(-1)
        before = words[slots], {name: column[slots] for name, column in self.columns.items()}
        try:
            yield
        finally:
            words[slots] = before[0]
            for name, values in before[1].items():
                self.columns[name][slots] = values

    def make_room(self, more: int) -> None:
        """See to it that so many more rows can be made; those whose number is 0 are left out."""
        if self.used + more <= FULL * self.words.size:
            return
        words, columns = self.words.reshape(-1), self.columns
        rows = sum(int((words[part] & NUMBER > 0).sum()) for part in _parts(words))
        self._make_for(rows + more)
        self._take_over(words, columns)

    def _make_for(self, rows: int) -> None:
        self._make(_prime(max(int(rows / (ROOMY * LANES)), SMALLEST)))

    def _take_over(self, words: Words, columns: Mapping[str, NDArray[Any]]) -> None:
        """Make rows like those of another table, as far as they are to be here."""
        for part in _parts(words):
            taken = np.flatnonzero(self._taken(words[part])) + part.start
            slots, new = enter(self.words, words[taken])
            self.used += new
            self.words.reshape(-1)[slots] = words[taken]
            for name, values in columns.items():
                self.columns[name][slots] = values[taken]

    def state(self) -> dict[str, Any]:
        """All arrays; those of several processes are no table that could be used as it is."""
        columns = {name: column.whole() for name, column in self._columns.items()}
        return {"words": self._words.whole(), "columns": columns, "parts": self.shards.parts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        columns = {
            name: state["columns"][name].reshape(-1, *np.dtype(kind).shape)
            for name, kind in self.kinds.items()
        }
        if state.get("parts", 1) == self.shards.parts == 1:
            self.words = copied(state["words"])
            self.columns = {name: copied(values) for name, values in columns.items()}
            self.used = int((self.words != 0).sum())
            return
        words = state["words"].reshape(-1)
        self._make_for(sum(int(self._taken(words[part]).sum()) for part in _parts(words)))
        self._take_over(words, columns)

    def _taken(self, words: Words) -> NDArray[np.bool_]:
        """Which of some rows are not empty, and to be here."""
        return (words & NUMBER > 0) & self.mine(words)


def _parts(words: Words) -> Iterator[slice]:
    """Some rows at a time."""
    return (slice(start, start + AT_ONCE) for start in range(0, len(words), AT_ONCE))


@compiled
def locate(words: Words, key: np.uint64) -> tuple[Any, bool]:
    """The slot of a checksum, and True; or the slot where its row would be, and False."""
    mark = max(key & _MARK, _FIRST)
    size = np.uint64(len(words))
    bucket = np.int64(((mark >> _32) * size) >> _32)
    step = np.int64(((((mark >> _16) & NUMBER) * (size - _1)) >> _16) + _1)
    while True:
        for lane in range(LANES):
            word = words[bucket, lane]
            if word & _MARK == mark:
                return bucket * LANES + lane, True
            if not word:
                return bucket * LANES + lane, False
        bucket = (bucket + step) % len(words)


@compiled
def enter_one(words: Words, key: np.uint64) -> tuple[Any, bool]:
    """The slot of a checksum, and whether a row was made for it; there must be room."""
    slot, is_known = locate(words, key)
    if not is_known:
        words[slot // LANES, slot % LANES] = max(key & _MARK, _FIRST)
    return slot, not is_known


@compiled
def enter(words: Words, keys: Keys) -> tuple[Slots, int]:
    """The slot of each checksum, and how many rows were made."""
    slots, new = np.empty(len(keys), np.int64), 0
    for index in range(len(keys)):
        slots[index], is_new = enter_one(words, keys[index])
        new += is_new
    return slots, new


@compiled
def find(words: Words, keys: Keys) -> Slots:
    """The slot of each checksum; −1 for those without a row."""
    slots = np.empty(len(keys), np.int64)
    for index in range(len(keys)):
        slot, is_known = locate(words, keys[index])
        slots[index] = slot if is_known else -1
    return slots


def _prime(least: int) -> int:
    """The smallest prime that is not below ``least``, so that every distance reaches all."""
    number = least | 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number += 2
    return number
