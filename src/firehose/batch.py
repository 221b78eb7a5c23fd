"""A ragged batch of posts as flat arrays: no padding, no list per post."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[Any]]
Part = NDArray[np.int64]  # the posts of a batch that one of several processes computes, in order


@dataclass(frozen=True)
class Batch:
    """Posts side by side: post ``i`` is ``tokens[offsets[i] : offsets[i + 1]]``.

    A method may bring columns of its own, with a row for each post or for each token; they
    follow the posts through buffers.
    """

    tokens: NDArray[np.unsignedinteger]  # [tokens], each post from <SOT> to <EOT>
    offsets: NDArray[np.int64]  # [posts + 1]
    user: NDArray[np.int32]  # [posts], index into the corpus's users; -1: nobody's
    time: NDArray[np.int64]  # [posts], milliseconds since 1970, UTC
    words: NDArray[np.int32]  # [posts], word-level tokens, <EOT> included
    per_post: Columns = field(default_factory=dict)  # [posts, …] each
    per_token: Columns = field(default_factory=dict)  # [tokens, …] each

    def __len__(self) -> int:
        return len(self.user)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each post."""
        return np.diff(self.offsets)

    def with_columns(self, per_post: Columns = {}, per_token: Columns = {}) -> Self:  # noqa: B006
        """The same posts with more columns beside them."""
        posts, tokens = {**self.per_post, **per_post}, {**self.per_token, **per_token}
        return replace(self, per_post=posts, per_token=tokens)

    def select(self, indices: NDArray[np.integer]) -> Self:
        """The posts of these indices, in this order."""
        starts = self.offsets[indices]
        places, offsets = gather(starts, self.offsets[indices + 1] - starts)
        rest = (self.user[indices], self.time[indices], self.words[indices])
        per_post = {name: column[indices] for name, column in self.per_post.items()}
        per_token = {name: column[places] for name, column in self.per_token.items()}
        return type(self)(self.tokens[places], offsets, *rest, per_post, per_token)

    @classmethod
    def join(cls, batches: Sequence[Self]) -> Self:
        """All posts of several batches, with the columns that all of them have."""
        lengths = [batch.offsets[1:] - batch.offsets[:-1] for batch in batches]
        offsets = np.concatenate([[0], *lengths]).cumsum()
        columns = zip(*((b.tokens, b.user, b.time, b.words) for b in batches), strict=True)
        tokens, user, time, words = map(np.concatenate, columns)
        per_post = _joined([batch.per_post for batch in batches])
        per_token = _joined([batch.per_token for batch in batches])
        return cls(tokens, offsets, user, time, words, per_post, per_token)

    def to_rows(self, max_tokens: int) -> dict[str, NDArray[Any]]:
        """Every column as an array with a row for each post; posts are cut to ``max_tokens``.

        The names of columns per post begin with ``post.``, those per token with ``token.``.
        """
        lengths = np.minimum(self.lengths, max_tokens)
        places, offsets = gather(self.offsets[:-1], lengths)
        row = np.repeat(np.arange(len(self)), lengths)
        position = np.arange(len(places)) - np.repeat(offsets[:-1], lengths)

        def padded(column: NDArray[Any]) -> NDArray[Any]:
            rows = np.zeros((len(self), max_tokens, *column.shape[1:]), column.dtype)
            rows[row, position] = column[places]
            return rows

        per_token = {f"token.{name}": padded(column) for name, column in self.per_token.items()}
        length = {"length": lengths.astype(np.uint16)}
        return {"tokens": padded(self.tokens), **length, **self._post_columns(), **per_token}

    def _post_columns(self) -> dict[str, NDArray[Any]]:
        """The columns with one value, or one row, for each post."""
        own = {f"post.{name}": column for name, column in self.per_post.items()}
        return {"user": self.user, "time": self.time, "words": self.words, **own}

    @classmethod
    def from_rows(cls, rows: Mapping[str, NDArray[Any]]) -> Self:
        """The batch that ``to_rows`` made rows of."""
        tokens, lengths = rows["tokens"], rows["length"].astype(np.int64)
        places, offsets = gather(np.arange(len(tokens)) * tokens.shape[1], lengths)
        rest = (rows["user"], rows["time"], rows["words"], _own(rows, "post."))
        per_token = {
            name: column.reshape(-1, *column.shape[2:])[places]
            for name, column in _own(rows, "token.").items()
        }
        return cls(tokens.reshape(-1)[places], offsets, *rest, per_token)


class UniformBatch(Batch):
    """A batch of posts of the same length: the tokens are a matrix with a row for each post."""

    @classmethod
    def from_matrix(
        cls, matrix: NDArray[Any], user: NDArray[Any], time: NDArray[Any], words: NDArray[Any]
    ) -> Self:
        """Posts from a matrix ``[posts, tokens]``, and whose, when and how long they are."""
        posts, width = matrix.shape
        offsets = np.arange(posts + 1, dtype=np.int64) * width
        return cls(matrix.reshape(-1), offsets, user, time, words)

    def select(self, indices: NDArray[np.integer]) -> Self:
        """The posts of these indices, in this order."""
        if not len(self):
            return self
        if self.per_post or self.per_token:
            return super().select(indices)
        matrix = self.tokens.reshape(len(self), -1)
        rest = (self.user[indices], self.time[indices], self.words[indices])
        return self.from_matrix(matrix[indices], *rest)

    def to_rows(self, max_tokens: int) -> dict[str, NDArray[Any]]:
        """Every column as an array with a row for each post; all have ``max_tokens`` tokens."""
        if self.per_token:
            return super().to_rows(max_tokens)
        return {"tokens": self.tokens.reshape(len(self), max_tokens), **self._post_columns()}

    @classmethod
    def from_rows(cls, rows: Mapping[str, NDArray[Any]]) -> Self:
        """The batch that ``to_rows`` made rows of."""
        if "length" in rows:
            return super().from_rows(rows)
        made = cls.from_matrix(*(rows[name] for name in ("tokens", "user", "time", "words")))
        per_post = _own(rows, "post.")
        return made.with_columns(per_post) if per_post else made


def _own(rows: Columns, prefix: str) -> dict[str, NDArray[Any]]:
    """The columns whose names begin with a prefix, by their names without it."""
    return {name[len(prefix) :]: rows[name] for name in rows if name.startswith(prefix)}


def _joined(tables: Sequence[Columns]) -> dict[str, NDArray[Any]]:
    """The columns that all tables have, one table after another."""
    names = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: np.concatenate([table[name] for table in tables]) for name in names}


def gather(
    starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the tokens of the posts at ``starts`` lie, and their offsets once side by side."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return places, offsets
