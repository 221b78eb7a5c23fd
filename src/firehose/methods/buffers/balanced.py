"""A limit in posts that users share evenly: what ``stratified`` is with a limit in posts."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.methods.buffers import Buffer, BufferSettings
from firehose.methods.buffers.storage import Bag, Columns, place_posts
from firehose.methods.step import Setup


class Balanced(Buffer):
    """A limit in posts, shared by the users as evenly as their posts allow.

    When it is full, a post takes the place of one of a user who holds the most: the oldest, or
    (``reservoir``) a random one. Who has lost posts at random then exchanges only posts of one's
    own, with the probability that keeps them a uniform sample of all (class-balancing reservoir
    sampling, Chrysakis and Moens 2020).
    """

    def __init__(self, settings: BufferSettings, setup: Setup, is_reservoir: bool) -> None:
        self.columns = Columns(setup.max_tokens)
        self.posts = settings.posts or 0
        self.is_reservoir = is_reservoir
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
        """Let posts in; returns those that leave, and those that were not let in."""
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
        return place_posts(self.columns, batch, target, used)

    def sample(self, count: int, generator: np.random.Generator) -> Batch:
        """Posts drawn with replacement: a user, all alike, then one of the user's posts."""
        chosen = generator.integers(0, len(self.users.users), count).tolist()
        held = [self.slots[self.users.users[number]] for number in chosen]
        places = (generator.random(count) * [len(slots) for slots in held]).astype(int).tolist()
        slots = [slots[place] for slots, place in zip(held, places, strict=True)]
        return self.columns.take(np.array(slots, np.int64))

    def all(self) -> Batch:
        """User by user."""
        slots = [slot for user in self.users.users for slot in self.slots[user]]
        return self.columns.take(np.array(slots, np.int64))

    def forget(self, user: int) -> int:
        """Erase a user's posts; returns how many."""
        self.pushed.pop(user, None)
        if user not in self.slots:
            return 0
        erased, self.slots[user] = self.slots[user], []
        self._moved(user, len(erased))
        for rows in self.columns.rows.values():
            rows[erased] = 0
        self.free += erased
        self.count -= len(erased)
        return len(erased)

    def state(self) -> dict[str, Any]:
        """The posts, and all that decides what happens to the next ones."""
        # The order of users decides who is drawn.
        slots = [(user, slot) for user in self.users.users for slot in self.slots[user]]
        bags = [user for _, bag in sorted(self.holding.items()) for user in bag.users]
        return self.columns.state() | {
            "slots": np.array(slots, np.int64).reshape(-1, 2),
            "bags": np.array(bags, np.int64),
            "pushed": np.array(list(self.pushed.items()), np.int64).reshape(-1, 2),
            "free": np.array(self.free, np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` was taken from."""
        self.columns.restore(state)
        self.slots, self.holding = {}, defaultdict(Bag)
        for user, slot in state["slots"].tolist():
            self.slots.setdefault(user, []).append(slot)
        self.users = Bag(self.slots)
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
        """Give a user one slot more."""
        self.slots.setdefault(user, []).append(slot)
        self._moved(user, -1)

    def _moved(self, user: int, fewer: int) -> None:
        """Update the counts: the user holds ``fewer`` posts fewer than before."""
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
