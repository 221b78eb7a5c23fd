"""Claims: answered from the differences of runs."""

import pytest

from firehose.experiments.claims import Answer, Checked, Compared, check, tally
from firehose.experiments.recipe import ClaimPlan
from firehose.game.totals import Measured
from small_experiments import group, paid


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
    one = group(monkeypatch, paid(nats, [1]), kind="play", a="1")
    two = group(monkeypatch, paid([1], [1]), kind="play", a="2")
    plan = ClaimPlan.of({"says": "x", "lower": {"a": 1}, "higher": {"a": "2"}, "same": same})
    found = check(plan, [one, two], ["a"])
    assert found.verdict == verdict
    assert found.compared[0].label == "a 1 : a 2"


def test_within_compares_only_what_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        group(monkeypatch, paid([nats], [1]), kind="play", **{"play.optimizer": o, "play.steps": k})
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
    wide = Compared("a", Measured(0.0, -1.0, 1.0), "open")
    assert Checked("x", "test", (wide,)).verdict == "undecided"


def test_verdicts_are_counted_in_words() -> None:
    def checked(*answers: Answer) -> Checked:
        seen = tuple(Compared("a : b", Measured(0, -1, 1), answer) for answer in answers)
        return Checked("so", "test", seen)

    claims = [checked("yes")] * 3 + [checked("no"), checked("open"), checked("yes", "no")]
    assert tally(claims) == "3 hold, 1 holds in part, 1 does not, 1 undecided"
    assert tally([checked("yes"), checked("no"), checked("no"), checked()]) == (
        "1 holds, 2 do not, 1 not run"
    )
    assert tally([]) == ""
