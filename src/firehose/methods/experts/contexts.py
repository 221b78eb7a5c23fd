"""The places of posts at which a piece is predicted, and checksums of the pieces before them."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.methods.experts.compiled import compiled

NOTHING = -1  # stands before <SOT>
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)

Keys = NDArray[np.uint64]


class Contexts(NamedTuple):
    """What was read at each place: the pieces before it, the nearest first."""

    before: NDArray[np.int32]  # [reach, places]; NOTHING before <SOT>
    depth: NDArray[np.int64]  # [places], how many pieces there are before, <SOT> included
    user: NDArray[np.int64]  # [places]

    @classmethod
    def of(cls, batch: Batch, reach: int) -> Self:
        """Those of every piece of a batch but the first of each post, which nothing predicts."""
        lengths = batch.lengths
        depth = np.arange(len(batch.tokens)) - np.repeat(batch.offsets[:-1], lengths)
        places = np.flatnonzero(depth)
        depth, tokens = depth[places], batch.tokens.astype(np.int32)
        before = np.empty((reach, len(places)), np.int32)
        for distance, row in enumerate(before):
            read = tokens.take(places - 1 - distance, mode="clip")  # beyond <SOT> it is not used
            row[:] = np.where(depth > distance, read, NOTHING)
        user = np.repeat(batch.user.astype(np.int64), np.maximum(lengths - 1, 0))
        return cls(before, depth, user)

    @classmethod
    def of_rows(cls, tokens: NDArray[np.integer], user: int, reach: int) -> Self:
        """The places after several texts of one user, ``[texts, tokens]``, all of one length."""
        rows, length = tokens.shape
        before = np.full((reach, rows), NOTHING, np.int32)
        near = tokens[:, ::-1][:, :reach].T
        before[: len(near)] = near
        return cls(before, np.full(rows, length), np.full(rows, user, np.int64))

    def __len__(self) -> int:
        return len(self.depth)

    def keys(self, order: int, by_user: bool = False) -> Keys:
        """Checksums of the nearest 0, 1, … ``order`` pieces, ``[order + 1, places]``.

        With ``by_user`` the user is part of them. Where there are fewer pieces, those count.
        """
        keys = np.ones((order + 1, len(self)), np.uint64)
        if by_user:
            keys[0] = mix(keys[0], self.user)
        for distance in range(order):
            keys[distance + 1] = mix(keys[distance], self.before[distance])
        return keys


def targets(batch: Batch) -> NDArray[np.int64]:
    """The piece that comes at each place of a batch."""
    later = np.ones(len(batch.tokens), bool)
    later[batch.offsets[:-1]] = False
    return batch.tokens[later].astype(np.int64)


def mix(keys: Keys, values: NDArray[np.integer]) -> Keys:
    """Checksums of what ``keys`` stand for, with one more value each; they wrap at 64 bits."""
    mixed: Keys = _mix(keys, values.astype(np.int64).view(np.uint64))
    return mixed


def _mix(key: Any, value: Any) -> Any:
    mixed = (key ^ value) * _GOLDEN
    mixed = mixed ^ (mixed >> _SHIFT)
    mixed = mixed * _GOLDEN
    return mixed ^ (mixed >> _SHIFT)


mix_one = compiled(_mix)  # the same for one key and one value, inside what is compiled
