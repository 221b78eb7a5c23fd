"""Metrics: perplexities by hand, slices that hold what they say, intervals that cover."""

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from firehose.data.corpus import Corpus
from firehose.game.metrics import (
    DAY,
    after_silence,
    by_activity,
    by_history,
    cold_start,
    forgetting,
    forward_transfer,
    online_fit,
    retention,
)
from firehose.game.scoring import Costs, past_sample

HOUR = DAY // 24


def costs(users: list[int], times: list[int], nats: list[float], words: list[int]) -> Costs:
    count = len(users)
    return Costs(
        np.array(nats, float),
        np.array(words, np.int64),
        np.full(count, 3),
        np.array(users, np.int64),
        np.array(times, np.int64),
        np.ones(count),
    )


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_online_fit_averages_the_loss_then_takes_the_exponential() -> None:
    paid = costs([0] * 4, [0, 1, 2, 3], [2.0, 4.0, 9.0, 1.0], [1, 2, 3, 1])
    curve = online_fit(paid, points=2)
    assert curve.posts.tolist() == [2, 4]
    assert curve.running == pytest.approx(np.exp([6 / 3, 16 / 7]))
    assert curve.windowed == pytest.approx(np.exp([6 / 3, 10 / 4]))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 50), st.integers(1, 60))
def test_online_fit_ends_with_everything(posts: int, points: int) -> None:
    paid = costs([0] * posts, list(range(posts)), list(range(posts)), [2] * posts)
    curve = online_fit(paid, points)
    assert curve.posts[-1] == posts
    assert curve.running[-1] == pytest.approx(paid.perplexity())
    assert len(curve.posts) == min(points, posts)


