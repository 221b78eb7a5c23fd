"""What a model pays for held-out posts, and what that is per word, per token, per user."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.data.corpus import Split
from firehose.models.personal import Personal
from firehose.progress import track

AT_ONCE = 128  # posts


class Sums(NamedTuple):
    """What the posts of each user come to."""

    users: NDArray[np.int64]  # [users], as the rest
    posts: NDArray[np.int64]
    nats: NDArray[np.float64]
    words: NDArray[np.int64]
    tokens: NDArray[np.int64]


class Costs(NamedTuple):
    """What each post cost, and what it is spread over."""

    nats: NDArray[np.float64]  # [posts], as the rest
    words: NDArray[np.int64]  # <EOT> included
    tokens: NDArray[np.int64]  # <SOT> not included: nothing predicts it
    user: NDArray[np.int64]
    time: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        posts: Split,
        nats: NDArray[np.floating],
        places: NDArray[np.int64] | None = None,
    ) -> Self:
        """What posts of a split cost: the first ones, or those at these places."""
        at = slice(len(nats)) if places is None else places
        words, user, time, tokens = (
            np.asarray(column[at], np.int64)
            for column in (posts.words, posts.user, posts.time, np.diff(posts.offsets) - 1)
        )
        return cls(np.asarray(nats, np.float64), words, tokens, user, time)

    def select(self, chosen: NDArray[np.bool_]) -> Self:
        """Some of the posts."""
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in self._fields}
        return self._replace(**columns)

    def per_word(self) -> float:
        """The perplexity per word, over all posts together."""
        return float(np.exp(self.nats.sum() / self.words.sum()))

    def per_token(self) -> float:
        """The perplexity per token, over all posts together."""
        return float(np.exp(self.nats.sum() / self.tokens.sum()))

    def by_user(self) -> Sums:
        """Add up the posts of each user."""
        users, which, posts = np.unique(self.user, return_inverse=True, return_counts=True)
        words, tokens = (
            np.bincount(which, column).astype(np.int64) for column in (self.words, self.tokens)
        )
        nats = np.bincount(which, self.nats).astype(np.float64)
        return Sums(users, posts, nats, words, tokens)

    def balanced(self) -> float:
        """The perplexity per word with every user counted alike, however much they write."""
        sums = self.by_user()
        return float(np.exp(np.mean(sums.nats / sums.words)))


def costs(
    model: Personal,
    posts: Split,
    doing: str = "scoring",
    writers: NDArray[np.int64] | None = None,
    places: NDArray[np.int64] | None = None,
) -> Costs:
    """Let the model pay for every post of a split, or for those at some places.

    ``writers`` may stand in for who wrote them.
    """
    chosen = np.arange(len(posts)) if places is None else places
    starts = range(0, len(chosen), AT_ONCE)
    nats = []
    for start in track(starts, len(starts), doing):
        batch = posts.batch(chosen[start : start + AT_ONCE])
        if writers is not None:
            user = writers[start : start + AT_ONCE].astype(np.int32)
            batch = Batch(batch.tokens, batch.offsets, user, batch.time, batch.words)
        nats.append(model.pay(batch).nats)
    return Costs.of(posts, np.concatenate(nats) if nats else np.zeros(0), places)
