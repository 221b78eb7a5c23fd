"""Buffers: the contract they all keep, and what each promises besides."""

import dataclasses
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from firehose.batch import Batch, UniformBatch
from firehose.errors import FirehoseError
from firehose.methods.buffers import BUFFERS, Buffer
from firehose.methods.buffers.balanced import Balanced
from firehose.methods.buffers.reservoir import Reservoir
from firehose.methods.buffers.storage import rank
from firehose.methods.step import Setup
from firehose.models.model import Paid
from small_methods import buffer as make, shown, stored
from small_models import batch_of

MAX_TOKENS = 4


class Payer:
    """In place of a model: what a post costs follows from its number."""

    def pay(self, batch: Batch) -> Paid:
        """Every seventh post costs the same."""
        return Paid((batch.time % 7).astype(np.float64), batch.words)


class Case(NamedTuple):
    """A kind of buffer and its limit."""

    kind: str
    limit: str
    size: int

    def make(self) -> Buffer:
        """An empty one."""
        limit: dict[str, Any] = {self.limit: self.size}
        return make(self.kind, MAX_TOKENS, Setup(Payer()), **limit)

    def most(self, users: set[int]) -> int:
        """The posts that it may hold when these users were seen."""
        return self.size * (len(users) if self.limit == "per_user" else 1)


CASES = [
    Case(kind, limit, size)
    for kind in ("fifo", "reservoir", "stratified", "stratified-reservoir")
    for limit, size in [("posts", 7), ("per_user", 2), ("posts", 0), ("per_user", 0)]
] + [Case(kind, "posts", size) for kind in shown("add-a-buffer.md").values() for size in (7, 0)]
all_buffers = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.kind.split(':')[-1]}-{case.size}-{case.limit}"
)
batches = st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=12)