def test_cold_start_counts_the_posts_before() -> None:
    paid = costs([7, 8, 7, 7, 8], [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [1] * 5)
    found = cold_start(paid, generator(), most=2)
    first, second, later = found.values()
    assert list(found) == ["1", "2", "after 2"] and first.posts == 2
    assert first.value == pytest.approx(np.exp(1.5))
    assert second.value == pytest.approx(np.exp(4.0))
    assert later.posts == 1
    assert later.value == pytest.approx(np.exp(4))


def test_history_is_counted_in_wider_and_wider_slices() -> None:
    paid = costs([7] * 20 + [8], list(range(21)), [1.0] * 20 + [3.0], [1] * 21)
    found = by_history(paid, generator())
    assert {name: part.posts for name, part in found.items()} == {
        "none": 2, "1 to 3": 3, "4 to 15": 12, "16 to 63": 4,
    }  # fmt: skip
    assert found["none"].value == pytest.approx(np.exp(2))
    assert found["1 to 3"].value == pytest.approx(np.exp(1))


def test_after_silence_looks_at_the_user_s_own_last_post() -> None:
    times = [0, 10, HOUR // 2, 2 * HOUR + 10, 400 * DAY]
    paid = costs([7, 8, 7, 8, 7], times, [1, 2, 3, 4, 5], [1] * 5)
    found = after_silence(paid, generator())
    assert set(found) == {"under an hour", "under a day", "a year or more"}
    assert found["under an hour"].value == pytest.approx(np.exp(3))
    assert found["under a day"].value == pytest.approx(np.exp(4))
    assert found["a year or more"].value == pytest.approx(np.exp(5))


def test_activity_has_as_many_users_in_each_tenth() -> None:
    users = [user for user in range(20) for _ in range(user + 1)]
    paid = costs(users, list(range(len(users))), [float(u) for u in users], [1] * len(users))
    found = by_activity(paid, generator()).values()
    assert [part.posts for part in found] == [4 * n + 3 for n in range(10)]
    assert [part.value for part in found] == sorted(part.value for part in found)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(100):
        drawn = np.random.default_rng(seed)
        users = np.repeat(np.arange(60), 3)
        level = drawn.normal(2.0, 0.5, 60)  # users differ; their posts are alike
        nats = level[users] + drawn.normal(0, 0.1, len(users))
        paid = costs(users.tolist(), users.tolist(), nats.tolist(), [1] * len(users))
        found = paid.measured(np.random.default_rng(seed + 1000))
        assert found.low < found.value < found.high
        assert found.value == pytest.approx(paid.perplexity())
        inside += found.low < np.exp(2.0) < found.high
    assert 85 <= inside <= 100


def test_an_interval_of_one_user_is_a_point() -> None:
    paid = costs([3, 3], [0, 1], [2.0, 4.0], [1, 1])
    found = astuple(paid.measured(generator()))
    assert found == pytest.approx((np.exp(3), np.exp(3), np.exp(3), 2))


def test_the_past_is_sampled_by_stretches_of_time(small_corpus: Corpus) -> None:
    time = small_corpus.splits["train"].time
    chosen, weight = past_sample(time, each=5, buckets=4, seed=1)
    assert chosen.tolist() == past_sample(time, each=5, buckets=4, seed=1)[0].tolist()
    assert (np.diff(chosen) > 0).all()
    share = (time[chosen] - time[0]) / (time[-1] + 1 - time[0])
    there = np.bincount((4 * (time - time[0]) // (time[-1] + 1 - time[0])).astype(int), minlength=4)
    assert np.bincount((4 * share).astype(int), minlength=4).tolist() == [
        min(posts, 5) for posts in there
    ]
    assert weight.tolist() == [n / min(n, 5) for n in there for _ in range(min(n, 5))]
    chosen, weight = past_sample(time[:10], each=99, buckets=2)
    assert chosen.tolist() == list(range(10)) and weight.tolist() == [1] * 10


def test_retention_by_hand() -> None:
    paid = costs([0] * 4, [0, 2 * DAY, 8 * DAY, 9 * DAY], [1.0, 3.0, 2.0, 8.0], [1, 1, 2, 2])
    found = retention(paid, begin=0, end=10 * DAY, buckets=3)
    assert found.days.tolist() == [9.0, 1.5]  # and none for the bucket without posts
    assert found.bucket == pytest.approx(np.exp([2.0, 2.5]))
    assert found.back_to == pytest.approx(np.exp([14 / 6, 2.5]))


def test_averages_over_the_past_weigh_posts_not_buckets() -> None:
    """One of two old posts, and one of eight recent ones: weights 2 and 8."""
    paid = costs([0, 1], [0, 9 * DAY], [1.0, 3.0], [1, 2])._replace(weight=np.array([2.0, 8.0]))
    expected = (2 * 1.0 + 8 * 3.0) / (2 * 1 + 8 * 2)
    found = retention(paid, begin=0, end=10 * DAY, buckets=2)
    assert found.bucket == pytest.approx(np.exp([1.0, 1.5]))
    assert found.back_to == pytest.approx(np.exp([expected, 1.5]))
    assert paid.perplexity() == pytest.approx(np.exp(expected))
    assert paid.totals().value() == pytest.approx(np.exp(expected))
    assert paid.totals(users=5).value() == pytest.approx(np.exp(expected))


def test_forgetting_and_forward_transfer_by_hand() -> None:
    """Three tasks; the first is at its best after the second."""
    accuracy = np.array([[0.1, 0.2, 0.3], [0.7, 0.3, 0.3], [0.9, 0.8, 0.5], [0.5, 0.7, 0.6]])
    ends = np.array([1, 2, 3])
    assert forgetting(accuracy, ends) == pytest.approx([0.9 - 0.5, 0.8 - 0.7])
    assert forward_transfer(accuracy, ends) == pytest.approx([0.3 - 0.2, 0.5 - 0.3])


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_forgetting_and_forward_transfer_as_plain_loops(tasks: int, each: int, seed: int) -> None:
    accuracy = np.random.default_rng(seed).random((tasks * each + 1, tasks))
    ends = np.arange(1, tasks + 1) * each
    fallen, gained = [], []
    for task in range(tasks - 1):
        since = [accuracy[point, task] for point in range(ends[task], len(accuracy))]
        fallen.append(max(since) - since[-1])
        gained.append(accuracy[ends[task], task + 1] - accuracy[0, task + 1])
    assert forgetting(accuracy, ends).tolist() == pytest.approx(fallen)
    assert forward_transfer(accuracy, ends).tolist() == pytest.approx(gained)
