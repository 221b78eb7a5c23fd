"""A memory says what lists of the same posts say: what it keeps, finds, counts and forgets."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from firehose.batch import Batch
from firehose.methods.experts import memory as module
from firehose.methods.experts.chain import NONE, Chain, head
from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.counts import MOST
from firehose.methods.experts.memory import Memory
from small_memories import EOT, PIECES, SOT, Plain, Post, as_batch, ask, memory, rounds, told
from small_methods import same, stored

quick = settings(max_examples=30, deadline=None)
limits = st.fixed_dictionaries(
    {"per_user": st.none() | st.integers(0, 3), "tokens": st.none() | st.integers(1, 60)}
)
one_limit = limits.map(lambda both: both if None in both.values() else both | {"tokens": None})
texts = st.lists(st.integers(2, PIECES - 1), max_size=5).map(lambda text: [SOT, *text])


def check(found: Memory, plain: Plain, asked: list[tuple[int, list[int]]]) -> None:
    kept = found.posts.batch(np.flatnonzero(found.posts.kept[: found.posts.count]))
    assert [(user, tokens) for user, tokens in rows(kept)] == plain.posts
    for user, text in asked:
        expected, said = plain.told(user, text), told(found, user, text)
        assert said.keys() == expected.keys()
        for name, distribution in said.items():
            assert distribution == pytest.approx(expected[name], abs=1e-6), name


def rows(batch: Batch) -> list[Post]:
    cut = [
        batch.tokens[a:b].tolist() for a, b in zip(batch.offsets, batch.offsets[1:], strict=False)
    ]
    return list(zip(batch.user.tolist(), cut, strict=True))


asked = st.lists(st.tuples(st.integers(-1, 4), texts), min_size=1, max_size=3)


@quick
@given(rounds, limits, asked, st.integers(-1, 4))
@example(
    [[(0, [SOT, 2, 2, 2, 2, 2, 2, EOT])] * 2] * 3, {"per_user": 1, "tokens": 9}, [(0, [SOT])], 0
)
def test_it_says_what_lists_of_posts_say(
    learned: list[list[Post]], limit: dict[str, Any], asked: list[tuple[int, list[int]]], user: int
) -> None:
    found, plain = memory(**limit), Plain(**limit)
    for number, chosen in enumerate(learned):
        found.learn(as_batch(chosen))
        plain.learn(chosen)
        # Contexts that were there are asked for, too.
        check(found, plain, [*asked, *((post[0], post[1][:-1]) for post in chosen)])
        if number == len(learned) // 2 and user >= 0:
            assert found.forget(user) == plain.forget(user)
            check(found, plain, asked)


@quick
@given(rounds, limits, st.integers(0, 5), st.integers(1, 3))
def test_a_restored_memory_goes_on_to_the_same_bits(
    learned: list[list[Post]], limit: dict[str, Any], cut: int, min_users: int
) -> None:
    whole, again = (memory(**limit, min_users=min_users, matches=3) for _ in range(2))
    for chosen in learned[:cut]:
        whole.learn(as_batch(chosen))
    again.restore(stored(whole.state()))
    assert same(again.state(), whole.state())
    for chosen in learned[cut:]:
        for each in (whole, again):
            each.learn(as_batch(chosen))
        for user, text in chosen:
            one, other = (ask(each, user, text[:-1]) for each in (whole, again))
            assert all(map(np.array_equal, one, other))
    assert same(again.state(), whole.state())


@quick
@given(rounds, one_limit, asked)
def test_how_posts_are_cut_into_parts_makes_no_difference(
    learned: list[list[Post]], limit: dict[str, Any], asked: list[tuple[int, list[int]]]
) -> None:
    """Growing, compacting and linking anew happen at other times; what is said is the same."""
    one, other = memory(**limit), memory(**limit)
    one.learn(as_batch([post for chosen in learned for post in chosen]))
    for chosen in learned:
        for post in chosen:
            other.learn(as_batch([post]))
    for user, text in asked:
        assert all(map(np.array_equal, ask(one, user, text)[:2], ask(other, user, text)[:2]))


@quick
@given(rounds, st.integers(1, 3), st.integers(1, 3), asked)
def test_every_opinion_is_a_distribution_or_silent(
    learned: list[list[Post]], min_users: int, most: int, asked: list[tuple[int, list[int]]]
) -> None:
    found = memory(min_users=min_users, matches=most, own_matches=most, tokens=100)
    for chosen in learned:
        found.learn(as_batch(chosen))
    for user, text in [*asked, *((user, post[:-1]) for user, post in learned[0])]:
        said = ask(found, user, text)
        assert said.probability.sum(2) == pytest.approx(said.speaks.astype(float), abs=1e-6)
        assert (said.probability >= 0).all()
        assert len(said.speaks) == len(found.opinions)


def test_features_do_not_depend_on_the_pieces_asked_for() -> None:
    found = memory()
    found.learn(as_batch([(0, [SOT, 2, 3, 2, 3, 4, EOT]), (1, [SOT, 2, 3, 5, EOT])]))
    contexts = Contexts.of(as_batch([(0, [SOT, 2, 3, 2, 4, EOT])]), found.reach)
    one, other = (found.look(contexts, np.full((5, 1), piece)) for piece in (3, 4))
    assert np.array_equal(one.features, other.features)
    assert np.array_equal(one.speaks, other.speaks)
    assert not np.array_equal(one.probability, other.probability)
    every = found.look(contexts, np.tile(np.arange(PIECES), (5, 1)))
    assert np.array_equal(every.probability[:, :, 3:4], one.probability)


def test_of_many_matches_the_newest_are_looked_at() -> None:
    found = memory(matches=2, own_matches=3)
    for piece in (2, 2, 2, 3, 4, 4):
        found.learn(as_batch([(0, [SOT, 6, 6, 5, piece, EOT])]))
    said = told(found, 0, [SOT, 6, 6, 5])
    assert said["all 4"].tolist() == np.eye(PIECES)[4].tolist()
    assert said["own 4"] == pytest.approx((np.eye(PIECES)[3] + 2 * np.eye(PIECES)[4]) / 3)
    assert said["all 3"][2] == 0.5  # counts are of all


@quick
@given(rounds, rounds, st.integers(1, 3), st.integers(1, 2))
@example(  # two users whose contexts share a bucket
    [[(4, [SOT, 2, EOT]), (0, [SOT, 3, 2, EOT]), (4, [SOT, 2, EOT])]],
    [[(4, [SOT, 3, 2, EOT])]],
    2,
    1,
)
def test_a_place_in_a_post_and_the_same_after_a_text_are_told_the_same(
    learned: list[list[Post]], asked: list[list[Post]], most: int, min_users: int
) -> None:
    """What is carried on from place to place is found again where there is only the last one."""
    found = memory(matches=most, own_matches=most, min_users=min_users)
    for chosen in learned:
        found.learn(as_batch([(user, post[:6]) for user, post in chosen]))  # some without <EOT>
    for chosen in [*learned, *asked]:
        contexts = Contexts.of(as_batch(chosen), found.reach)
        every = found.look(contexts, np.tile(np.arange(PIECES), (len(contexts), 1)))
        texts = [(user, post[:end]) for user, post in chosen for end in range(1, len(post))]
        for place, (user, text) in enumerate(texts):
            for one, other in zip(every, ask(found, user, text), strict=True):
                assert np.array_equal(one[:, place], other[:, 0])


def test_an_old_text_is_followed_through_what_many_have_written() -> None:
    found = memory(matches=2, own_matches=2)
    found.learn(as_batch([(0, [SOT, 5, 2, 2, 3, 3, 4, 4, 6, EOT])]))
    for _ in range(9):
        found.learn(as_batch([(0, [SOT, 6, 2, 3, 3, 4, 4, 2, EOT])]))
    common, old = [SOT, 6, 2, 3, 3, 4, 4], [SOT, 5, 2, 2, 3, 3, 4, 4]
    assert told(found, 0, common)["all 4"].tolist() == np.eye(PIECES)[2].tolist()
    said, (newer, older) = told(found, 0, old), np.eye(PIECES)[[2, 6]]
    assert said["all 4"].tolist() == said["own 4"].tolist() == ((newer + older) / 2).tolist()
    assert said["all 6"].tolist() == said["own 6"].tolist() == older.tolist()


def test_a_chain_gives_places_newest_first_and_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    chosen = [(int(user), [SOT, *text.tolist(), EOT]) for user, text in zip(
        generator.integers(-1, 3, 400), generator.integers(2, PIECES, (400, 30)), strict=True
    )]  # fmt: skip
    monkeypatch.setattr(module, "AT_ONCE", 50)
    found = memory()
    found.learn(as_batch(chosen))
    assert len(found.longer[0].heads) > 1024 < len(found.own[0].heads)  # both were made anew
    for chain in (*found.longer, *found.own):
        contexts = Contexts.of(as_batch(chosen[-3:]), found.reach)
        _, before, first, *_ = links = chain.links()
        places = range(len(contexts))
        newest = [int(head(links, contexts.before, contexts.user, at, 0)) for at in places]
        assert set(newest) != {NONE}
        for place in set(newest) - {NONE}:
            walked = [place]
            while (earlier := int(before[walked[-1] - first])) != NONE:
                walked.append(earlier)
            assert walked == sorted(walked, reverse=True)
    plain = Plain()
    plain.learn(chosen)
    check(found, plain, [(user, post[:8]) for user, post in chosen[-5:]])


def test_a_chain_has_no_room_for_nobody_s_places() -> None:
    chain = Chain(1, by_user=True, tokens_per_bucket=4)
    batch = as_batch([(-1, [SOT, 2, 3, EOT])])
    chain.add(Contexts.of(batch, 1), np.array([1, 2, 3]))
    assert not len(chain.earlier)
    batch = as_batch([(0, [SOT, 2, 3, EOT])])
    chain.add(Contexts.of(batch, 1), np.array([1001, 1002, 1003]))
    assert len(chain.earlier) == 3


def test_a_count_that_went_as_far_as_it_can_is_counted_anew() -> None:
    """Posts that leave take nothing from it until then, as nobody knows how far it would be."""
    found, common, rare = memory(tokens=300_000), [SOT, 2, EOT], [SOT, 3, EOT]
    found.learn(as_batch([(0, common)] * (MOST + 14_465)))
    assert found.counts[0].is_full()
    assert times_counted(found, 2) == MOST
    found.learn(as_batch([(1, rare)] * 60_000))
    kept = found.posts.batch(np.flatnonzero(found.posts.kept[: found.posts.count]))
    assert times_counted(found, 2) == np.count_nonzero(kept.tokens == 2) == 40_000
    assert times_counted(found, 3) == 60_000


def times_counted(found: Memory, piece: int) -> int:
    """How often a piece followed <SOT>, as a memory of everybody's posts has counted."""
    contexts = Contexts.of_rows(np.array([[SOT]]), 0, found.reach)
    return int(found.counts[0].look(contexts, np.array([[piece]])).counts[0, 0, 0])


