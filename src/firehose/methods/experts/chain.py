"""Earlier places by their contexts, the newest first: each place names the one before it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.compiled import compiled
from firehose.methods.experts.contexts import Contexts, mix_one
from firehose.methods.experts.ranks import Marked, Ranks, rank
from firehose.methods.experts.room import copied, with_room, zeros
from firehose.parallel.divided import Overlay, Share
from firehose.parallel.shards import Shards

NONE = -1
_HALF = np.uint64(32)
Places = NDArray[np.int64]
# Chains, for what is compiled: the newest place of each bucket, the one before every place, and the
# place of the first row of that; NONE after the last. Then the order, and whether they are by user;
# and which places have a row at all, where not all do.
Links = tuple[NDArray[np.int32], NDArray[np.int32], int, int, bool, Marked]


class Chain:
    """For every context of ``order`` pieces, the places where it stood, the newest first.

    A context shorter than that reaches back to <SOT>, and counts as one of its own. With
    ``by_user`` there is a chain for each user, and none for nobody. Contexts whose checksums fall
    into one bucket share a chain, so a place that is found has yet to be compared.

    Where tables are dealt out to processes, each has a share of the buckets, and all places of
    their chains. All of them call ``add`` with the same places, and ``newest`` with their own.
    """

    def __init__(self, order: int, by_user: bool, tokens_per_bucket: float) -> None:
        self.order, self.by_user = order, by_user
        self.tokens_per_bucket = tokens_per_bucket
        self.shards = Shards.here()
        self._heads = Share(self.shards, lambda: self.heads)
        self._earlier = Overlay(self.shards, self._rows)
        self.clear(0)

    def clear(self, tokens: int) -> None:
        """Forget all places; buckets for so many tokens."""
        self.buckets = max(int(tokens / self.tokens_per_bucket), 1024)
        self.heads = zeros(self.shards.room(self.buckets), np.int32)
        self.heads.fill(NONE)
        self.earlier = np.zeros(0, np.int32)  # of each place: the one before in the same bucket
        self.ranks = Ranks()  # of places after the first: those that have a row, where not all do
        self.first = 0  # the place that has the first row of ``earlier``
        self.end = 0  # after the last place

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self.heads.nbytes + self.earlier.nbytes + self.ranks.nbytes

    def is_crowded(self) -> bool:
        """Whether there are too few buckets for all the places."""
        return self.end - self.first > self.buckets * self.tokens_per_bucket

    def add(self, contexts: Contexts, places: Places) -> None:
        """Put places at the beginning of their chains; they come after all that are there."""
        buckets, places = self._chained(contexts, places)
        if not len(places):
            return
        if not self.end:
            self.first = int(places[0])
        self.end = int(places[-1]) + 1
        buckets, places = self._own(buckets, places)
        if self.shards.parts > 1:
            self.ranks.add(places - self.first, self.end - self.first)
        self.earlier = with_room(self.earlier, self._count())
        _link(self.links(), buckets, places)

    @contextmanager
    def without(self, contexts: Contexts, places: Places) -> Iterator[None]:
        """Inside, some places that were added are in no chain; nothing may be added meanwhile."""
        buckets, places = self._own(*self._chained(contexts, places))
        order = np.lexsort((places, buckets))
        buckets, places, links = buckets[order], places[order], self.links()
        later = _unlink(links, buckets, places)
        try:
            yield
        finally:
            _link_again(links, buckets, places, later)

    def _chained(self, contexts: Contexts, places: Places) -> tuple[Places, Places]:
        """The buckets of some places, and the places; nobody's have none where users count."""
        buckets = self._buckets(contexts)
        if not self.by_user:
            return buckets, places
        known = contexts.user >= 0
        return buckets[known], places[known]

    def _own(self, buckets: Places, places: Places) -> tuple[Places, Places]:
        """The buckets that are here, by where they are, and the places in them."""
        if self.shards.parts == 1:
            return buckets, places
        here = self.shards.mine(buckets)
        return buckets[here] // self.shards.parts, places[here]

    def _count(self) -> int:
        """How many rows there are here."""
        rows = self.end - self.first
        return rows if self.shards.parts == 1 else self.ranks.rank(rows)

    def newest(self, contexts: Contexts, most: int) -> Places:
        """The newest places of the chains of some contexts, [contexts, most], as ``walk`` has them.

        Each process follows the chains that are there for all others.
        """
        shards = self.shards
        buckets, own = shards.join(self._buckets(contexts))
        here = np.flatnonzero(shards.mine(buckets))
        walked = np.full((len(here), most), NONE, np.int64)
        walked[:, 0] = self.heads[buckets[here] // shards.parts]
        follow(self.links(), walked)
        found = np.zeros((len(buckets), most), np.int32)
        found[here] = walked - NONE
        return shards.combine(found)[own].astype(np.int64) + NONE

    def links(self) -> Links:
        """All chains, for what is compiled."""
        about = self.first, self.order, self.by_user
        return self.heads, self.earlier, *about, self.ranks.marked()

    def _buckets(self, contexts: Contexts) -> Places:
        keys = contexts.keys(self.order, self.by_user)[-1]
        buckets: Places = _bucket(keys, np.uint64(self.buckets)).astype(np.int64)
        return buckets

    def _rows(self, start: int, stop: int) -> NDArray[np.int32]:
        """Of some places after the first, the ones before; 0 for those that are not here."""
        if self.shards.parts == 1:
            return self.earlier[start:stop]
        rows = np.zeros(stop - start, np.int32)
        rows[self.ranks.among(start, stop)] = self.earlier[
            self.ranks.rank(start) : self.ranks.rank(stop)
        ]
        return rows

    def state(self) -> dict[str, Any]:
        """All arrays."""
        earlier = self._earlier.whole(self.end - self.first)
        return {"heads": self._heads.whole(self.buckets), "earlier": earlier, "first": self.first}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.buckets, self.first, earlier = len(state["heads"]), state["first"], state["earlier"]
        self.end = self.first + len(earlier) if len(earlier) else 0
        self.heads, self.ranks = copied(self.shards.part(state["heads"])), Ranks()
        if self.shards.parts > 1:
            here = np.zeros(len(earlier), bool)
            _find_all(self.heads, earlier, self.first, here)
            self.ranks.add(np.flatnonzero(here), len(earlier))
            earlier = earlier[here]
        self.earlier = copied(earlier)


def _bucket(key: Any, buckets: np.uint64) -> Any:
    return (key >> _HALF) * buckets >> _HALF


_bucket_of_one = compiled(_bucket)


@compiled
def head(links: Links, before: NDArray[np.int32], user: Places, place: int, back: int) -> np.int64:
    """The newest place of the chain of the context that stood so many pieces before a place."""
    heads, order, by_user = links[0], links[3], links[4]
    key = np.uint64(1)
    if by_user:
        key = mix_one(key, np.uint64(user[place]))
    for distance in range(back, back + order):
        key = mix_one(key, np.uint64(np.int64(before[distance, place])))
    return np.int64(heads[_bucket_of_one(key, np.uint64(len(heads)))])


@compiled
def row(links: Links, place: Any) -> Any:
    """Where the place before a place is told."""
    marked, after = links[5], place - links[2]
    return rank(marked, after) if len(marked[0]) else after


@compiled
def follow(links: Links, walked: Places) -> None:
    """Write the places that come after the first of each row of ``walked`` in its chain.

    A step along all chains comes before the next one, so that a processor fetches many at a time.
    """
    for step in range(1, walked.shape[1]):
        is_over = True
        for index in range(len(walked)):
            here = walked[index, step - 1]
            if here != NONE:
                here = np.int64(links[1][row(links, here)])
                is_over = False
            walked[index, step] = here
        if is_over:
            break


@compiled
def _link(links: Links, buckets: Places, places: Places) -> None:
    """Put places at the beginning of the chains of their buckets, one after another."""
    heads, earlier = links[0], links[1]
    for index in range(len(places)):
        earlier[row(links, places[index])] = heads[buckets[index]]
        heads[buckets[index]] = places[index]


@compiled
def _unlink(links: Links, buckets: Places, places: Places) -> Places:
    """Take places out of their chains; both arrays are in order of buckets, then of places.

    Returns what is needed to link them again: the place that came after each in its chain when it
    was taken out, NONE for the newest. The newest of a chain are taken out first.
    """
    heads, earlier = links[0], links[1]
    after = np.full(len(places), NONE, np.int64)
    left = len(places)
    while left:
        bucket, later = buckets[left - 1], np.int64(NONE)
        here = np.int64(heads[bucket])
        while left and buckets[left - 1] == bucket:
            before = np.int64(earlier[row(links, here)])
            if here != places[left - 1]:
                later = here
            else:
                left -= 1
                after[left] = later
                if later == NONE:
                    heads[bucket] = before
                else:
                    earlier[row(links, later)] = before
            here = before
    return after


@compiled
def _link_again(links: Links, buckets: Places, places: Places, after: Places) -> None:
    """Undo ``_unlink``: the last that was taken out comes first."""
    heads, earlier = links[0], links[1]
    for index in range(len(places)):
        if after[index] == NONE:
            heads[buckets[index]] = places[index]
        else:
            earlier[row(links, after[index])] = places[index]


@compiled
def _find_all(
    heads: NDArray[np.int32], earlier: NDArray[np.int32], first: int, found: NDArray[np.bool_]
) -> None:
    """Mark all places of the chains of some buckets."""
    for newest in heads:
        here = newest
        while here != NONE:
            found[here - first] = True
            here = earlier[here - first]
