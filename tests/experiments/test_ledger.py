"""Ledgers: values and differences by hand, intervals that cover, claims answered from them."""

from types import SimpleNamespace

import numpy as np
import pytest

from firehose.experiments import ledger as books
from firehose.experiments.ledger import Difference, Entry, Group, difference
from firehose.experiments.recipe import ClaimPlan
from firehose.experiments.showing import Checked, Compared, check


def entry(nats: list[float], words: list[float], sign: int = 1) -> Entry:
    return Entry(sign, np.array(nats), np.array(words))


def group(monkeypatch: pytest.MonkeyPatch, *seeds: list[Entry], **facts: str) -> Group:
    """Runs with these ledgers, seed by seed."""
    if not hasattr(books, "_by_hand"):
        monkeypatch.setattr(books, "_by_hand", {}, raising=False)
        monkeypatch.setattr(books, "ledger", lambda job, _: books._by_hand[job.name])  # type: ignore[attr-defined]
    jobs = []
    for seed, book in enumerate(seeds):
        name = f"{len(books._by_hand)}"  # type: ignore[attr-defined]
        books._by_hand[name] = book  # type: ignore[attr-defined]
        jobs.append(SimpleNamespace(name=name, seed=seed))
    return Group(facts, tuple(jobs))  # type: ignore[arg-type]


def test_a_value_is_the_mean_of_perplexities_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = group(monkeypatch, [entry([2, 4], [1, 2])], [entry([3, 3], [1, 2])])
    value = runs.value("test")
    assert value is not None
    assert value.mean == pytest.approx(np.exp(2))
    assert (value.deviation, value.seeds) == (0.0, 2)
    ratio = group(monkeypatch, [entry([3, 6], [1, 2]), entry([4, 2], [2, 4], sign=-1)])
    value = ratio.value("forgetting")
    assert value is not None
    assert value.mean == pytest.approx(np.exp(3 - 1))
    assert value.deviation is None


def test_a_difference_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    one = group(monkeypatch, [entry([1, 2, 3], [1, 1, 1])])
    two = group(monkeypatch, [entry([2, 3, 4], [1, 1, 1])])
    found = difference(one, two, "test", "test")
    # Every user costs one nat less a word, in any sample of them.
    assert found == pytest.approx((np.exp(-1) - 1,) * 3)


def test_users_who_are_hard_for_both_do_not_widen_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(0)
    hard = generator.normal(5, 3, 200)
    gains = generator.normal(0.1, 0.05, 200)
    words = np.ones(200)
    one = group(monkeypatch, [Entry(1, hard - gains, words)])
    two = group(monkeypatch, [Entry(1, hard, words)])
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
    one = group(
        monkeypatch, [Entry(1, nats * (np.arange(300) < 150), words * (np.arange(300) < 150))]
    )
    two = group(monkeypatch, [Entry(1, nats * early, words * early)])
    found = difference(one, two, "recent", "old")
    assert found is not None
    assert found.low < found.change < found.high
    assert found.change == pytest.approx(np.expm1(nats[:150].mean() - nats[:200].mean()))


def test_seeds_that_disagree_widen_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [1.0] * 50
    base = [entry([1.0] * 50, words)]
    agree = group(monkeypatch, [entry([0.9] * 50, words)], [entry([0.9] * 50, words)])
    differ = group(monkeypatch, [entry([0.6] * 50, words)], [entry([1.2] * 50, words)])
    two = group(monkeypatch, base, base)
    close, wide = (difference(one, two, "test", "test") for one in (agree, differ))
    assert close is not None and wide is not None
    assert close.high < 0
    assert wide.change == pytest.approx(close.change)
    assert wide.low < close.low and wide.high > 0


def test_intervals_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        words = np.ones(80)
        gain = generator.normal(0.2, 0.5, 80)
        one = group(monkeypatch, [Entry(1, -gain, words)])
        two = group(monkeypatch, [Entry(1, np.zeros(80), words)])
        found = difference(one, two, "test", "test", seed)
        assert found is not None
        inside += found.low < np.expm1(-0.2) < found.high
    assert 51 <= inside <= 60


def test_runs_without_a_common_seed_or_measure_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = group(monkeypatch, [entry([1], [1])])
    nothing = group(monkeypatch, [])
    assert difference(one, nothing, "test", "test") is None
    assert nothing.value("test") is None
    later = Group({}, (SimpleNamespace(name="0", seed=7),))  # type: ignore[arg-type]
    assert difference(one, later, "test", "test") is None


@pytest.mark.parametrize(
    ("nats", "same", "verdict"),
    [
        ([0.5], None, "holds"),
        ([1.5], None, "does not hold"),
        ([1.005], 0.02, "holds"),
        ([1.5], 0.02, "does not hold"),
        ([0.5], 0.02, "does not hold"),
    ],
)
def test_a_claim_is_answered(
    monkeypatch: pytest.MonkeyPatch, nats: list[float], same: float | None, verdict: str
) -> None:
    one = group(monkeypatch, [entry(nats, [1])], kind="play", a="1")
    two = group(monkeypatch, [entry([1], [1])], kind="play", a="2")
    plan = ClaimPlan.of({"says": "x", "lower": {"a": 1}, "higher": {"a": "2"}, "same": same})
    found = check(plan, [one, two], ["a"])
    assert found.verdict == verdict
    assert found.compared[0].label == "a 1 : a 2"


def test_within_compares_only_what_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        group(
            monkeypatch, [entry([nats], [1])], kind="play", **{"play.optimizer": o, "play.steps": k}
        )
        for o, k, nats in (
            ("congrad", "1", 1.0),
            ("congrad", "3", 3.0),
            ("online-gd", "1", 2.0),
            ("online-gd", "3", 2.0),
        )
    ]
    plan = ClaimPlan.of(
        {
            "says": "x",
            "lower": {"play.optimizer": "congrad"},
            "higher": {"play.optimizer": "online-gd"},
            "within": ["play.steps"],
        }
    )
    found = check(plan, made, ["play.optimizer", "play.steps"])
    assert [each.label for each in found.compared] == [
        "K = 1, ConGraD : Online GD",
        "K = 3, ConGraD : Online GD",
    ]
    assert [each.answer for each in found.compared] == ["yes", "no"]
    assert found.verdict == "holds in 1 of 2, not in 1"


def test_a_claim_without_runs_is_not_run() -> None:
    assert Checked("x", "test", ()).verdict == "not run"
    wide = Compared("a", Difference(0.0, -1.0, 1.0), "open")
    assert Checked("x", "test", (wide,)).verdict == "undecided"
