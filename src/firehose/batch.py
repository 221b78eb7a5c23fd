"""A ragged batch of posts as flat arrays: no padding, no list per post."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

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

    def select(self, posts: NDArray[np.integer]) -> Self:
        """These posts, in this order."""
        starts = self.offsets[posts]
        places, offsets = gather(starts, self.offsets[posts + 1] - starts)
        rest = (self.user[posts], self.time[posts], self.words[posts])
        return type(self)(self.tokens[places], offsets, *rest)

    @classmethod
    def join(cls, batches: Sequence[Self]) -> Self:
        """All posts of several batches, one after another."""
        offsets = np.zeros(sum(map(len, batches)) + 1, np.int64)
        np.concatenate(
            [batch.offsets[1:] - batch.offsets[:-1] for batch in batches], out=offsets[1:]
        )
        np.cumsum(offsets, out=offsets)
        columns = zip(*((b.tokens, b.user, b.time, b.words) for b in batches), strict=True)
        tokens, *rest = map(np.concatenate, columns)
        return cls(tokens, offsets, *rest)

    def rows(self, longest: int) -> dict[str, NDArray[Any]]:
        """A row for each post in every column, to be kept in a memory; posts are cut."""
        lengths = np.minimum(self.lengths, longest)
        places, offsets = gather(self.offsets[:-1], lengths)
        tokens = np.zeros((len(self), longest), self.tokens.dtype)
        column = np.arange(len(places)) - np.repeat(offsets[:-1], lengths)
        tokens[np.repeat(np.arange(len(self)), lengths), column] = self.tokens[places]
        return {
            "tokens": tokens,
            "length": lengths.astype(np.uint16),
            "user": self.user,
            "time": self.time,
            "words": self.words,
        }

    @classmethod
    def of_rows(cls, rows: Mapping[str, NDArray[Any]]) -> Self:
        """The way back."""
        tokens, lengths = rows["tokens"], rows["length"].astype(np.int64)
        starts = np.arange(len(tokens)) * tokens.shape[1]
        places, offsets = gather(starts, lengths)
        return cls(tokens.reshape(-1)[places], offsets, rows["user"], rows["time"], rows["words"])


def gather(
    starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the tokens of the posts at ``starts`` lie, and their offsets once side by side."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return places, offsets
