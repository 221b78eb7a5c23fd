"""Memories of limited size: columns of arrays, and a rule that says which slot a new post takes.

``push`` returns whatever is not in the buffer afterwards, be it a post that had to leave or one
that was not let in: nothing is ever lost by accident. A batch arrives as a whole. What a push or a
sample costs depends on the posts in it, not on how many users or posts there are.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch, gather
from firehose.methods.buffers.storage import (
    Bag,
    BufferPlan,
    Columns,
    Limit,
    Slots,
    State,
    rank,
    roomy,
    settle,
)


class FIFO:
    """The newest posts of all users together, in a ring."""

    def __init__(self, plan: BufferPlan, longest: int) -> None:
        self.columns = Columns(longest)
        self.limit = Limit(plan)
        self.ring = 0  # slots
        self.oldest = 0  # a slot
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let the batch in; returns the oldest posts, which make room for it."""
        self.columns.fit(batch)
        most = self.limit.after(batch.user)
        leaving = max(0, self.count + len(batch) - most)
        old = min(leaving, self.count)
        gone = self.columns.take(self._slots(0, old))
        self.oldest, self.count = (self.oldest + old) % max(self.ring, 1), self.count - old
        refused, staying = np.split(np.arange(len(batch)), [leaving - old])
        if self.count + len(staying) > self.ring:
            ring = max(self.count + len(staying), 2 * self.ring)
            self._lay(self._slots(0, self.count), ring)
        self.columns.put(self._slots(self.count, len(staying)), batch.select(staying))
        self.count += len(staying)
        return batch.join([gone, batch.select(refused)])

    def sample(self, posts: int, generator: np.random.Generator) -> Batch:
        """Posts drawn uniformly, with replacement."""
        return self.columns.take(self._slot(generator.integers(0, self.count, posts)))

    def all(self) -> Batch:
        """The oldest first."""
        return self.columns.take(self._slots(0, self.count))

    def forget(self, user: int) -> int:
        """Erase a user's posts, and say how many; looks through the whole buffer."""
        slots = self._slots(0, self.count)
        keep = self.columns.rows["user"][slots] != user if self.count else np.zeros(0, bool)
        self._lay(slots[keep], self.ring)
        return int((~keep).sum())

    def state(self) -> State:
        """To be saved."""
        numbers = np.array([self.ring, self.oldest, self.count])
        return self.columns.state() | self.limit.state() | {"numbers": numbers}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what was saved."""
        self.columns.restore(state)
        self.limit.restore(state)
        self.ring, self.oldest, self.count = state["numbers"].tolist()

    def _slot(self, place: Slots) -> Slots:
        return (self.oldest + place) % max(self.ring, 1)

    def _slots(self, first: int, number: int) -> Slots:
        return self._slot(np.arange(first, first + number))

    def _lay(self, slots: Slots, ring: int) -> None:
        """A ring of this size with the posts of these slots, the oldest first."""
        for name, rows in self.columns.rows.items():
            laid = np.zeros((ring, *rows.shape[1:]), rows.dtype)
            laid[: len(slots)] = rows[slots]
            self.columns.rows[name] = laid
        self.ring, self.oldest, self.count = ring, 0, len(slots)


class Reservoir:
    """A uniform sample of all posts that were ever pushed.

    With a limit that grows, the room that a new user brings is filled by what comes next.
    """

    def __init__(self, plan: BufferPlan, longest: int) -> None:
        self.columns = Columns(longest)
        self.limit = Limit(plan)
        self.count = 0
        self.pushed = 0

    def __len__(self) -> int:
        return self.count

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let posts in with the probability that keeps the sample uniform."""
        self.columns.fit(batch)
        most = self.limit.after(batch.user)
        number = self.pushed + np.arange(len(batch))
        target = np.floor(generator.random(len(batch)) * (number + 1)).astype(np.int64)
        free = min(most - self.count, len(batch))
        target[:free] = self.count + np.arange(free)
        target[target >= most] = -1
        before = self.count
        self.count, self.pushed = before + free, self.pushed + len(batch)
        return settle(self.columns, batch, target.tolist(), target < before)

    def sample(self, posts: int, generator: np.random.Generator) -> Batch:
        """Posts drawn uniformly, with replacement."""
        return self.columns.take(generator.integers(0, self.count, posts))

    def all(self) -> Batch:
        """In any order."""
        return self.columns.take(np.arange(self.count))

    def forget(self, user: int) -> int:
        """Erase a user's posts, and say how many; looks through the whole buffer."""
        keep = self.columns.rows["user"][: self.count] != user if self.count else np.zeros(0, bool)
        for rows in self.columns.rows.values():
            rows[: keep.sum()], rows[keep.sum() : self.count] = rows[: self.count][keep], 0
        self.count = int(keep.sum())
        return int((~keep).sum())

    def state(self) -> State:
        """To be saved."""
        numbers = np.array([self.count, self.pushed])
        return self.columns.state() | self.limit.state() | {"numbers": numbers}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what was saved."""
        self.columns.restore(state)
        self.limit.restore(state)
        self.count, self.pushed = state["numbers"].tolist()


class Stratified:
    """The same number of posts for every user, ``per_user`` of them in a row of slots.

    Within a user the newest, or (``reservoir``) a uniform sample of all.
    """

    def __init__(self, plan: BufferPlan, longest: int) -> None:
        self.columns = Columns(longest)
        self.per_user = plan.per_user or 0
        self.is_reservoir = plan.strategy == "stratified-reservoir"
        self.users = 0
        self.row_of = np.zeros(0, np.int32)  # [users], −1: none
        self.user_of = np.zeros(0, np.int32)  # [rows]
        self.pushed = np.zeros(0, np.int32)  # [rows], posts of this user so far
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let each user's posts in; returns the older ones that make room for them."""
        if not self.per_user:
            return batch
        self.columns.fit(batch)
        rows = self._rows(batch.user)
        number = self.pushed[rows] + rank(rows)  # of the post among all of its user
        place = number % self.per_user
        if self.is_reservoir:
            drawn = np.floor(generator.random(len(batch)) * (number + 1)).astype(np.int64)
            place = np.where(number < self.per_user, number, drawn)
        target = np.where(place < self.per_user, rows * self.per_user + place, -1)
        used = place < self.pushed[rows]
        unique, added = np.unique(rows, return_counts=True)
        before = np.minimum(self.pushed[unique], self.per_user)
        self.pushed[unique] += added.astype(np.int32)
        self.count += int((np.minimum(self.pushed[unique], self.per_user) - before).sum())
        return settle(self.columns, batch, target.tolist(), used)

    def sample(self, posts: int, generator: np.random.Generator) -> Batch:
        """Posts drawn with replacement: a user, all alike, then one of the user's posts."""
        rows = generator.integers(0, self.users, posts)
        held = np.minimum(self.pushed[rows], self.per_user)
        return self.columns.take(rows * self.per_user + generator.integers(0, held))

    def all(self) -> Batch:
        """User by user."""
        held = np.minimum(self.pushed[: self.users], self.per_user).astype(np.int64)
        places, _ = gather(np.arange(self.users) * self.per_user, held)
        return self.columns.take(places)

    def forget(self, user: int) -> int:
        """Erase a user's posts, and say how many; the last row moves into the gap."""
        row = int(self.row_of[user]) if user < len(self.row_of) else -1
        if row < 0:
            return 0
        erased = int(min(self.pushed[row], self.per_user))
        last = self.users - 1
        gap, end = (slice(r * self.per_user, (r + 1) * self.per_user) for r in (row, last))
        for rows in self.columns.rows.values():
            moved = rows[end]  # fewer than per_user where the last row was never full
            rows[gap][: len(moved)], rows[gap][len(moved) :] = moved, 0
            rows[end] = 0
        self.user_of[row], self.pushed[row] = self.user_of[last], self.pushed[last]
        self.row_of[self.user_of[row]] = row
        self.row_of[user], self.pushed[last] = -1, 0
        self.users, self.count = last, self.count - erased
        return erased

    def state(self) -> State:
        """To be saved."""
        held = self.users * self.per_user
        columns = {name: rows[:held] for name, rows in self.columns.state().items()}
        rows = {"user_of": self.user_of[: self.users], "pushed": self.pushed[: self.users]}
        return columns | rows

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what was saved."""
        self.columns.restore(state)
        self.user_of, self.pushed = state["user_of"].copy(), state["pushed"].copy()
        self.users = len(self.user_of)
        self.row_of = np.full(int(self.user_of.max(initial=-1)) + 1, -1, np.int32)
        self.row_of[self.user_of] = np.arange(self.users)
        self.count = int(np.minimum(self.pushed, self.per_user).sum())

    def _rows(self, users: NDArray[np.integer]) -> Slots:
        """The row of each user; who is new gets one."""
        self.row_of = roomy(self.row_of, int(users.max(initial=-1)) + 1, fill=-1)
        new = np.unique(users[self.row_of[users] < 0])
        self.user_of = roomy(self.user_of, self.users + len(new))
        self.pushed = roomy(self.pushed, self.users + len(new))
        self.row_of[new] = np.arange(self.users, self.users + len(new))
        self.user_of[self.users : self.users + len(new)] = new
        self.users += len(new)
        rows: Slots = self.row_of[users].astype(np.int64)
        return rows


class Balanced:
    """A limit in posts, shared by the users as evenly as their posts allow.

    When it is full, a post takes the place of one of a user who holds the most: the oldest, or
    (``reservoir``) a random one. Who has lost posts at random then exchanges only posts of one's
    own, with the probability that keeps them a uniform sample of all (class-balancing reservoir
    sampling, Chrysakis and Moens 2020).
    """

    def __init__(self, plan: BufferPlan, longest: int) -> None:
        self.columns = Columns(longest)
        self.posts = plan.posts or 0
        self.is_reservoir = plan.strategy == "stratified-reservoir"
        self.slots: dict[int, list[int]] = {}  # of each user, the oldest first
        self.pushed: dict[int, int] = {}  # posts of each user so far
        self.holding = defaultdict[int, Bag](Bag)  # users by the number of posts they hold
        self.most = 0  # posts that a user holds
        self.users = Bag()
        self.free: list[int] = []  # slots that a forgotten user left
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let posts in; returns those who leave, and those who were not let in."""
        self.columns.fit(batch)
        chances = generator.random((len(batch), 3)).tolist()  # at once: one by one is slow
        target, empty = [], set()  # where posts go, and where nobody was
        for user, chance in zip(batch.user.tolist(), chances, strict=True):
            self.pushed[user] = self.pushed.get(user, 0) + 1
            if self.count < self.posts:
                slot = self.free.pop() if self.free else self.count
                self.count += 1
                empty.add(slot)
                self._give(user, slot)
            else:
                slot = self._exchange(user, *chance)
            target.append(slot)
        used = np.array([slot not in empty for slot in target], bool)
        return settle(self.columns, batch, target, used)

    def sample(self, posts: int, generator: np.random.Generator) -> Batch:
        """Posts drawn with replacement: a user, all alike, then one of the user's posts."""
        chosen = generator.integers(0, len(self.users.users), posts).tolist()
        held = [self.slots[self.users.users[number]] for number in chosen]
        places = (generator.random(posts) * [len(slots) for slots in held]).astype(int).tolist()
        slots = [slots[place] for slots, place in zip(held, places, strict=True)]
        return self.columns.take(np.array(slots, np.int64))

    def all(self) -> Batch:
        """User by user."""
        return self.columns.take(np.concatenate(list(map(np.array, self.slots.values()))))

    def forget(self, user: int) -> int:
        """Erase a user's posts, and say how many."""
        self.pushed.pop(user, None)
        if user not in self.slots:
            return 0
        slots = self.slots[user]
        erased = slots.copy()
        slots.clear()
        self._moved(user, len(erased))
        for rows in self.columns.rows.values():
            rows[erased] = 0
        self.free += erased
        self.count -= len(erased)
        return len(erased)

    def state(self) -> State:
        """To be saved."""
        users = self.users.users  # their order decides who is drawn
        largest = [bag.users for _, bag in sorted(self.holding.items())]
        return self.columns.state() | {
            "users": np.array(users, np.int64),
            "held": np.array([len(self.slots[user]) for user in users], np.int64),
            "slots": np.array([slot for user in users for slot in self.slots[user]], np.int64),
            "bags": np.array([user for bag in largest for user in bag], np.int64),
            "pushed": np.array(list(self.pushed.items()), np.int64).reshape(-1, 2),
            "free": np.array(self.free, np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what was saved."""
        self.columns.restore(state)
        self.users, self.holding = Bag(), defaultdict(Bag)
        ends = np.cumsum(state["held"])
        users = state["users"].tolist()
        lists = [part.tolist() for part in np.split(state["slots"], ends[:-1])]
        self.slots = dict(zip(users, lists, strict=False))
        for user in users:
            self.users.add(user)
        for user in state["bags"].tolist():
            self.holding[len(self.slots[user])].add(user)
        self.pushed = dict(state["pushed"].tolist())
        self.free = state["free"].tolist()
        self.count = len(state["slots"])
        self.most = max(self.holding, default=0)

    def _exchange(self, user: int, who: float, whether: float, where: float) -> int:
        """The slot of a post of a user who holds the most; −1: the new post is not let in.

        Three numbers from 0 to 1 decide what is left to chance.
        """
        held, pushed = len(self.slots.get(user, ())), self.pushed[user]
        is_own = held == self.most or (self.is_reservoir and 0 < held < pushed - 1)
        if not self.most or (is_own and self.is_reservoir and whether * pushed >= held):
            return -1
        largest = self.holding[self.most].users
        victim = user if is_own else largest[int(who * len(largest))]
        slots = self.slots[victim]
        slot = slots.pop(int(where * len(slots)) if self.is_reservoir else 0)
        if is_own:
            slots.append(slot)
        else:
            self._moved(victim, 1)
            self._give(user, slot)
        return slot

    def _give(self, user: int, slot: int) -> None:
        """One slot more."""
        self.slots.setdefault(user, []).append(slot)
        self._moved(user, -1)

    def _moved(self, user: int, fewer: int) -> None:
        """Take notice that the user holds so many fewer than before."""
        now = len(self.slots[user])
        if before := now + fewer:
            self.holding[before].remove(user)
        else:
            self.users.add(user)
        if now:
            self.holding[now].add(user)
        else:
            self.users.remove(user)
            del self.slots[user]
        self.most = max(self.most, now)
        while self.most and not self.holding[self.most].users:
            self.most -= 1


def make_buffer(plan: BufferPlan, longest: int) -> FIFO | Reservoir | Stratified | Balanced:
    """An empty buffer; posts are kept up to ``longest`` tokens."""
    if plan.strategy == "fifo":
        return FIFO(plan, longest)
    if plan.strategy == "reservoir":
        return Reservoir(plan, longest)
    return Stratified(plan, longest) if plan.posts is None else Balanced(plan, longest)
