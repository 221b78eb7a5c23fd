"""How often each piece followed each short context, over all users."""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.methods.buffers.storage import rank
from firehose.methods.experts.contexts import Contexts, Keys, mix
from firehose.methods.experts.table import NONE, Table

MOST = np.iinfo(np.uint16).max  # a count goes no further, nor does the total with it
_MARKS = 255  # users are told apart by as many marks: who shares one counts as the same

Numbers = NDArray[np.int64]


class Seen(NamedTuple):
    """What is known of the continuations of some contexts."""

    counts: NDArray[np.int64]  # [places, pieces], how often each piece followed
    total: NDArray[np.int64]  # [places], how often any did
    different: NDArray[np.int64]  # [places], how many different ones did


class Counts:
    """Counts of what followed contexts of ``order`` pieces.

    With ``min_users`` over 1, only continuations count that so many different users have written.
    Of who they are a mark of 8 bits is kept, and of no more than are needed: users who share a mark
    count as one, and so does everybody who is nobody.
    """

    def __init__(self, order: int, min_users: int = 1) -> None:
        self.order, self.min_users = order, min_users
        self.clear()

    def clear(self) -> None:
        """Forget all counts."""
        kept = range(self.min_users - 1)
        marks = {"users": np.uint8, **{f"mark {number}": np.uint8 for number in kept}}
        self.pairs = Table(marks if kept else {})  # the number of a row is its count
        self.contexts = Table({"total": np.uint32})  # that of different continuations

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self.pairs.nbytes + self.contexts.nbytes

    def look(self, contexts: Contexts, pieces: NDArray[np.int64]) -> Seen:
        """What followed these contexts; ``pieces`` [places, pieces] are those asked for."""
        keys = contexts.keys(self.order)
        known = self.contexts.find(keys)
        known[contexts.depth < self.order] = NONE
        total = self.contexts.get("total", known)
        count = np.zeros(pieces.shape, np.int64)
        asked = np.flatnonzero(total)
        slots = self.pairs.find(mix(keys[asked, None], pieces[asked]).ravel())
        count[asked] = self._spoken(slots).reshape(len(asked), pieces.shape[1])
        return Seen(count, total, self.contexts.numbers(known))

    def add(self, contexts: Contexts, pieces: NDArray[np.int64]) -> None:
        """Count the pieces that followed these contexts, one at each place."""
        places = np.flatnonzero(contexts.depth >= self.order)
        keys = contexts.keys(self.order)[places]
        pairs, index, number = _unique(mix(keys, pieces[places]))
        slots = self.pairs.enter(pairs)
        count, spoken = self.pairs.numbers(slots), self._spoken(slots)
        self.pairs.put_numbers(slots, np.minimum(count + number, MOST))
        if self.min_users > 1:
            self._mark(_user_pairs(self.pairs, keys, pieces[places], contexts.user[places]))
        self._settle(keys[index], spoken, self._spoken(slots))

    def remove(self, contexts: Contexts, pieces: NDArray[np.int64]) -> None:
        """Take counts back that were added for these places."""
        places = np.flatnonzero(contexts.depth >= self.order)
        keys = contexts.keys(self.order)[places]
        pairs, index, number = _unique(mix(keys, pieces[places]))
        slots = self.pairs.find(pairs)
        known = slots != NONE
        slots, index, number = slots[known], index[known], number[known]
        count, spoken = self.pairs.numbers(slots), self._spoken(slots)
        self.pairs.put_numbers(slots, np.maximum(count - number, 0))
        if self.min_users > 1:
            self._unmark(_user_pairs(self.pairs, keys, pieces[places], contexts.user[places]))
        self._settle(keys[index], spoken, self._spoken(slots))

    def _spoken(self, slots: NDArray[np.int64]) -> Numbers:
        """The counts that may be told; 0 where too few users have written a pair."""
        count = self.pairs.numbers(slots)
        if self.min_users > 1:
            count[self.pairs.get("users", slots) < self.min_users] = 0
        return count

    def _settle(self, keys: Keys, before: Numbers, after: Numbers) -> None:
        """Let the totals of contexts follow the counts of some of their pairs."""
        changed = before != after
        contexts, which = np.unique(keys[changed], return_inverse=True)
        slots, total = self.contexts.enter(contexts), self.contexts["total"]
        more = np.bincount(which, (after - before)[changed], len(contexts))
        total[slots] = (total[slots] + more.astype(np.int64)).astype(total.dtype)
        appeared = np.sign(after)[changed] - np.sign(before)[changed]
        others = np.bincount(which, appeared, len(contexts)).astype(np.int64)
        different = np.minimum(self.contexts.numbers(slots) + others, MOST)
        self.contexts.put_numbers(slots, different)

    def _mark(self, pairs: "UserPairs") -> None:
        """Note who has written these pairs, until enough different users have."""
        users = self.pairs["users"]
        for slots, mark in pairs.turns():
            here = users[slots]
            new = (here < self.min_users) & ~self._has_mark(slots, mark)
            for number in range(self.min_users - 1):
                free = slots[new & (here == number)]
                self.pairs[f"mark {number}"][free] = mark[new & (here == number)]
            users[slots[new]] += 1

    def _unmark(self, pairs: "UserPairs") -> None:
        """Take the marks of users away; one of several with a mark takes it for all of them.

        Who came when there were enough was not noted: where one leaves, only those count who were,
        and the others do so again when they write again. The safe answer is fewer.
        """
        users = self.pairs["users"]
        marks = [self.pairs[f"mark {number}"] for number in range(self.min_users - 1)]
        for slots, mark in pairs.turns():
            users[slots] = np.minimum(users[slots], len(marks))
            for number, column in enumerate(marks):
                same = slots[(column[slots] == mark) & (users[slots] > number)]
                for left, right in itertools.pairwise(marks[number:]):
                    left[same] = right[same]
                marks[-1][same] = 0
                users[same] -= 1

    def _has_mark(self, slots: NDArray[np.int64], mark: NDArray[np.uint8]) -> NDArray[np.bool_]:
        users, found = self.pairs["users"][slots], np.zeros(len(slots), bool)
        for number in range(self.min_users - 1):
            found |= (self.pairs[f"mark {number}"][slots] == mark) & (users > number)
        return found

    def state(self) -> dict[str, Any]:
        """Both tables."""
        return {"pairs": self.pairs.state(), "contexts": self.contexts.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.pairs.restore(state["pairs"])
        self.contexts.restore(state["contexts"])


class UserPairs(NamedTuple):
    """Who has written which pairs, each combination once."""

    slots: NDArray[np.int64]
    mark: NDArray[np.uint8]

    def turns(self) -> list["UserPairs"]:
        """The same in turns, in each of which a pair comes once."""
        turn = rank(self.slots)
        chosen = [turn == number for number in range(int(turn.max(initial=-1)) + 1)]
        return [UserPairs(self.slots[now], self.mark[now]) for now in chosen]


def _user_pairs(
    table: Table, keys: Keys, pieces: NDArray[np.int64], user: NDArray[np.int64]
) -> UserPairs:
    slots = table.find(mix(keys, pieces))
    mark = (mix(np.zeros(len(user), np.uint64), user) % np.uint64(_MARKS)).astype(np.int64)
    both = np.unique(slots[slots != NONE] * (_MARKS + 1) + mark[slots != NONE])
    return UserPairs(both // (_MARKS + 1), (both % (_MARKS + 1)).astype(np.uint8))


def _unique(keys: Keys) -> tuple[Keys, NDArray[np.int64], NDArray[np.int64]]:
    """Each checksum once, where it is, and how often."""
    order = np.argsort(keys)
    ordered = keys[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(keys)])
    return ordered[begins], order[begins], np.diff(begins, append=len(keys))
