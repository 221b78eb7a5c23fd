"""Earlier places by their contexts, the newest first: each place names the one before it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.posts import GROWTH

NONE = -1
_HALF = np.uint64(32)
Places = NDArray[np.int64]


class Chain:
    """For every context of ``order`` pieces, the places where it stood, the newest first.

    A context shorter than that reaches back to <SOT>, and counts as one of its own. With
    ``by_user`` there is a chain for each user. Contexts whose checksums fall into one bucket share
    a chain, so a place that is found has yet to be compared.
    """

    def __init__(self, order: int, by_user: bool, tokens_per_bucket: int) -> None:
        self.order, self.by_user = order, by_user
        self.tokens_per_bucket = tokens_per_bucket
        self.clear(0)

    def clear(self, tokens: int) -> None:
        """Forget all places; buckets for so many tokens."""
        self.heads = np.full(max(tokens // self.tokens_per_bucket, 1024), NONE, np.int32)
        self.earlier = np.full(0, NONE, np.int32)  # the place before each, in the same bucket

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self.heads.nbytes + self.earlier.nbytes

    def is_crowded(self, tokens: int) -> bool:
        """Whether there are too few buckets for so many tokens."""
        return tokens > len(self.heads) * self.tokens_per_bucket

    def add(self, contexts: Contexts, places: Places) -> None:
        """Put places at the beginning of their chains; later ones come first."""
        if self.by_user:
            known = contexts.user >= 0
            places, buckets = places[known], self._buckets(contexts)[known]
        else:
            buckets = self._buckets(contexts)
        if not len(places):
            return
        if (needed := int(places[-1]) + 1) > len(self.earlier):
            room = np.full(max(needed, int(len(self.earlier) * GROWTH)), NONE, np.int32)
            room[: len(self.earlier)] = self.earlier
            self.earlier = room
        order = np.argsort(buckets, kind="stable")
        bucket, place = buckets[order], places[order].astype(np.int32)
        first = np.append(True, bucket[1:] != bucket[:-1])
        before = np.append(np.int32(NONE), place[:-1])
        before[first] = self.heads[bucket[first]]
        self.earlier[place] = before
        last = np.append(first[1:], True)
        self.heads[bucket[last]] = place[last]

    def walk(self, contexts: Contexts, most: int) -> NDArray[np.int32]:
        """Up to ``most`` places for each context, ``[most, contexts]``; NONE beyond the last."""
        found = np.full((most, len(contexts)), NONE, np.int32)
        here = self.heads[self._buckets(contexts)]
        going = np.flatnonzero(here != NONE)
        here = here[going]
        for step in range(most):
            found[step, going] = here
            here = self.earlier[here]
            left = here != NONE
            going, here = going[left], here[left]
            if not len(going):
                break
        return found

    def _buckets(self, contexts: Contexts) -> Places:
        keys = contexts.keys(self.order, self.by_user)
        return ((keys >> _HALF) * np.uint64(len(self.heads)) >> _HALF).astype(np.int64)

    def state(self) -> dict[str, Any]:
        """All arrays."""
        return {"heads": self.heads, "earlier": self.earlier}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.heads, self.earlier = state["heads"].copy(), state["earlier"].copy()