def numbered(users: list[int], first: int) -> Batch:
    """Posts of these users; each carries its number as time, and tokens made of it."""
    posts = [[1, (first + n) % 50, (first + n) // 50, 2] for n in range(len(users))]
    made = batch_of(posts, users)
    return Batch(made.tokens, made.offsets, made.user, first + np.arange(len(users)), made.words)


def contents(buffer: Buffer) -> dict[int, int]:
    """The users of the posts that are held, by post number; found by sampling a lot."""
    found: dict[int, int] = {}
    generator = np.random.default_rng(0)
    while len(found) < len(buffer):
        drawn = buffer.sample(64, generator)
        found |= dict(zip(drawn.time.tolist(), drawn.user.tolist(), strict=True))
    return found


def pushed(buffer: Buffer, sizes: list[list[int]], seed: int = 0) -> tuple[Counter[int], int]:
    """Push batches of users; returns who left, and how many were pushed."""
    generator = np.random.default_rng(seed)
    left: Counter[int] = Counter()
    first = 0
    for users in sizes:
        gone = buffer.push(numbered(users, first), generator)
        left.update(gone.time.tolist())
        first += len(users)
    return left, first


@all_buffers
@settings(max_examples=40, deadline=None)
@given(sizes=batches, seed=st.integers(0, 9))
def test_nothing_is_lost_and_the_limit_is_kept(
    case: Case, sizes: list[list[int]], seed: int
) -> None:
    buffer = case.make()
    left, total = pushed(buffer, sizes, seed)
    users = [user for part in sizes for user in part]
    held = contents(buffer)
    assert Counter(list(held)) + left == Counter(range(total))  # each once, here or gone
    assert all(users[number] == user for number, user in held.items())
    most = case.most(set(users))
    assert len(held) == len(buffer) <= most
    if case.kind in ("fifo", "reservoir") and case.limit == "posts":
        assert len(buffer) == min(total, most)
    if case.kind.startswith("stratified") and case.limit == "per_user":
        expected = {user: min(count, case.size) for user, count in Counter(users).items()}
        assert Counter(held.values()) == Counter(expected)


@all_buffers
def test_posts_come_out_as_they_went_in_but_cut(case: Case) -> None:
    buffer = case.make()
    post = batch_of([[1, 5, 6, 7, 8, 2], [1, 9, 2]], [3, 3])
    gone = buffer.push(post, np.random.default_rng(0))
    if not len(buffer):
        assert gone.tokens.tolist() == post.tokens.tolist()
        return
    drawn = buffer.sample(50, np.random.default_rng(0))
    texts = {tuple(part) for part in np.split(drawn.tokens, drawn.offsets[1:-1])}
    assert texts == {(1, 5, 6, 7), (1, 9, 2)}
    assert set(drawn.words.tolist()) == {6, 3}


def with_columns(users: list[int], first: int, uniform: bool) -> Batch:
    """Posts whose columns follow from their numbers; those of a uniform batch are all as long."""
    generator = np.random.default_rng([first, len(users)])
    if uniform:
        tokens = generator.integers(0, 50, (len(users), MAX_TOKENS), dtype=np.uint8)
        rest = (np.array(users, np.int32), np.zeros(len(users), np.int64))
        made: Batch = UniformBatch.from_matrix(tokens, *rest, np.ones(len(users), np.int32))
    else:
        lengths = generator.integers(2, 7, len(users)).tolist()  # some are cut
        made = batch_of([generator.integers(0, 50, n).tolist() for n in lengths], users)
    made = dataclasses.replace(made, time=first + np.arange(len(users)))
    return made.with_columns(per_post(made), per_token(made))


def per_post(batch: Batch) -> dict[str, Any]:
    return {"half": batch.time / 2, "pair": np.column_stack([batch.time, batch.user])}


def per_token(batch: Batch) -> dict[str, Any]:
    owner = np.repeat(batch.time, batch.lengths)
    return {"product": (batch.tokens * owner).astype(np.float32), "owner": owner[:, None]}


def has_its_columns(batch: Batch) -> bool:
    """Whether the columns are still those of the posts."""
    found = {**batch.per_post, **batch.per_token}
    expected = per_post(batch) | per_token(batch)
    return found.keys() == expected.keys() and all(
        found[name].dtype == expected[name].dtype and np.array_equal(found[name], expected[name])
        for name in expected
    )


@all_buffers
@settings(max_examples=20, deadline=None)
@given(sizes=batches, forgotten=st.integers(0, 5), uniform=st.booleans())
def test_columns_of_posts_and_tokens_come_out_with_their_posts(
    case: Case, sizes: list[list[int]], forgotten: int, uniform: bool
) -> None:
    buffer, generator = case.make(), np.random.default_rng(0)
    first = 0
    for number, users in enumerate(sizes):
        if number == len(sizes) // 2:
            buffer.forget(forgotten)
            state, buffer = stored(buffer.state()), case.make()
            buffer.restore(state)
        batch = with_columns(users, first, uniform)
        assert has_its_columns(batch)
        assert has_its_columns(buffer.push(batch, generator))
        first += len(users)
    if len(buffer):
        assert has_its_columns(buffer.all())
        assert has_its_columns(buffer.sample(9, generator))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.size], ids=lambda case: case.kind.split(":")[-1]
)
def test_columns_that_only_some_posts_have_are_refused(case: Case) -> None:
    buffer, generator = case.make(), np.random.default_rng(0)
    buffer.push(numbered([0, 1], 0).with_columns({"alpha": np.zeros(2)}), generator)
    with pytest.raises(FirehoseError, match="must add the same columns to all posts"):
        buffer.push(numbered([2, 3], 2), generator)


@all_buffers
@settings(max_examples=20, deadline=None)
@given(sizes=batches, user=st.integers(0, 5), more=batches)
def test_who_is_forgotten_is_gone_and_nobody_else(
    case: Case, sizes: list[list[int]], user: int, more: list[list[int]]
) -> None:
    buffer = case.make()
    pushed(buffer, sizes)
    before = contents(buffer)
    assert buffer.forget(user) == sum(owner == user for owner in before.values())
    kept = {number: owner for number, owner in before.items() if owner != user}
    assert contents(buffer) == kept
    assert buffer.forget(user) == 0
    erased = {number for number, owner in before.items() if owner == user} - {0}  # 0 is nobody's
    assert not erased & set(buffer.state().get("column.time", np.zeros(0)).tolist())
    generator = np.random.default_rng(1)
    first = 1000
    left: Counter[int] = Counter()
    known = {each for part in sizes for each in part} - {user}
    for users in more:
        left.update(buffer.push(numbered(users, first), generator).time.tolist())
        first += len(users)
        known |= set(users)
        assert len(buffer) <= case.most(known)  # nor does anybody count who is gone
    everything = Counter(list(kept)) + Counter(range(1000, first))
    assert Counter(list(contents(buffer))) + left == everything


