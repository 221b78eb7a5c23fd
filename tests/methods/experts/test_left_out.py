"""Posts that are left out of a memory for a while: as if they had never been learned."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from test_divided_memory import Threads, look

from firehose.methods.experts import Evidence
from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.memory import COUNTED, LONGER, OWN, Memory
from firehose.methods.experts.mixture import Mixture
from firehose.methods.predictor import PREDICTORS, RawWeights
from firehose.methods.step import Setup
from small_memories import EOT, PIECES, SOT, Post, as_batch, memory, posts, rounds, told
from small_methods import same, stored, stream
from small_models import tiny

quick = settings(max_examples=40, deadline=None)
few = st.fixed_dictionaries(
    {
        "matches": st.sampled_from([1, 2, 4096]),
        "own_matches": st.sampled_from([1, 3, 4096]),
        "min_users": st.integers(1, 3),
    }
)
limits = st.sampled_from(
    [{}, {"per_user": 1}, {"per_user": 2}, {"tokens": 40}, {"per_user": 2, "tokens": 25}]
)
numbers = st.lists(st.integers(0, 35), max_size=8)
AGES = [len(LONGER), len(OWN)]  # features that say how long ago a match came


def learned_by(found: Memory, learned: list[list[Post]]) -> Memory:
    for chosen in learned:
        found.learn(as_batch(chosen))
    return found


def some_of(learned: list[list[Post]], numbers: list[int]) -> list[Post]:
    """Some of all posts, none more often than it is there."""
    every = [post for chosen in learned for post in chosen]
    return [every[number] for number in sorted(set(numbers)) if number < len(every)]


def others_than(gone: list[Post], every: list[Post]) -> list[Post]:
    """All posts but some; of several alike the oldest are not there."""
    left = list(every)
    for post in gone:
        if post in left:
            left.remove(post)
    return left


def without_ages(said: Evidence) -> np.ndarray:
    """All features but how long ago the newest match came, which is told as before."""
    start = 3 * COUNTED
    ages = list[int]()
    for rows in AGES:
        ages += range(start + 3 * rows, start + 4 * rows)
        start += 4 * rows + 1
    assert start == len(said.features)
    return np.delete(said.features, ages, axis=0)


def check_alike(one: Evidence, other: Evidence) -> None:
    assert np.array_equal(one.probability, other.probability)
    assert np.array_equal(one.speaks, other.speaks)


@quick
@given(rounds, numbers, st.lists(posts, max_size=3), few)
@example([[(0, [SOT, 2, EOT])] * 3], [0, 2], [], {"min_users": 1})
@example([[(0, [SOT, 2, 3, EOT]), (1, [SOT, 2, 3, EOT])]], [0], [], {"min_users": 2})
def test_it_says_what_a_memory_of_all_others_says(
    learned: list[list[Post]], numbers: list[int], unknown: list[Post], few: dict[str, Any]
) -> None:
    found, every = learned_by(memory(**few), learned), [p for chosen in learned for p in chosen]
    gone = some_of(learned, numbers) + [post for post in unknown if post not in every]
    other = learned_by(memory(**few), [others_than(gone, every) or [(-1, [SOT, EOT])]])
    if others_than(gone, every):
        asked = as_batch(every + unknown)
        with found.without(as_batch(gone)):
            one, two = look(found, asked), look(other, asked)
            check_alike(one, two)
            assert np.array_equal(without_ages(one), without_ages(two))
            contexts = Contexts.of(asked, found.reach)
            possible = [each.candidates(contexts, PIECES) for each in (found, other)]
            assert np.array_equal(possible[0], possible[1])


@quick
@given(rounds, numbers, limits)
@example([[(0, [SOT, 4, 4, 4, EOT]), (0, [SOT, 4, 5, 5, EOT])]], [1], {})
def test_also_where_posts_had_to_leave(
    learned: list[list[Post]], numbers: list[int], limit: dict[str, Any]
) -> None:
    found = learned_by(memory(**limit), learned)
    kept = found.posts.batch(np.flatnonzero(found.posts.kept[: found.posts.count]))
    every = [
        (int(kept.user[n]), kept.select(np.array([n])).tokens.tolist()) for n in range(len(kept))
    ]
    gone = some_of(learned, numbers)
    left = others_than(gone, every)
    other = learned_by(memory(), [left] if left else [])
    asked = as_batch([post for chosen in learned for post in chosen])
    with found.without(as_batch(gone) if gone else as_batch([(9, [SOT, EOT])])):
        check_alike(look(found, asked), look(other, asked))


@quick
@given(rounds, numbers, few, limits, st.booleans())
def test_afterwards_nothing_has_changed(
    learned: list[list[Post]],
    numbers: list[int],
    few: dict[str, Any],
    limit: dict[str, Any],
    breaks: bool,
) -> None:
    found = learned_by(memory(**few, **limit), learned)
    gone = as_batch(some_of(learned, numbers) or [(0, [SOT, EOT])])
    before = stored(found.state())
    said = look(found, gone)
    try:
        with found.without(gone), found.without(gone):  # of several alike, two
            look(found, gone)
            assert not breaks or 1 / 0
    except ZeroDivisionError:
        assert breaks
    assert same(before, stored(found.state()))
    assert all(map(np.array_equal, said, look(found, gone)))
    again = learned_by(memory(**few, **limit), learned)
    for each in (found, again):
        each.learn(gone)
    assert same(stored(again.state()), stored(found.state()))


@quick
@given(rounds, numbers, few, st.sampled_from([2, 3]))
def test_processes_leave_out_what_one_does(
    learned: list[list[Post]], numbers: list[int], few: dict[str, Any], size: int
) -> None:
    alone, threads = learned_by(memory(**few), learned), Threads(size)
    gone = as_batch(some_of(learned, numbers) or [(0, [SOT, EOT])])
    with threads.as_processes():
        shares = threads.each(lambda _: learned_by(memory(**few), learned))
        before = [stored(held(share)) for share in shares]

        def ask(rank: int) -> Evidence:
            with shares[rank].without(gone):
                return look(shares[rank], gone)

        with alone.without(gone):
            expected = look(alone, gone)
        for found in threads.each(ask):
            assert all(map(np.array_equal, expected, found))
        for state, share in zip(before, shares, strict=True):
            assert same(state, stored(held(share)))


def held(share: Memory) -> dict[str, Any]:
    """All that a process has of a memory."""
    tables = [table for each in share.counts for table in (each.pairs, each.contexts)]
    counts = {str(n): {"words": t.words, **t.columns} for n, t in enumerate(tables)}
    chains = {str(n): {"heads": c.heads, "to": c.earlier} for n, c in enumerate(share._chains())}
    return {"posts": share.posts.state(), "counts": counts, "chains": chains}


def test_by_hand() -> None:
    found = memory()
    found.learn(as_batch([(0, [SOT, 2, 3, EOT]), (1, [SOT, 2, 4, EOT]), (0, [SOT, 2, 3, EOT])]))
    with found.without(as_batch([(0, [SOT, 2, 3, EOT])])):
        said = told(found, 0, [SOT, 2])
        assert said["all 1"].tolist() == said["all 2"].tolist() == [0, 0, 0, 0.5, 0.5, 0, 0]
        assert said["own 1"].tolist() == [0, 0, 0, 1, 0, 0, 0]
        assert "own, again 1" not in said
    with found.without(as_batch([(1, [SOT, 2, 3, EOT]), (0, [SOT, 2, EOT])])):  # nobody wrote these
        assert told(found, 0, [SOT, 2])["all 1"] == pytest.approx([0, 0, 0, 2 / 3, 1 / 3, 0, 0])
    assert told(found, 0, [SOT, 2])["own, again 1"].tolist() == [0, 0, 0, 1, 0, 0, 0]


def test_a_mixture_pays_more_for_what_it_leaves_out_and_goes_on_as_before() -> None:
    def mixed() -> Mixture:
        made = PREDICTORS.make(
            PREDICTORS.settings("mixture"), Setup(tiny("adapters")), [RawWeights()]
        )
        assert isinstance(made, Mixture) and made.leaves_out
        return made

    one, other = mixed(), mixed()
    *past, batch = stream(8)
    for each in past:
        one.learn(each)
        other.learn(each)
    for mixture in (one, other):
        mixture.pay(batch)
    before = one.pay(past[0]).nats
    one.pay(batch)
    with one.without(past[0]):
        assert one.pay(past[0]).nats.sum() > before.sum()
    assert np.array_equal(one.pay(past[0]).nats, before)
    with one.without(past[0]):
        one.pay(batch)
    for mixture in (one, other):
        mixture.learn(batch)
    assert same(stored(one.state()), stored(other.state()))
    alone = PREDICTORS.make(PREDICTORS.settings("model"), Setup(tiny("adapters")), [RawWeights()])
    assert not alone.leaves_out
    with alone.without(batch):
        alone.pay(batch)
