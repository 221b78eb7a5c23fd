"""How often each piece followed each short context, over all users."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.compiled import compiled
from firehose.methods.experts.contexts import Contexts, Keys, mix, mix_one
from firehose.methods.experts.posts import Posts
from firehose.methods.experts.table import (
    LANES,
    NUMBER,
    Table,
    Words,
    enter,
    enter_one,
    locate,
)
from firehose.methods.experts.walk import Kept
from firehose.parallel.shards import Shards

# A count goes no further, nor does the total with it. It stays there when posts leave, until all is
# counted anew: how far it would have gone is not known.
MOST = 65535
_MARKS = 255  # users are told apart by as many marks: who shares one counts as the same

Numbers = NDArray[np.int64]
Marks = NDArray[np.uint8]
# The arrays of both tables, for what is compiled. Of pairs of a context and a piece that followed,
# whose numbers say how often: how many users have written them, as far as they are counted, and who
# they are, [pairs, min_users − 1]. Of contexts, whose numbers say how many different pieces
# followed: how often any piece did.
Tables = tuple[Words, Marks, Marks, Words, NDArray[np.uint32]]


class Seen(NamedTuple):
    """What is known of the continuations of some contexts, order by order."""

    counts: Numbers  # [orders, places, pieces], how often each piece followed
    total: Numbers  # [orders, places], how often any did
    different: Numbers  # [orders, places], how many different ones did


class Counts:
    """Counts of what followed contexts of 1, 2, … ``orders`` pieces.

    With ``min_users`` over 1, only continuations count that so many different users have written.
    Of who they are a mark of 8 bits is kept, and of no more than are needed: users who share a mark
    count as one, and so does everybody who is nobody.

    Where tables are dealt out to processes, each counts the pairs and the contexts whose checksums
    are its own. All of them call ``add`` with the same places, and ``look`` with their own.
    """

    def __init__(self, orders: int, min_users: int = 1) -> None:
        self.orders, self.min_users = orders, min_users
        self.shards = Shards.here()
        self.clear()

    def clear(self) -> None:
        """Forget all counts."""
        kept = self.min_users - 1
        marks = {"users": np.dtype(np.uint8), "marks": np.dtype((np.uint8, (kept,)))}
        # The number of a row is its count, and that of different continuations.
        self.pairs = Table(marks if kept else {}, self.shards)
        self.contexts = Table({"total": np.uint32}, self.shards)

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self.pairs.nbytes + self.contexts.nbytes

    def look(self, contexts: Contexts, pieces: NDArray[np.int64]) -> Seen:
        """What followed these contexts; ``pieces`` [places, pieces] are those asked for."""
        keys = contexts.keys(self.orders)[1:]
        if self.shards.parts > 1:
            return self._look_everywhere(keys, contexts.depth, pieces)
        return Seen(*_look(self._tables(), keys, contexts.depth, pieces))

    def _look_everywhere(self, keys: Keys, depth: Numbers, pieces: Numbers) -> Seen:
        """The same, as each process finds the rows that are there for all others."""
        orders, width = len(keys), pieces.shape[1]
        asked, own = self.shards.join(np.hstack([keys.T.view(np.int64), pieces]))
        key = np.ascontiguousarray(asked[:, :orders]).view(np.uint64)
        pair = mix(key[:, :, None], asked[:, None, orders:])
        found = np.zeros((len(asked), orders, 2 + width), np.int64)
        is_here = self.contexts.mine(key)
        found[is_here, :2] = _look_contexts(self._tables(), key[is_here])
        is_here = self.pairs.mine(pair)
        found[:, :, 2:][is_here] = _look_pairs(self._tables(), pair[is_here])
        found = self.shards.combine(found)[own]
        found[depth[:, None] <= np.arange(orders)] = 0
        total, different = found[:, :, 0].T, found[:, :, 1].T
        return Seen(found[:, :, 2:].transpose(1, 0, 2), total, different)

    def mark(self, contexts: Contexts, found: NDArray[np.bool_]) -> None:
        """Set ``found`` [places, pieces] for all pieces that followed these contexts."""
        keys = contexts.keys(self.orders)[1:]
        _mark_followers(self._tables(), keys, contexts.depth, found)

    def add(self, contexts: Contexts, pieces: NDArray[np.int64]) -> None:
        """Count the pieces that followed these contexts, one at each place."""
        self._count(contexts, pieces, 1)

    def remove(self, contexts: Contexts, pieces: NDArray[np.int64]) -> None:
        """Take counts back that were added for these places."""
        self._count(contexts, pieces, -1)

    def is_full(self) -> bool:
        """Whether a count has gone as far as it can, and may be too large or too small by now."""
        full = np.array([bool(((self.pairs.words & NUMBER) == MOST).any())], np.int64)
        return bool(self.shards.combine(full)[0])

    def _count(self, contexts: Contexts, pieces: NDArray[np.int64], change: int) -> None:
        pairs, keys, marks = self._pairs(contexts, pieces)
        here = self.pairs.mine(pairs)
        self.pairs.make_room(int(here.sum()))
        changes = np.zeros((len(keys), 2), np.int64)
        changes[here], new = _count_pairs(self._tables(), pairs[here], marks[here], change)
        self.pairs.used += new
        changes = self.shards.combine(changes)
        here = self.contexts.mine(keys)
        self.contexts.make_room(int(here.sum()))
        self.contexts.used += _count_contexts(self._tables(), keys[here], changes[here])

    def _pairs(self, contexts: Contexts, pieces: NDArray[np.int64]) -> tuple[Keys, Keys, Marks]:
        """Pairs of contexts and the pieces that followed, order by order.

        These are the checksums of the pairs, those of the contexts, and the marks of the users.
        """
        keys = contexts.keys(self.orders)[1:]
        is_there = contexts.depth > np.arange(self.orders)[:, None]
        mark = mix(np.zeros(len(contexts), np.uint64), contexts.user) % np.uint64(_MARKS)
        marks = np.broadcast_to(mark.astype(np.uint8), keys.shape)[is_there]
        pairs = mix(keys, np.broadcast_to(pieces, keys.shape))[is_there]
        return pairs, keys[is_there], marks

    @contextmanager
    def without(
        self, contexts: Contexts, pieces: NDArray[np.int64], posts: Posts
    ) -> Iterator[None]:
        """Inside, these places that were added do not count; nothing may be added meanwhile.

        ``posts`` are all others, which say who is left where several users are needed.
        """
        pairs, keys, _ = self._pairs(contexts, pieces)
        changes, here = np.zeros((len(keys), 2), np.int64), self.pairs.mine(pairs)
        with self.pairs.put_back(pairs[here]), self.contexts.put_back(keys):
            enough = self._have_enough(pairs[here], posts)
            changes[here] = _leave_out(self._tables(), pairs[here], enough)
            changes, here = self.shards.combine(changes), self.contexts.mine(keys)
            _count_contexts(self._tables(), keys[here], changes[here])
            yield

    def _have_enough(self, pairs: Keys, posts: Posts) -> NDArray[np.bool_]:
        """Which pairs so many users have written in some posts as are needed."""
        if self.min_users == 1:
            return np.ones(len(pairs), bool)
        found = Table(self.pairs.kinds)
        found.make_room(len(pairs))
        slots, _ = enter(found.words, pairs)
        tables = found.words, found["users"], found["marks"]
        _count_users(tables, (posts.tokens, posts.owner, posts.size), self.orders)
        is_enough: NDArray[np.bool_] = found["users"][slots] >= self.min_users
        return is_enough

    def _tables(self) -> Tables:
        pairs, contexts = self.pairs, self.contexts
        columns = pairs.columns or {"users": _NO_USERS, "marks": _NO_MARKS}
        return pairs.words, columns["users"], columns["marks"], contexts.words, contexts["total"]

    def state(self) -> dict[str, Any]:
        """Both tables."""
        return {"pairs": self.pairs.state(), "contexts": self.contexts.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.pairs.restore(state["pairs"])
        self.contexts.restore(state["contexts"])


_NO_USERS, _NO_MARKS = np.zeros(0, np.uint8), np.zeros((0, 0), np.uint8)


@compiled
def _number(words: Words, slot: int) -> Any:
    return np.int64(words[slot // LANES, slot % LANES] & NUMBER)


@compiled
def _put_number(words: Words, slot: int, number: int) -> None:
    word = words[slot // LANES, slot % LANES]
    words[slot // LANES, slot % LANES] = (word & ~NUMBER) | np.uint64(number)


@compiled
def _told(pairs: Words, users: Marks, marks: Marks, slot: int) -> Any:
    """The count that may be told: 0 where too few users have written the pair."""
    needed = marks.shape[1]  # beside the first
    if needed and users[slot] <= needed:
        return 0
    return _number(pairs, slot)


@compiled
def _mark(users: Marks, marks: Marks, slot: int, mark: int) -> None:
    """Note who has written a pair, until enough different users have."""
    known, most = users[slot], marks.shape[1]
    for number in range(min(known, most)):
        if marks[slot, number] == mark:
            return
    if known < most:
        marks[slot, known] = mark
    if known <= most:
        users[slot] = known + 1


@compiled
def _unmark(users: Marks, marks: Marks, slot: int, mark: int) -> None:
    """Take the mark of a user away; one of several with a mark takes it for all of them.

    Who came when there were enough was not noted: where one leaves, only those count who were, and
    the others do so again when they write again. The safe answer is fewer.
    """
    kept = 0
    for number in range(min(users[slot], marks.shape[1])):
        if marks[slot, number] != mark:
            marks[slot, kept] = marks[slot, number]
            kept += 1
    marks[slot, kept:] = 0
    users[slot] = kept


@compiled
def _count_pairs(tables: Tables, keys: Keys, mark: Marks, change: int) -> tuple[Numbers, int]:
    """Count pairs once more, or once less; returns what changes, and how many pairs are new.

    For the context of each that is how much more often any piece followed, and how many more
    different ones did, [pairs, 2], as far as it may be told.
    """
    pairs, users, marks, _, _ = tables
    changes, new = np.empty((len(keys), 2), np.int64), 0
    for row in range(len(keys)):
        slot, is_new = enter_one(pairs, keys[row])
        new += is_new
        before = _told(pairs, users, marks, slot)
        number = _number(pairs, slot)
        if number < MOST:
            _put_number(pairs, slot, max(number + change, 0))
        if len(users) and change > 0:
            _mark(users, marks, slot, mark[row])
        elif len(users):
            _unmark(users, marks, slot, mark[row])
        after = _told(pairs, users, marks, slot)
        changes[row, 0], changes[row, 1] = after - before, (after > 0) - (before > 0)
    return changes, new


@compiled
def _leave_out(tables: Tables, keys: Keys, enough: NDArray[np.bool_]) -> Numbers:
    """Count pairs once less; those that have not enough users without may not be told.

    Returns what changes for their contexts, as ``_count_pairs`` does.
    """
    pairs, users, marks, _, _ = tables
    changes = np.zeros((len(keys), 2), np.int64)
    for row in range(len(keys)):
        slot, is_known = locate(pairs, keys[row])
        if not is_known:
            continue
        before, number = _told(pairs, users, marks, slot), _number(pairs, slot)
        if number < MOST:
            _put_number(pairs, slot, max(number - 1, 0))
        if not enough[row]:
            users[slot] = min(users[slot], marks.shape[1])
        after = _told(pairs, users, marks, slot)
        changes[row, 0], changes[row, 1] = after - before, (after > 0) - (before > 0)
    return changes


@compiled
def _count_users(tables: tuple[Words, Marks, Marks], posts: Kept, orders: int) -> None:
    """Note who has written the pairs that have a row, in all posts, until enough users have."""
    pairs, users, marks = tables
    tokens, owner, size = posts
    depth = 0
    for place in range(size):
        depth = depth + 1 if owner[place] else 0  # who is nobody is 1
        user = np.uint64(np.int64(owner[place]) - 2)
        mark = mix_one(np.uint64(0), user) % np.uint64(_MARKS)
        key = np.uint64(1)
        for order in range(min(orders, depth)):
            key = mix_one(key, np.uint64(np.int64(tokens[place - 1 - order]) - 1))
            pair = mix_one(key, np.uint64(np.int64(tokens[place]) - 1))
            slot, is_known = locate(pairs, pair)
            if is_known:
                _mark(users, marks, slot, mark)


@compiled
def _count_contexts(tables: Tables, keys: Keys, changes: Numbers) -> int:
    """Change the totals of contexts as their pairs have; returns how many contexts are new."""
    contexts, total, new = tables[3], tables[4], 0
    for row in range(len(keys)):
        if not changes[row, 0]:
            continue
        slot, is_new = enter_one(contexts, keys[row])
        new += is_new
        total[slot] = total[slot] + changes[row, 0]
        different = _number(contexts, slot) + changes[row, 1]
        _put_number(contexts, slot, min(max(different, 0), MOST))
    return new


@compiled
def _look_contexts(tables: Tables, keys: Keys) -> Numbers:
    """How often any piece followed contexts, and how many different ones did, [contexts, 2]."""
    contexts, total = tables[3], tables[4]
    found = np.zeros((len(keys), 2), np.int64)
    for row in range(len(keys)):
        slot, is_known = locate(contexts, keys[row])
        if is_known and total[slot]:
            found[row, 0], found[row, 1] = total[slot], _number(contexts, slot)
    return found


@compiled
def _look_pairs(tables: Tables, keys: Keys) -> Numbers:
    """How often the pieces of pairs followed their contexts."""
    pairs, users, marks, _, _ = tables
    counts = np.zeros(len(keys), np.int64)
    for row in range(len(keys)):
        slot, is_known = locate(pairs, keys[row])
        if is_known:
            counts[row] = _told(pairs, users, marks, slot)
    return counts


@compiled
def _look(
    tables: Tables, keys: Keys, depth: Numbers, pieces: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """The counts, totals and numbers of different continuations of ``Seen``."""
    pairs, users, marks, contexts, total = tables
    orders, places = keys.shape
    counts = np.zeros((orders, places, pieces.shape[1]), np.int64)
    totals, different = np.zeros((orders, places), np.int64), np.zeros((orders, places), np.int64)
    for order in range(orders):
        for place in range(places):
            slot, is_known = locate(contexts, keys[order, place])
            if depth[place] <= order or not is_known or not total[slot]:
                continue
            totals[order, place] = total[slot]
            different[order, place] = _number(contexts, slot)
            left = different[order, place]
            for index in range(pieces.shape[1]):
                key = mix_one(keys[order, place], np.uint64(pieces[place, index]))
                slot, is_known = locate(pairs, key)
                if is_known:
                    counts[order, place, index] = _told(pairs, users, marks, slot)
                    left -= counts[order, place, index] > 0
                if not left:
                    break  # all that followed was found
    return counts, totals, different


@compiled
def _mark_followers(tables: Tables, keys: Keys, depth: Numbers, found: NDArray[np.bool_]) -> None:
    """Set ``found`` for the pieces that followed."""
    pairs, users, marks, contexts, total = tables
    orders, places = keys.shape
    for order in range(orders):
        for place in range(places):
            slot, is_known = locate(contexts, keys[order, place])
            if depth[place] <= order or not is_known or not total[slot]:
                continue
            left = _number(contexts, slot)
            for piece in range(found.shape[1]):
                key = mix_one(keys[order, place], np.uint64(piece))
                slot, is_known = locate(pairs, key)
                if is_known and _told(pairs, users, marks, slot):
                    found[place, piece] = True
                    left -= 1
                if not left:
                    break  # all that followed was found