@all_buffers
def test_no_count_of_who_is_forgotten_stays(case: Case) -> None:
    """The number of the user is in no array of the state, nor is there a mark at its place."""
    buffer, user = case.make(), 4321
    pushed(buffer, [[0, user, user, 1], [user] * 9, [0, 2]])
    buffer.forget(user)
    state = stored(buffer.state())
    for name, values in state.items():
        assert not (np.asarray(values) == user).any(), name
    assert not state.get("seen", np.zeros(0, bool))[user:].any()


@all_buffers
@settings(max_examples=20, deadline=None)
@given(sizes=batches, forgotten=st.integers(0, 5), user=st.integers(0, 5), more=batches)
def test_what_is_saved_goes_on_as_if_it_never_was(
    case: Case, sizes: list[list[int]], forgotten: int, user: int, more: list[list[int]]
) -> None:
    buffer, again = case.make(), case.make()
    pushed(buffer, sizes)
    buffer.forget(forgotten)
    again.restore(stored(buffer.state()))
    assert len(again) == len(buffer)
    if len(buffer):
        assert again.all().time.tolist() == buffer.all().time.tolist()
    results = []
    for one in (buffer, again):
        generator = np.random.default_rng(5)
        one.forget(user)
        gone = [one.push(numbered(users, 100), generator).time.tolist() for users in more]
        drawn = one.sample(9, generator).time.tolist() if len(one) else []
        results.append((gone, drawn))
    assert results[0] == results[1]


def test_nothing_of_who_is_forgotten_is_saved() -> None:
    buffer = make("stratified", MAX_TOKENS, per_user=60)
    pushed(buffer, [[0] * 60 + [1] * 40])  # the last row is not whole
    assert buffer.forget(0) == 60
    assert not set(range(1, 60)) & set(buffer.state()["column.time"].tolist())


@settings(max_examples=60, deadline=None)
@given(sizes=batches)
def test_fifo_holds_the_newest(sizes: list[list[int]]) -> None:
    buffer = make("fifo", MAX_TOKENS, posts=7)
    _, total = pushed(buffer, sizes)
    assert sorted(contents(buffer)) == list(range(max(0, total - 7), total))


@settings(max_examples=60, deadline=None)
@given(sizes=batches)
def test_stratified_holds_the_newest_of_each_user(sizes: list[list[int]]) -> None:
    buffer = make("stratified", MAX_TOKENS, per_user=2)
    pushed(buffer, sizes)
    expected: dict[int, list[int]] = defaultdict(list)
    for number, user in enumerate(user for part in sizes for user in part):
        expected[user].append(number)
    held = contents(buffer)
    assert sorted(held) == sorted(n for posts in expected.values() for n in posts[-2:])


@settings(max_examples=60, deadline=None)
@given(users=st.lists(st.integers(0, 3), min_size=12, max_size=40), reservoir=st.booleans())
def test_balanced_takes_from_those_who_hold_the_most(users: list[int], reservoir: bool) -> None:
    kind = "stratified-reservoir" if reservoir else "stratified"
    buffer = make(kind, MAX_TOKENS, posts=7)
    assert isinstance(buffer, Balanced)
    generator = np.random.default_rng(0)
    losers = set()  # in a reservoir, they exchange posts of their own
    for number, user in enumerate(users):
        before = Counter(contents(buffer).values())
        gone = buffer.push(numbered([user], number), generator)
        after = Counter(contents(buffer).values())
        assert len(buffer) == min(number + 1, 7)
        if number < 7:
            assert not len(gone)
            continue
        (loser,) = gone.user.tolist()
        is_own = reservoir and user == loser and user in losers
        assert is_own or before[loser] == max(before.values())
        assert before + Counter([user]) == after + Counter([loser])
        assert reservoir or gone.time.tolist() != [number]
        losers.add(loser)


