"""The posts that a memory keeps, side by side in one array, and when one of them has to leave."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch, gather
from firehose.methods.buffers.storage import rank
from firehose.methods.experts.room import copied, with_room
from firehose.optim.rows import UserIndex

BLOCK = 4096  # posts that are looked through at a time
PER_TOKEN = ("tokens", "owner")
PER_POST = ("start", "length", "user", "kept")
Indices = NDArray[np.int64]


class Posts:
    """Posts in the order in which they came; a place is an index into all their tokens.

    What was removed leaves zeros behind until ``compact`` closes the gaps. With ``per_user`` no
    user has more posts than that, and with ``tokens`` there are no more in all.
    """

    def __init__(self, per_user: int | None = None, tokens: int | None = None) -> None:
        self.per_user, self.most = per_user, tokens
        self.tokens = np.zeros(0, np.uint16)  # a piece plus 1, so that 0 is none
        self.owner = np.zeros(0, np.uint16)  # of each token: the user plus 2; 0: <SOT>, or none
        self.size = 0  # tokens in use
        self.start = np.zeros(0, np.int64)  # of each post
        self.length = np.zeros(0, np.int32)  # of each post, in tokens
        self.user = np.zeros(0, np.int32)  # of each post
        self.kept = np.zeros(0, bool)  # whether a post is still there
        self.count = 0  # posts, with those that were removed
        self.removed = 0  # tokens
        self.first = 0  # no post before this one is still there
        self.writers = UserIndex()
        self.newest = np.full((0, per_user or 0), -1, np.int32)  # a ring of posts for each user
        self.written = np.zeros(0, np.int64)  # posts of each user so far

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        names = (*PER_TOKEN, *PER_POST, "newest", "written")
        return sum(getattr(self, name).nbytes for name in names)

    @property
    def is_limited(self) -> bool:
        """Whether posts have to leave at some time."""
        return self.per_user is not None or self.most is not None

    def __len__(self) -> int:
        return int(self.kept[: self.count].sum())

    def add(self, batch: Batch) -> NDArray[np.int64]:
        """Put posts at the end; returns the place of the first token of each."""
        size, count = len(batch.tokens), len(batch)
        self.tokens = with_room(self.tokens, self.size + size, int(batch.tokens.max(initial=0)) + 1)
        self.owner = with_room(self.owner, self.size + size, int(batch.user.max(initial=0)) + 2)
        for name in PER_POST:
            setattr(self, name, with_room(getattr(self, name), self.count + count))
        here = slice(self.size, self.size + size)
        self.tokens[here] = batch.tokens.astype(self.tokens.dtype) + 1
        self.owner[here] = np.repeat(batch.user + 2, batch.lengths)
        self.owner[batch.offsets[:-1] + self.size] = 0  # nothing predicts it
        posts = slice(self.count, self.count + count)
        self.start[posts] = batch.offsets[:-1] + self.size
        self.length[posts], self.user[posts] = batch.lengths, batch.user
        self.kept[posts] = True
        self.size, self.count = self.size + size, self.count + count
        return self.start[posts]

    def surplus_of_users(self, batch: Batch) -> Indices:
        """The oldest posts of users who have more than they may, now that a batch was added last.

        Nobody's posts are not limited. Whoever asks has to remove them.
        """
        if self.per_user is None:
            return np.zeros(0, np.int64)
        known = np.flatnonzero(batch.user >= 0)
        user, posts = batch.user[known], known + self.count - len(batch)
        if not self.per_user:
            return posts
        rows = self.writers.meet(user)
        if len(self.writers) > len(self.newest):
            more = len(self.writers) - len(self.newest)
            blank = np.full((more, self.per_user), -1, np.int32)
            self.newest = np.concatenate([self.newest, blank])
            self.written = np.concatenate([self.written, np.zeros(more, np.int64)])
        leaving, turns = [np.zeros(0, np.int64)], rank(rows)
        for turn in range(int(turns.max(initial=-1)) + 1):
            row, post = rows[turns == turn], posts[turns == turn]
            slot = self.written[row] % self.per_user
            leaving.append(self.newest[row, slot].astype(np.int64))
            self.newest[row, slot] = post
            self.written[row] += 1
        gone = np.concatenate(leaving)
        gone = gone[gone >= 0]
        return np.sort(gone[self.kept[gone]])

    def surplus_in_all(self) -> Indices:
        """The oldest posts, as many as have to leave for no more tokens than there may be."""
        leaving = [np.zeros(0, np.int64)]
        tokens = 0 if self.most is None else self.size - self.removed - self.most
        while tokens > 0:
            block = slice(self.first, min(self.first + BLOCK, self.count))
            kept = np.flatnonzero(self.kept[block]) + self.first
            through = np.cumsum(self.length[kept])
            oldest = kept[through - self.length[kept] < tokens]
            self.first = int(oldest[-1]) + 1 if len(oldest) < len(kept) else block.stop
            tokens -= int(self.length[oldest].sum())
            leaving.append(oldest)
        return np.concatenate(leaving)

    def of_user(self, user: int) -> Indices:
        """The posts of a user."""
        return np.flatnonzero(self.kept[: self.count] & (self.user[: self.count] == user))

    def find(self, batch: Batch) -> Indices:
        """The posts of a batch that are kept: those of the same users with the same tokens.

        Where several are alike, the oldest, as many as the batch has.
        """
        here = slice(self.count)
        likely = self.kept[here] & np.isin(
            _user_and_length(self.user[here], self.length[here]),
            _user_and_length(batch.user, batch.lengths),
        )
        wanted, found = Counter(_texts(batch)), []
        posts = np.flatnonzero(likely)
        for post, text in zip(posts.tolist(), _texts(self.batch(posts)), strict=True):
            if wanted[text]:
                wanted[text] -= 1
                found.append(post)
        return np.array(found, np.int64)

    @contextmanager
    def without(self, posts: Indices) -> Iterator[None]:
        """Inside, these posts are not kept, and their tokens are none."""
        places, _ = gather(self.start[posts], self.length[posts].astype(np.int64))
        tokens, owner = self.tokens[places], self.owner[places]
        self.tokens[places], self.owner[places], self.kept[posts] = 0, 0, False
        try:
            yield
        finally:
            self.tokens[places], self.owner[places], self.kept[posts] = tokens, owner, True

    def batch(self, posts: Indices) -> Batch:
        """These posts."""
        places, offsets = gather(self.start[posts], self.length[posts].astype(np.int64))
        tokens = self.tokens[places] - 1
        blank = np.zeros(len(posts), np.int64)
        return Batch(tokens, offsets, self.user[posts], blank, blank.astype(np.int32))

    def places(self, posts: Indices) -> NDArray[np.int64]:
        """The places of these posts at which something is predicted: all but the first of each."""
        places, _ = gather(self.start[posts] + 1, self.length[posts].astype(np.int64) - 1)
        return places

    def remove(self, posts: Indices) -> None:
        """Erase the tokens of these posts, and whose they were."""
        places, _ = gather(self.start[posts], self.length[posts].astype(np.int64))
        self.tokens[places], self.owner[places] = 0, 0
        self.kept[posts], self.user[posts] = False, -1
        self.removed += len(places)

    def forget(self, user: int) -> None:
        """Erase the number of a user, whose posts were removed, and the count of posts."""
        if self.per_user is None:
            return
        row = int(self.writers.rows(np.array([user]))[0])
        if row >= 0:
            last = len(self.writers) - 1
            self.newest[row], self.written[row] = self.newest[last], self.written[last]
            self.newest[last], self.written[last] = -1, 0
            self.writers.remove(user)
            self.newest, self.written = self.newest[:last], self.written[:last]

    def compact(self) -> None:
        """Close the gaps that removed posts have left; places change."""
        posts = np.flatnonzero(self.kept[: self.count])
        number = np.full(self.count + 1, -1, np.int32)  # the last is that of no post
        number[posts] = np.arange(len(posts))
        self.newest = number[self.newest]
        end = 0
        for first in range(0, len(posts), BLOCK):
            chosen = posts[first : first + BLOCK]
            places, _ = gather(self.start[chosen], self.length[chosen].astype(np.int64))
            for name in PER_TOKEN:
                column = getattr(self, name)
                column[end : end + len(places)] = column[places]
            end += len(places)
        for name in PER_POST:
            setattr(self, name, getattr(self, name)[posts])
        for name in PER_TOKEN:
            setattr(self, name, copied(getattr(self, name)[:end]))
        self.start = np.cumsum(self.length, dtype=np.int64) - self.length
        self.size, self.count, self.removed, self.first = end, len(posts), 0, 0

    def state(self) -> dict[str, Any]:
        """All arrays."""
        posts = {name: getattr(self, name)[: self.count] for name in PER_POST}
        tokens = {name: getattr(self, name)[: self.size] for name in PER_TOKEN}
        limits = {"newest": self.newest, "written": self.written, "first": self.first}
        return posts | tokens | limits | {"writers": self.writers.numbers()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        for name in (*PER_POST, *PER_TOKEN, "newest", "written"):
            setattr(self, name, copied(state[name]))
        self.writers.assign(state["writers"])
        self.size, self.count, self.first = len(self.tokens), len(self.start), state["first"]
        self.removed = int((self.tokens == 0).sum())


def _user_and_length(user: NDArray[np.int32], length: NDArray[np.integer]) -> NDArray[np.int64]:
    """Both in one number for each post."""
    return (user.astype(np.int64) << 32) | length.astype(np.int64)


def _texts(batch: Batch) -> Iterator[tuple[int, bytes]]:
    """Whose each post is, and its tokens."""
    tokens = batch.tokens.astype(np.uint32)
    for user, span in zip(batch.user.tolist(), pairwise(batch.offsets.tolist()), strict=True):
        yield user, tokens[slice(*span)].tobytes()