def test_a_memory_of_users_alone_keeps_nothing_of_nobody() -> None:
    found, everybody = memory(everybody=False), memory()
    for each in (found, everybody):
        each.learn(as_batch([(-1, [SOT, 2, 3, EOT]), (0, [SOT, 2, 4, EOT])]))
    assert (found.posts.count, everybody.posts.count) == (1, 2)
    assert told(found, 0, [SOT, 2]).keys() == {
        name for name in told(everybody, 0, [SOT, 2]) if name.startswith("own")
    }


def test_posts_that_left_take_no_room() -> None:
    limited, small = memory(tokens=3000), memory(tokens=3000)
    generator = np.random.default_rng(0)
    for number in range(300):
        text = generator.integers(2, 500, (10, 8))
        chosen = [(int(user), [SOT, *row.tolist(), EOT]) for user, row in enumerate(text)]
        limited.learn(as_batch(chosen))
        if number < 30:
            small.learn(as_batch(chosen))
    assert limited.nbytes < 2 * small.nbytes


@pytest.mark.parametrize("largest", [60_000, 65_535, 100_000])
def test_pieces_and_users_may_be_many(largest: int) -> None:
    found = memory()
    found.learn(as_batch([(3, [SOT, 5, 6, EOT])]))
    batch = as_batch([(largest, [SOT, 5, 6, EOT])])
    tokens = batch.tokens.astype(np.uint32)
    tokens[2] = largest
    found.learn(Batch(tokens, batch.offsets, batch.user, batch.time, batch.words))
    said = ask(found, largest, [SOT, 5], largest + 1)
    own = said.probability[found.opinions.index("own 2"), 0]
    assert own[largest] == 1
    assert said.probability[found.opinions.index("all 2"), 0, [6, largest]].tolist() == [0.5, 0.5]
