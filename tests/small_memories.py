"""Memories of few pieces and users, and one that does the same slowly, with lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.methods.experts import EXPERTS, Evidence, Expert
from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.memory import COUNTED, LONGER, OWN, REACH, Memory
from firehose.methods.step import Setup
from small_models import batch_of

PIECES, SOT, EOT = 7, 0, 1
Post = tuple[int, list[int]]  # whose, and the pieces from <SOT> to <EOT>
posts = st.tuples(
    st.integers(-1, 4),
    st.lists(st.integers(2, PIECES - 1), max_size=6).map(lambda text: [SOT, *text, EOT]),
)
rounds = st.lists(st.lists(posts, min_size=1, max_size=6), min_size=1, max_size=6)


def memory(**settings: Any) -> Memory:
    """A memory that looks at all matches there are."""
    all_of_them = {"matches": 4096, "own_matches": 4096}
    made = EXPERTS.make(EXPERTS.settings({"kind": "memory", **all_of_them, **settings}), Setup())
    assert isinstance(made, Memory)
    return made


def as_batch(chosen: Sequence[Post]) -> Batch:
    """Posts as the game gives them."""
    return batch_of([tokens for _, tokens in chosen], [user for user, _ in chosen])


def ask(expert: Expert, user: int, text: list[int], pieces: int = PIECES) -> Evidence:
    """What an expert says of all pieces after a text."""
    contexts = Contexts.of_rows(np.array([text]), user, expert.reach)
    return expert.look(contexts, np.arange(pieces)[None])


def told(expert: Expert, user: int, text: list[int]) -> dict[str, NDArray[Any]]:
    """The distributions of the opinions that speak after a text."""
    said = ask(expert, user, text)
    every = zip(expert.opinions, said.probability[:, 0], said.speaks[:, 0], strict=True)
    return {name: probability for name, probability, speaks in every if speaks}


class Plain:
    """What a memory should say, from lists of posts."""

    def __init__(
        self, min_users: int = 1, per_user: int | None = None, tokens: int | None = None
    ) -> None:
        self.min_users, self.per_user, self.tokens = min_users, per_user, tokens
        self.posts: list[Post] = []

    def learn(self, chosen: Sequence[Post]) -> None:
        """Remember posts; the oldest leave."""
        self.posts += chosen
        if self.per_user is not None:
            for user in {user for user, _ in self.posts if user >= 0}:
                own = [number for number, post in enumerate(self.posts) if post[0] == user]
                for number in own[: max(len(own) - self.per_user, 0)][::-1]:
                    del self.posts[number]
        while self.tokens is not None and sum(len(text) for _, text in self.posts) > self.tokens:
            del self.posts[0]

    def forget(self, user: int) -> int:
        """Drop a user's posts."""
        before = len(self.posts)
        self.posts = [post for post in self.posts if post[0] != user]
        return before - len(self.posts)

    def told(self, user: int, text: list[int]) -> dict[str, NDArray[Any]]:
        """The distributions of the opinions that speak after a text."""
        found: dict[str, NDArray[Any]] = {}
        for order in range(1, COUNTED + 1):
            if len(text) >= order:
                same = self._matches(text, order, exact=True)
                self._tell(found, "all", order, same, newest=False, min_users=self.min_users)
        for order in LONGER:
            same = self._matches(text, min(order, len(text)))
            whole = [match for match in same if self._agreement(match, text) >= LONGER[0]]
            whole = same if len(text) < LONGER[0] else whole
            self._tell(found, "all", order, whole, again=False, min_users=self.min_users)
        for order in OWN:
            same = [m for m in self._matches(text, min(order, len(text))) if m[0] == user >= 0]
            self._tell(found, "own", order, same)
        return found

    def _matches(
        self, text: list[int], order: int, exact: bool = False
    ) -> list[tuple[int, list[int], int]]:
        """Earlier places that end in the last pieces of a text, the newest first: whose, and what
        came before and at them."""
        found = []
        for user, post in self.posts:
            for place in range(1, len(post)):
                match = (user, post[:place], post[place])
                if self._agreement(match, text) >= order and (not exact or place >= order):
                    found.append(match)
        return found[::-1]

    def _agreement(self, match: tuple[int, list[int], int], text: list[int]) -> int:
        """How many of the last pieces agree."""
        agree = 0
        for one, other in zip(match[1][::-1], text[::-1][:REACH], strict=False):
            if one != other:
                break
            agree += 1
        return agree

    def _tell(
        self,
        found: dict[str, NDArray[Any]],
        who: str,
        order: int,
        matches: list[tuple[int, list[int], int]],
        again: bool = True,
        newest: bool = True,
        min_users: int = 1,
    ) -> None:
        writers = {piece: {m[0] for m in matches if m[2] == piece} for _, _, piece in matches}
        pieces = [m[2] for m in matches if len(writers[m[2]]) >= min_users]
        counts = np.bincount(pieces, minlength=PIECES) if pieces else np.zeros(PIECES)
        if counts.sum():
            found[f"{who} {order}"] = counts / counts.sum()
        more = np.maximum(counts - 1, 0)
        if again and more.sum():
            found[f"{who}, again {order}"] = more / more.sum()
        if newest and pieces:
            found[f"{who}, newest {order}"] = np.eye(PIECES)[pieces[0]]
