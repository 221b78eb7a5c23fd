"""A memory of posts that predicts: what followed the same context before.

Everybody's posts are counted by contexts of one to three pieces, and found by longer ones, the
newest first; a user's own posts are found by contexts from one piece on. It is exact about what it
keeps, and keeps no more than it may.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from firehose.batch import Batch
from firehose.errors import FirehoseError
from firehose.methods.experts import Evidence, Expert
from firehose.methods.experts.chain import Chain
from firehose.methods.experts.contexts import Contexts, targets
from firehose.methods.experts.counts import Counts
from firehose.methods.experts.matches import look_back, mark_matches
from firehose.methods.experts.posts import Posts
from firehose.methods.step import Setup
from firehose.plugins import Choice

REACH = 16  # the longest match
COUNTED = 3  # everybody's contexts up to this order are counted
LONGER = (4, 5, 6, 8, 12, 16)  # everybody's matches of at least so many pieces have an opinion
OWN = (1, 2, 3, 4, 6)  # and the user's own
ORDERS = max(LONGER[0], COUNTED, OWN[0])  # pieces before a place that decide where it is found
AT_ONCE = 2048  # posts that are entered at once


class MemorySettings(Choice):
    """What is remembered, and how much of it."""

    kind: str = "memory"
    everybody: bool = True  # whether it speaks of what anybody wrote
    own: bool = True  # whether it speaks of what the user wrote
    min_users: int = Field(default=1, ge=1, le=16)  # everybody's words need so many writers
    per_user: int | None = Field(default=None, ge=0)  # a user's newest posts; None: all
    tokens: int | None = Field(default=None, ge=1)  # the newest of all; None: no limit
    matches: int = Field(default=32, ge=1, le=4096)  # of everybody that are looked at
    own_matches: int = Field(default=128, ge=1, le=4096)  # of the user


class Memory(Expert):
    """Remembers posts, and says what followed a context in them."""

    Settings = MemorySettings
    settings: MemorySettings
    reach = REACH
    leaves_out = True

    def __init__(self, settings: MemorySettings, setup: Setup) -> None:
        super().__init__(settings, setup)
        self._clear()
        orders = range(1, COUNTED + 1) if settings.everybody else ()
        names = [f"{how} {order}" for order in orders for how in ("all", "all, again")]
        if settings.everybody:
            names += [f"{how} {n}" for how in ("all", "all, newest") for n in LONGER]
        if settings.own:
            ways = ("own", "own, again", "own, newest")
            names += [f"{how} {n}" for how in ways for n in OWN]
        self.opinions = tuple(names)

    def _clear(self) -> None:
        """Remember nothing."""
        settings = self.settings
        self.posts = Posts(settings.per_user, settings.tokens)
        self.counts = [Counts(COUNTED, settings.min_users)] * settings.everybody
        longer = [Chain(LONGER[0], by_user=False, tokens_per_bucket=3)]
        own = [Chain(OWN[0], by_user=True, tokens_per_bucket=6)]
        self.longer, self.own = longer * settings.everybody, own * settings.own
        self.heard = self.counts, self.longer  # what others wrote, as far as it may be told

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        found = sum(chain.nbytes for chain in self._chains())
        return self.posts.nbytes + sum(counts.nbytes for counts in self.counts) + found

    def look(self, contexts: Contexts, pieces: NDArray[np.int64]) -> Evidence:
        """What followed the same contexts before."""
        told = _Told(pieces)
        for counts in self.heard[0]:
            seen = counts.look(contexts, pieces)
            for order in range(COUNTED):
                one = slice(order, order + 1)
                told.counts(seen.counts[one], seen.total[one], seen.different[one], again=True)
        for chain, most in self._searched():
            lengths, min_users = (OWN, 1) if chain.by_user else (LONGER, self.settings.min_users)
            found = look_back(chain, self.posts, contexts, pieces, lengths, most, min_users)
            told.counts(found.counts, found.total, found.different, again=chain.by_user)
            told.newest(found.newest, found.age)
            told.features.append(found.longest[None] / REACH)
        return told.evidence()

    def candidates(self, contexts: Contexts, pieces: int) -> NDArray[np.bool_]:
        """What followed the same contexts before."""
        found = np.zeros((len(contexts), pieces), bool)
        for counts in self.heard[0]:
            counts.mark(contexts, found)
        for chain, most in self._searched():
            mark_matches(chain, self.posts, contexts, most, found)
        return found

    def _searched(self) -> Iterator[tuple[Chain, int]]:
        """The chains that are looked at, and how many matches in each."""
        yield from ((chain, self.settings.matches) for chain in self.heard[1])
        yield from ((chain, self.settings.own_matches) for chain in self.own)

    def learn(self, batch: Batch) -> None:
        """Remember posts, and forget those that have to make room."""
        if not self.settings.everybody:  # posts of nobody are never looked at
            batch = batch.select(np.flatnonzero(batch.user >= 0))
        for start in range(0, len(batch), AT_ONCE):
            part = batch.select(np.arange(start, min(start + AT_ONCE, len(batch))))
            self._enter(part)
            self._leave(self.posts.surplus_of_users(part))
            self._leave(self.posts.surplus_in_all())
        if self.posts.removed > self.posts.size // 4:
            self.posts.compact()
            full = [counts for counts in self.counts if counts.is_full()]
            for counts in full:
                counts.clear()
            self._link(self._chains(), full)

    def _enter(self, batch: Batch) -> None:
        self.posts.add(batch)
        contexts, pieces = Contexts.of(batch, ORDERS), targets(batch)
        for counts in self.counts:
            counts.add(contexts, pieces)
        places = self.posts.places(np.arange(len(batch)) + self.posts.count - len(batch))
        for chain in self._chains():
            chain.add(contexts, places)
            if chain.is_crowded():
                self._link([chain])

    def _leave(self, posts: NDArray[np.int64]) -> None:
        if len(posts):
            gone = self.posts.batch(posts)
            contexts, pieces = Contexts.of(gone, ORDERS), targets(gone)
            for counts in self.counts:
                counts.remove(contexts, pieces)
            self.posts.remove(posts)

    def _link(self, chains: Sequence[Chain], counts: Sequence[Counts] = ()) -> None:
        """Make chains anew, with room for a quarter more, and count what there is."""
        for chain in chains:
            chain.clear(max((chain.end - chain.first) * 5 // 4, self.posts.size // 4))
        kept = np.flatnonzero(self.posts.kept[: self.posts.count])
        for start in range(0, len(kept), AT_ONCE):
            chosen = kept[start : start + AT_ONCE]
            batch = self.posts.batch(chosen)
            contexts, pieces = Contexts.of(batch, ORDERS), targets(batch)
            places = self.posts.places(chosen)
            for chain in chains:
                chain.add(contexts, places)
            for each in counts:
                each.add(contexts, pieces)

    @contextmanager
    def without(self, batch: Batch) -> Iterator[None]:
        """Inside, look as if these posts had never been learned; nothing may be learned meanwhile.

        Those that are not kept are nothing to leave out. How long ago others came stays as it is.
        """
        posts = self.posts.find(batch)
        gone, places = self.posts.batch(posts), self.posts.places(posts)
        contexts, pieces = Contexts.of(gone, ORDERS), targets(gone)
        with ExitStack() as stack:
            stack.enter_context(self.posts.without(posts))
            for counts in self.counts:
                stack.enter_context(counts.without(contexts, pieces, self.posts))
            for chain in self._chains():
                stack.enter_context(chain.without(contexts, places))
            yield

    def _chains(self) -> list[Chain]:
        return [*self.longer, *self.own]

    def forget(self, user: int) -> int:
        """Erase a user's posts; returns how many there were.

        All that is counted and found is made anew from the posts that stay, so that it is as if the
        user had never been there.
        """
        posts = self.posts.of_user(user)
        if not len(posts) and not self.posts.is_limited:
            return 0
        self.posts.remove(posts)
        self.posts.forget(user)
        self.posts.compact()
        for counts in self.counts:
            counts.clear()
        self._link(self._chains(), self.counts)
        return len(posts)

    def users(self) -> NDArray[np.int64]:
        """The numbers of the users whose posts are kept."""
        found = np.unique(self.posts.user[: self.posts.count][self.posts.kept[: self.posts.count]])
        return found[found >= 0].astype(np.int64)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Remember all posts anew, under other numbers of their users."""
        batch = self.posts.batch(np.flatnonzero(self.posts.kept[: self.posts.count]))
        user = np.array([numbers.get(user, user) for user in batch.user.tolist()], np.int32)
        is_silent = self.heard[0] is not self.counts
        self._clear()
        self.learn(replace(batch, user=user))
        if is_silent:
            self._silence()

    def protect(self, min_users: int) -> bool:
        """Be silent on what others wrote, if words of fewer users than that would be told."""
        is_safe = not self.settings.everybody or self.settings.min_users >= min_users
        if not is_safe:
            self._silence()
        return is_safe

    def _silence(self) -> None:
        """Answer as if nobody else had written anything; what is remembered stays as it is."""
        counts = [Counts(each.orders, each.min_users) for each in self.counts]
        longer = [Chain(each.order, False, each.tokens_per_bucket) for each in self.longer]
        self.heard = counts, longer

    def state(self) -> dict[str, Any]:
        """Posts, counts and chains."""
        found = {name: part.state() for name, part in self._parts()}
        return {"posts": self.posts.state(), **found}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        if "chains" in state:
            raise FirehoseError(
                "This memory was saved by an older version of Firehose; play the game again."
            )
        self.posts.restore(state["posts"])
        for name, part in self._parts():
            part.restore(state[name])

    def _parts(self) -> list[tuple[str, Counts | Chain]]:
        """What is kept beside the posts, by name."""
        parts: list[tuple[str, Counts | Chain]] = [("counts", each) for each in self.counts]
        parts += [("longer", chain) for chain in self.longer]
        return parts + [("own", chain) for chain in self.own]


