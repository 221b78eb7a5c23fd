"""Earlier places by their contexts, the newest first: each place names the one before it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.compiled import compiled
from firehose.methods.experts.contexts import Contexts, mix_one
from firehose.methods.experts.room import copied, with_room, zeros

NONE = -1
_HALF = np.uint64(32)
Places = NDArray[np.int64]
# Chains, for what is compiled: the newest place of each bucket, the one before every place, and the
# place of the first row of that; NONE after the last. Then the order, and whether they are by user.
Links = tuple[NDArray[np.int32], NDArray[np.int32], int, int, bool]


class Chain:
    """For every context of ``order`` pieces, the places where it stood, the newest first.

    A context shorter than that reaches back to <SOT>, and counts as one of its own. With
    ``by_user`` there is a chain for each user, and none for nobody. Contexts whose checksums fall
    into one bucket share a chain, so a place that is found has yet to be compared.
    """

    def __init__(self, order: int, by_user: bool, tokens_per_bucket: float) -> None:
        self.order, self.by_user = order, by_user
        self.tokens_per_bucket = tokens_per_bucket
        self.clear(0)

    def clear(self, tokens: int) -> None:
        """Forget all places; buckets for so many tokens."""
        self.heads = zeros(max(int(tokens / self.tokens_per_bucket), 1024), np.int32)
        self.heads.fill(NONE)
        self.earlier = np.zeros(0, np.int32)  # of each place: the one before in the same bucket
        self.first = 0  # the place that has the first row of ``earlier``
        self.end = 0  # after the last place

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self.heads.nbytes + self.earlier.nbytes

    def is_crowded(self) -> bool:
        """Whether there are too few buckets for all the places."""
        return self.end - self.first > len(self.heads) * self.tokens_per_bucket

    def add(self, contexts: Contexts, places: Places) -> None:
        """Put places at the beginning of their chains; they come after all that are there."""
        buckets = self._buckets(contexts)
        if self.by_user:
            known = contexts.user >= 0
            places, buckets = places[known], buckets[known]
        if not len(places):
            return
        if not self.end:
            self.first = int(places[0])
        self.end = int(places[-1]) + 1
        self.earlier = with_room(self.earlier, self.end - self.first)
        _link(self.heads, self.earlier, self.first, buckets, places)

    def links(self) -> Links:
        """All chains, for what is compiled."""
        return self.heads, self.earlier, self.first, self.order, self.by_user

    def _buckets(self, contexts: Contexts) -> Places:
        keys = contexts.keys(self.order, self.by_user)[-1]
        buckets: Places = _bucket(keys, np.uint64(len(self.heads))).astype(np.int64)
        return buckets

    def state(self) -> dict[str, Any]:
        """All arrays."""
        earlier = self.earlier[: self.end - self.first]
        return {"heads": self.heads, "earlier": earlier, "first": self.first}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.heads, self.earlier = copied(state["heads"]), copied(state["earlier"])
        self.first = state["first"]
        self.end = self.first + len(self.earlier) if len(self.earlier) else 0


def _bucket(key: Any, buckets: np.uint64) -> Any:
    return (key >> _HALF) * buckets >> _HALF


_bucket_of_one = compiled(_bucket)


@compiled
def head(links: Links, before: NDArray[np.int32], user: Places, place: int, back: int) -> np.int64:
    """The newest place of the chain of the context that stood so many pieces before a place."""
    heads, _, _, order, by_user = links
    key = np.uint64(1)
    if by_user:
        key = mix_one(key, np.uint64(user[place]))
    for distance in range(back, back + order):
        key = mix_one(key, np.uint64(np.int64(before[distance, place])))
    return np.int64(heads[_bucket_of_one(key, np.uint64(len(heads)))])


@compiled
def _link(
    heads: NDArray[np.int32],
    earlier: NDArray[np.int32],
    first: int,
    buckets: Places,
    places: Places,
) -> None:
    """Put places at the beginning of the chains of their buckets, one after another."""
    for index in range(len(places)):
        earlier[places[index] - first] = heads[buckets[index]]
        heads[buckets[index]] = places[index]
