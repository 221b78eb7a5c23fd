"""What a memory tells of whom: nothing of who was forgotten, nothing that too few have written."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from firehose.methods.experts.memory import Memory
from firehose.methods.experts.posts import PER_POST, PER_TOKEN
from small_memories import EOT, PIECES, SOT, Plain, Post, as_batch, ask, memory, rounds, told

FORGOTTEN = 4
SECRET = [SOT, 2, 3, 4, 5, 6, 5, EOT]


@settings(max_examples=25, deadline=None)
@given(rounds, st.integers(1, 3), st.booleans())
def test_after_forgetting_it_answers_as_if_the_user_had_never_been_there(
    learned: list[list[Post]], min_users: int, limited: bool
) -> None:
    limit = {"per_user": 50} if limited else {}
    found, other = (memory(min_users=min_users, **limit) for _ in range(2))
    number = 0
    for chosen in learned:
        found.learn(as_batch(chosen))
        stay = [post for post in chosen if post[0] != FORGOTTEN]
        number += len(chosen) - len(stay)
        if stay:
            other.learn(as_batch(stay))
    assert found.forget(FORGOTTEN) == number
    state = found.state()
    posts = state["posts"]
    assert FORGOTTEN not in posts["user"].tolist() + posts["writers"].tolist()
    assert FORGOTTEN + 2 not in posts["owner"]
    for name in (*PER_POST, *PER_TOKEN):
        assert posts[name].tolist() == other.state()["posts"][name].tolist(), name
    for counts, expected in zip(found.counts, other.counts, strict=True):
        for table in ("pairs", "contexts"):
            one, two = getattr(counts, table), getattr(expected, table)
            assert content(one) == content(two)
    for user, post in itertools.chain(*learned):
        for length in range(1, len(post)):
            one, two = (ask(each, user, post[:length]) for each in (found, other))
            assert all(map(np.array_equal, one, two))


def content(table: Any) -> list[tuple[int, ...]]:
    """The rows of a table, wherever they are; which of enough users are noted is open."""
    columns = [table.words.ravel(), *(table[n] for n in table.kinds if not n.startswith("mark"))]
    return sorted(tuple(map(int, row)) for row in zip(*columns, strict=True) if row[0])


def test_of_posts_that_made_room_nothing_is_left_after_forgetting() -> None:
    found = memory(per_user=1)
    found.learn(as_batch([(FORGOTTEN, SECRET), (FORGOTTEN, [SOT, 2, EOT])]))
    found.forget(FORGOTTEN)
    assert not any(
        table.words.any() for each in found.counts for table in (each.pairs, each.contexts)
    )
    assert found.forget(FORGOTTEN) == 0


def tells(found: Memory, user: int) -> bool:
    """Whether everybody's part says anything of the secret to a user."""
    for length in range(1, len(SECRET)):
        said = told(found, user, SECRET[:length])
        if any(name.startswith("all") for name in said):
            return True
    return False


def test_everybody_s_part_tells_what_three_users_wrote_and_no_less() -> None:
    found = memory(min_users=3)
    for user in (0, 0, 1, 0, 1):
        found.learn(as_batch([(user, SECRET)] * 3))
        assert not tells(found, 2)
        assert not tells(found, user)
    assert "own 1" in told(found, 0, SECRET[:2])
    found.learn(as_batch([(2, SECRET)]))
    said = told(found, 5, SECRET[:5])
    assert said["all 3"][SECRET[5]] == said["all 4"][SECRET[5]] == 1
    assert said["all, newest 4"][SECRET[5]] == 1


def test_nor_does_the_gate_see_what_fewer_wrote() -> None:
    """How long a match is would tell that somebody wrote the same."""
    found, empty = memory(min_users=3), memory(min_users=3)
    found.learn(as_batch([(0, SECRET), (1, SECRET)]))
    for length in range(1, len(SECRET)):
        seen, expected = (ask(each, 2, SECRET[:length]).features for each in (found, empty))
        assert np.array_equal(seen, expected)
    found.learn(as_batch([(3, [*SECRET[:1], 6, *SECRET[2:]])]))
    after = [ask(found, 4, SECRET[:length]).features.max() for length in (2, len(SECRET) - 1)]
    assert after[0] < after[1]  # three have written its end, and two its beginning


def test_nobody_is_one_user() -> None:
    found = memory(min_users=2)
    found.learn(as_batch([(-1, SECRET)] * 9))
    assert not tells(found, 2)
    found.learn(as_batch([(0, SECRET)]))
    assert tells(found, 2)


@settings(max_examples=50, deadline=None)
@given(rounds, st.integers(2, 3), st.integers(0, 4), st.integers(10, 60), st.integers(1, 3))
def test_it_never_tells_what_too_few_of_the_kept_posts_say(
    learned: list[list[Post]], min_users: int, forgotten: int, tokens: int, per_user: int
) -> None:
    found = memory(min_users=min_users, tokens=tokens, per_user=per_user)
    plain = Plain(min_users, per_user, tokens)
    for number, chosen in enumerate(learned):
        found.learn(as_batch(chosen))
        plain.learn(chosen)
        if number == 2:
            found.forget(forgotten)
            plain.forget(forgotten)
        for _, post in chosen:
            for length in range(1, len(post)):
                allowed = plain.told(-1, post[:length])
                for name, said in told(found, -1, post[:length]).items():
                    assert not said[allowed.get(name, np.zeros(PIECES)) == 0].any(), name


def test_who_was_not_noted_counts_once_when_one_of_three_has_left() -> None:
    """Two of three users are noted; the third writes again after the first has left."""
    found, filler = memory(min_users=3, per_user=1), [SOT, 6, EOT]
    for user in (0, 1, 2):
        found.learn(as_batch([(user, SECRET)]))
    assert tells(found, 3)
    found.learn(as_batch([(0, filler)]))  # user 0's secret makes room
    found.learn(as_batch([(2, SECRET)]))
    assert not tells(found, 3)