class _Told:
    """Collects opinions and features, several of a kind at a time."""

    def __init__(self, pieces: NDArray[np.int64]) -> None:
        self.pieces = pieces
        nothing = np.zeros((0, *pieces.shape), np.float32)
        self.probability: list[NDArray[Any]] = [nothing]
        self.speaks: list[NDArray[np.bool_]] = [nothing[:, :, 0] > 0]
        self.features: list[NDArray[Any]] = [nothing[:, :, 0]]

    def counts(
        self,
        count: NDArray[np.int64],
        total: NDArray[np.int64],
        different: NDArray[np.int64],
        again: bool,
    ) -> None:
        """Relative frequencies; with ``again`` also those of all occurrences but the first.

        A mixture of the two is what absolute discounting makes of counts. ``count`` is [opinions,
        places, pieces], the others [opinions, places].
        """
        often = count.astype(np.float32)
        self._share(often, total)
        if again:
            self._share(np.maximum(often - 1, 0), total - different)
        self.features += [
            _log(total) / 4,
            _log(different) / 3,
            different / np.maximum(total, 1).astype(np.float32),
        ]

    def _share(self, count: NDArray[np.float32], total: NDArray[np.int64]) -> None:
        whole = np.maximum(total, 1).astype(np.float32)
        self.probability.append(count / whole[:, :, None])
        self.speaks.append(total > 0)

    def newest(self, piece: NDArray[np.int64], age: NDArray[np.int64]) -> None:
        """What followed last time, [opinions, places] both."""
        self.probability.append((piece[:, :, None] == self.pieces).astype(np.float32))
        self.speaks.append(piece >= 0)
        self.features.append(_log(age) / 8)

    def evidence(self) -> Evidence:
        """All of it."""
        return Evidence(
            np.concatenate(self.probability),
            np.concatenate(self.speaks),
            np.concatenate(self.features, dtype=np.float32),
        )


def _log(numbers: NDArray[np.int64]) -> NDArray[np.float32]:
    """log(1 + each number)."""
    return np.log((numbers + 1).astype(np.float32))
