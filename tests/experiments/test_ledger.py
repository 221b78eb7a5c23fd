"""Ledgers: values and differences by hand, intervals that cover."""

from dataclasses import astuple
from types import SimpleNamespace

import numpy as np
import pytest

from firehose.experiments.ledger import Group, Value, difference
from firehose.game.totals import ACCURACY, PERPLEXITY, Scale, Totals
from small_experiments import group, paid, right, task_group, task_outcome


def value(mean: float, deviation: float | None, scale: Scale = PERPLEXITY) -> Value:
    """Nearly this one."""
    return Value(pytest.approx(mean), pytest.approx(deviation), scale)  # type: ignore[arg-type]


def test_a_value_is_that_of_the_average_loss_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = group(monkeypatch, paid([2, 4], [1, 2]), paid([3, 3], [1, 2]))
    assert runs.value("test") == value(np.exp(2), 0)
    apart = group(monkeypatch, paid([1], [1]), paid([4], [1]))
    deviation = (np.exp(4) - np.exp(1)) / np.sqrt(2)
    assert apart.value("test") == value(np.exp(2.5), deviation)
    ratio = group(monkeypatch, paid([3, 6], [1, 2]).less(paid([4, 2], [2, 4])))
    assert ratio.value("forgetting") == value(np.exp(3 - 1), None)


def test_a_difference_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    one = group(monkeypatch, paid([1, 2, 3], [1, 1, 1]))
    two = group(monkeypatch, paid([2, 3, 4], [1, 1, 1]))
    found = difference(one, two, "test", "test")
    # Every user costs one nat less a word, in any sample of them.
    assert found is not None and astuple(found)[:3] == pytest.approx((np.exp(-1) - 1,) * 3)


def test_users_who_are_hard_for_both_do_not_widen_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(0)
    hard = generator.normal(5, 3, 200)
    gains = generator.normal(0.1, 0.05, 200)
    words = np.ones(200)
    one = group(monkeypatch, paid(hard - gains, words))
    two = group(monkeypatch, paid(hard, words))
    found = difference(one, two, "test", "test")
    assert found is not None
    assert found.low < np.expm1(-gains.mean()) < found.high < 0
    assert found.high - found.low < 0.03  # and not exp(± 2 · 3 / √200)


def test_users_who_are_on_one_side_only_count_in_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(1)
    words, nats = np.ones(300), generator.normal(5, 0.1, 300)
    early = np.arange(300) < 200  # the others wrote only later
    nats[150:200] += 2  # dear, and only on one side
    one = group(monkeypatch, paid(nats * (np.arange(300) < 150), words * (np.arange(300) < 150)))
    two = group(monkeypatch, paid(nats * early, words * early))
    found = difference(one, two, "recent", "old")
    assert found is not None
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(np.expm1(nats[:150].mean() - nats[:200].mean()))


def test_seeds_that_disagree_widen_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [1.0] * 50
    base = paid([1.0] * 50, words)
    agree = group(monkeypatch, paid([0.9] * 50, words), paid([0.9] * 50, words))
    differ = group(monkeypatch, paid([0.6] * 50, words), paid([1.2] * 50, words))
    two = group(monkeypatch, base, base)
    close, wide = (difference(one, two, "test", "test") for one in (agree, differ))
    assert close is not None and wide is not None
    assert close.high < 0
    assert wide.value == pytest.approx(close.value)
    assert wide.low < close.low and wide.high > 0


def test_intervals_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        words = np.ones(80)
        gain = generator.normal(0.2, 0.5, 80)
        one = group(monkeypatch, paid(-gain, words))
        two = group(monkeypatch, paid(np.zeros(80), words))
        found = difference(one, two, "test", "test", seed)
        assert found is not None
        inside += found.low < np.expm1(-0.2) < found.high
    assert 51 <= inside <= 60


def test_runs_without_a_common_seed_or_measure_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = group(monkeypatch, paid([1], [1]))
    nothing = group(monkeypatch, None)
    assert difference(one, nothing, "test", "test") is None
    assert nothing.value("test") is None
    later = Group({}, (SimpleNamespace(paid=paid([1], [1]), seed=7),))  # type: ignore[arg-type]
    assert difference(one, later, "test", "test") is None


def test_accuracies_are_averaged_and_differ_by_points(monkeypatch: pytest.MonkeyPatch) -> None:
    one = group(monkeypatch, right([0.5, 0.7]), right([0.6, 0.8]))
    two = group(monkeypatch, right([0.6, 0.8]), right([0.8, 1.0]))
    assert one.value("accuracy") == value(65, 10 / np.sqrt(2), ACCURACY)
    found = difference(one, two, "accuracy", "accuracy")
    # Ten points with one seed, twenty with the other, whichever tasks are drawn.
    assert found is not None and astuple(found)[:3] == pytest.approx((-15, -20, -10))


def test_pictures_are_counted_where_tasks_are_not_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Totals(np.array([[30.0, 10.0]]), np.array([[40.0, 60.0]]), ACCURACY)
    expected = value(100 * (30 + 10) / (40 + 60), None, ACCURACY)
    assert group(monkeypatch, counted).value("accuracy") == expected


def test_intervals_of_accuracies_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        hard = generator.uniform(0.2, 0.6, 50)  # a task that is hard is so for both
        gain = generator.normal(0.1, 0.05, 50)
        one, two = (group(monkeypatch, right(shares)) for shares in (hard + gain, hard))
        found = difference(one, two, "accuracy", "accuracy", seed)
        assert found is not None and found.high - found.low < 5
        inside += found.low < 10 < found.high
    assert 51 <= inside <= 60


def test_measures_of_tasks_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    run = task_group(monkeypatch, task_outcome())
    expected = {"accuracy": 60, "forgetting": (40 + 10) / 2, "forward": (10 + 20) / 2}
    for measure in ("accuracy", "forgetting", "forward"):
        assert run.value(measure) == value(expected[measure], None, ACCURACY)
    assert run.value("test") is None


def test_what_has_other_units_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    five = group(monkeypatch, right([0.5] * 5))
    ten = group(monkeypatch, right([0.5] * 10))
    text = group(monkeypatch, paid([1] * 5, [1] * 5))
    assert difference(five, ten, "accuracy", "accuracy") is None
    assert difference(five, text, "accuracy", "test") is None
    assert difference(five, five, "accuracy", "accuracy") is not None


def test_numbers_have_as_many_digits_as_they_need() -> None:
    assert str(Value(126.51, 0.74)) == "126.5 ± 0.7"
    assert str(Value(1.0342)) == "1.034"
    assert str(Value(-4.26, 1.0, ACCURACY)) == "−4.3 ± 1.0"
