"""Some of all places, and how many of these come before any place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.compiled import compiled
from firehose.methods.experts.room import with_room

WORD = 64  # places that share a word of bits
_1, _2, _4, _56 = (np.uint64(n) for n in (1, 2, 4, 56))
_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_EIGHTS, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
# For what is compiled: a bit for each place, and how many are set in the words before.
Marked = tuple[NDArray[np.uint64], NDArray[np.int32]]


class Ranks:
    """A set of places that grows at its end; 12 bytes for 64 places, be they in it or not."""

    def __init__(self) -> None:
        self.bits = np.zeros(0, np.uint64)
        self.before = np.zeros(0, np.int32)
        self.end = 0  # places before it are in the set or not; those after may come

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self.bits.nbytes + self.before.nbytes

    def marked(self) -> Marked:
        """All of it, for what is compiled."""
        return self.bits, self.before

    def add(self, places: NDArray[np.int64], end: int) -> None:
        """Put places into the set, from where it ends up to a new end."""
        first, words = self.end // WORD, end // WORD + 1
        self.bits, self.before = with_room(self.bits, words), with_room(self.before, words)
        np.bitwise_or.at(self.bits, places // WORD, _1 << (places % WORD).astype(np.uint64))
        counts = np.bitwise_count(self.bits[first : words - 1])
        self.before[first + 1 : words] = self.before[first] + np.cumsum(counts, dtype=np.int32)
        self.end = end

    def among(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which of the places from ``start`` to ``stop`` − 1 are in the set."""
        words = self.bits[start // WORD : -(-stop // WORD)]
        bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
        return bits[start % WORD :][: stop - start].astype(bool)

    def rank(self, place: int) -> int:
        """How many of the set come before a place."""
        return int(rank(self.marked(), place)) if len(self.bits) else 0


@compiled
def rank(marked: Marked, place: int) -> Any:
    """How many of a set come before a place."""
    bits, before = marked
    word = place // WORD
    left = bits[word] & ((_1 << np.uint64(place % WORD)) - _1)
    left = left - ((left >> _1) & _PAIRS)  # bits of each pair, of each four, of each byte, of all
    left = (left & _FOURS) + ((left >> _2) & _FOURS)
    left = (left + (left >> _4)) & _EIGHTS
    return np.int64(before[word]) + np.int64((left * _BYTES) >> _56)
