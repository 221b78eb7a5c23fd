"""A ragged batch of posts as flat arrays: no padding, no list per post."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """Posts side by side: post ``i`` is ``tokens[offsets[i] : offsets[i + 1]]``."""

    tokens: NDArray[np.unsignedinteger]  # [tokens], each post from <SOT> to <EOT>
    offsets: NDArray[np.int64]  # [posts + 1]
    user: NDArray[np.int32]  # [posts], index into the corpus's users; -1: nobody's
    time: NDArray[np.int64]  # [posts], milliseconds since 1970, UTC
    words: NDArray[np.int32]  # [posts], word-level tokens, <EOT> included

    def __len__(self) -> int:
        return len(self.user)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each post."""
        return np.diff(self.offsets)


def gather(
    starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the tokens of the posts at ``starts`` lie, and their offsets once side by side."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return places, offsets