def is_uniform(counts: Any) -> bool:
    """Whether χ² is what equally likely counts make it, to within four deviations."""
    found = np.array(counts, float)
    expected, free = found.mean(), len(found) - 1
    chi = float(((found - expected) ** 2 / expected).sum())
    return bool(chi < free + 4 * (2 * free) ** 0.5)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_a_reservoir_is_uniform_over_all_that_was_pushed(size: int) -> None:
    counts = np.zeros(40)
    for seed in range(2000):
        buffer = make("reservoir", MAX_TOKENS, posts=8)
        generator = np.random.default_rng(seed)
        for first in range(0, 40, size):
            buffer.push(numbered([0] * min(size, 40 - first), first), generator)
        assert isinstance(buffer, Reservoir)
        counts[buffer.columns.rows["time"][:8]] += 1
    assert counts.sum() == 2000 * 8
    assert is_uniform(counts)


SOME = np.random.default_rng(4).integers(0, 3, 60).tolist()  # three users, as they come


@pytest.mark.parametrize("users", [[0, 1] * 20, [0, 1, 2] * 20, [0] * 20 + [1] * 9, SOME])
@pytest.mark.parametrize("limit", [{"per_user": 3}, {"posts": 6}, {"posts": 10}])
def test_within_a_user_a_stratified_reservoir_is_uniform(
    limit: dict[str, Any], users: list[int]
) -> None:
    counts = np.zeros(len(users))
    for seed in range(2000):
        buffer = make("stratified-reservoir", MAX_TOKENS, **limit)
        generator = np.random.default_rng(seed)
        for first in range(0, len(users), 8):
            buffer.push(numbered(users[first : first + 8], first), generator)
        counts[buffer.all().time] += 1
    assert all(is_uniform(counts[np.array(users) == user]) for user in set(users))


@pytest.mark.parametrize("limit", [{"per_user": 3}, {"posts": 7}])
def test_a_stratified_sample_is_uniform_over_users_then_within(limit: dict[str, Any]) -> None:
    buffer = make("stratified", MAX_TOKENS, **limit)
    buffer.push(numbered([0, 0, 0, 1, 2, 2, 2], 0), np.random.default_rng(0))
    drawn = buffer.sample(30_000, np.random.default_rng(1))
    assert is_uniform(list(Counter(drawn.user.tolist()).values()))
    of_first = Counter(drawn.time[drawn.user == 0].tolist())
    assert set(of_first) == {0, 1, 2}
    assert is_uniform(list(of_first.values()))


def test_a_pool_s_sample_is_uniform_over_posts() -> None:
    buffer = make("fifo", MAX_TOKENS, posts=9)
    pushed(buffer, [[0] * 7, [1] * 5])
    counts = Counter(buffer.sample(30_000, np.random.default_rng(1)).time.tolist())
    assert is_uniform(list(counts.values()))


@pytest.mark.parametrize("limits", [{}, {"posts": 1, "per_user": 1}])
def test_a_buffer_has_one_limit(limits: dict[str, int]) -> None:
    with pytest.raises(FirehoseError, match="one limit: give posts, or per_user"):
        BUFFERS.settings({"kind": "fifo", **limits})


@given(st.lists(st.integers(0, 4), max_size=20))
def test_rank_counts_equals_before(values: list[int]) -> None:
    expected = [values[:place].count(value) for place, value in enumerate(values)]
    assert rank(np.array(values, np.int64)).tolist() == expected


def test_the_hardest_posts_of_all_are_held() -> None:
    (kind,) = shown("add-a-buffer.md").values()
    buffer = make(kind, MAX_TOKENS, Setup(Payer()), posts=3)
    left, _ = pushed(buffer, [[0] * 4, [1] * 9, [2]])  # 0 to 13, of costs 0 … 6, 0 … 6
    assert buffer.all().time.tolist() == [6, 13, 5]  # of equals, the one that came first
    assert sum(left.values()) == 11


BUFFER_KINDS = [*BUFFERS.built_in, *shown("add-a-buffer.md").values()]


@pytest.mark.parametrize("kind", BUFFER_KINDS, ids=lambda kind: kind.split(":")[-1])
def test_settings_that_are_unknown_are_refused(kind: str) -> None:
    assert BUFFERS.settings({"kind": kind, "posts": 30}).posts == 30
    with pytest.raises(FirehoseError, match="Unknown key 'hue' in the buffer "):
        BUFFERS.settings({"kind": kind, "posts": 30, "hue": 3})
