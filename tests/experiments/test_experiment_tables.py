"""Tables: seeds averaged, cells by hand."""

from typing import Any

import numpy as np
import pytest

from firehose.errors import FirehoseError
from firehose.experiments import ledger
from firehose.experiments.ledger import Group
from firehose.experiments.recipe import TablePlan
from firehose.experiments.tables import make_details, make_tables, slice_table
from firehose.report.tables import Beside, Published
from small_experiments import group, outcome, paid, right, task_group, task_outcome


def test_seeds_are_averaged_as_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Perplexities of 20 and 80 are one of √(20 · 80) = 40, not of 50."""
    losses = [paid(np.log([20.0]), [1]), paid(np.log([80.0]), [1])]
    runs = group(monkeypatch, *losses, kind="play", **{"play.steps": "1"})
    plan = TablePlan.of({"rows": ["play.steps"], "published": {"1": 39.0}})
    deviation = np.std([20, 80], ddof=1)
    (made,) = make_tables(plan, [runs])
    assert made.rows == [["K = 1", Beside(f"40.0 ± {deviation:.1f}", "39.0")]]


def test_what_was_trained_offline_has_every_measure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    game = group(monkeypatch, paid(np.log([20.0]), [1]), kind="play", a="1", b="x")
    oracle = group(monkeypatch, paid(np.log([10.0]), [1]), kind="offline")
    plan = {"rows": ["a"], "measures": ["test", "balanced"], "published": {"offline": 19.0}}
    (made,) = make_tables(TablePlan.of(plan), [game, oracle])
    assert made.columns == ["", "test", "test, users alike"]
    assert made.rows[1] == ["offline oracle", Beside("10.0", "19.0"), Beside("10.0", "19.0")]
    (wide,) = make_tables(TablePlan.of(plan | {"columns": ["b"]}), [game, oracle])
    assert wide.rows[1] == made.rows[1]


PICTURES = {
    "title": "Accuracy",
    "rows": ["learner"],
    "columns": ["benchmark"],
    "measures": ["accuracy"],
    "also": ["differences"],
}


def test_cells_far_from_the_published_ones_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far is over 3 points and over two published deviations."""
    published: dict[str, Any] = {
        "gem": [81.4, 1.8],
        "icarl": [84.1, 1.2],
        "online": [19.3, 0.1],
        "mixed": 82.3,
    }
    off = {"gem": -3.7, "icarl": 2.9, "online": 3.1, "mixed": -3.1, "mine": 0.0}
    means = {name: each[0] if isinstance(each, list) else each for name, each in published.items()}
    found = [
        group(monkeypatch, right([(means.get(learner, 50.0) + change) / 100] * 5), kind="play",
              learner=learner, benchmark=benchmark)
        for learner, change in off.items()
        for benchmark in ("MNIST", "Fashion")
    ]  # fmt: skip
    plan = PICTURES | {"published": {name: {"MNIST": each} for name, each in published.items()}}
    shown, differences = make_tables(TablePlan.of(plan), found)
    assert shown.rows[0] == ["GEM", Beside("77.7", "81.4 ± 1.8"), "77.7"]
    assert differences.columns == ["", "benchmark MNIST"]  # nothing is published of the other one
    assert differences.rows == [
        ["GEM", "far −3.7"],
        ["iCaRL", "+2.9"],
        ["learner online", "far +3.1"],
        ["learner mixed", "far −3.1"],
    ]
    assert "far: by over 3 points" in differences.caption
    (shown,) = make_tables(TablePlan.of(PICTURES), found)  # nothing is published, nothing differs
    assert not make_details(TablePlan.of(PICTURES), found)


def test_what_is_published_may_have_a_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [right([0.2, 0.4]), right([0.3, 0.5])]
    run = group(monkeypatch, *seeds, kind="play", learner="gem", benchmark="A")
    missing = group(monkeypatch, None, kind="play", learner="gem", benchmark="B")
    plan = PICTURES | {"published": {"gem": {"A": [19.1, 3.5], "B": [9.5, 0.2]}}, "also": []}
    (made,) = make_tables(TablePlan.of(plan), [run, missing])
    deviation = 10 / np.sqrt(2)
    expected = Beside(f"35.0 ± {deviation:.1f}", "19.1 ± 3.5"), Published("9.5 ± 0.2")
    assert made.rows == [["GEM", *expected]]
    for wrong in ([1.0], [1.0, 2.0, 3.0], "9", ["a", 1], True):
        with pytest.raises(FirehoseError, match="number or \\[mean, deviation\\]"):
            TablePlan.of(plan | {"published": {"gem": {"A": wrong}}})


def test_accuracies_after_and_on_each_task_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    came = task_outcome("Disjoint MNIST")
    runs = [
        task_group(monkeypatch, came, learner="gem", benchmark="a", steps="1"),
        task_group(monkeypatch, came, learner="gem", benchmark="a", steps="3"),
        task_group(monkeypatch, task_outcome("Other"), learner="gem", benchmark="b", steps="1"),
    ]
    plan = PICTURES | {
        "rows": ["learner", "steps"],
        "measures": ["accuracy", "forgetting", "forward"],
        "also": ["after-tasks", "on-tasks"],
    }
    (main,) = make_tables(TablePlan.of(plan), runs)
    after, after_other, on, _ = make_details(TablePlan.of(plan), runs)
    assert main.columns[1:4] == [
        "benchmark a accuracy",
        "benchmark a forgetting",
        "benchmark a forward transfer",
    ]
    assert main.rows[0][:4] == ["GEM, steps 1", "60.0", "25.0", "15.0"]
    assert after.caption == "Disjoint MNIST: accuracy over all tasks after each task, %"
    assert after.columns == ["", "task 1", "task 2", "task 3"]
    assert after.rows == [[f"steps {k}", "43.3", "73.3", "60.0"] for k in (1, 3)]
    assert on.rows == [[f"steps {k}", "50.0", "70.0", "60.0"] for k in (1, 3)]
    assert after_other.caption.startswith("Other: ") and len(after_other.rows) == 1


def test_slices_have_a_row_for_each_run_with_seeds_averaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def games(name: str, *perplexities: float) -> Group:
        came = [outcome(each) for each in perplexities]
        return task_group(monkeypatch, *came, name=name)  # type: ignore[arg-type]

    runs = [games("plain", 20.0, 80.0), games("with memories", 10.0)]
    oracle = group(monkeypatch, paid([1], [1]), kind="offline", name="oracle")
    monkeypatch.setattr(ledger, "outcome", lambda job: getattr(job, "came", None))
    plan = TablePlan.of({"rows": ["name"], "also": ["earlier-posts", "gaps"]})
    by_history, by_gap = make_details(plan, [*runs, oracle])
    assert by_history.columns == ["", "none", "1 to 3"]
    assert by_history.rows == [
        ["posts", "4", "4"], ["plain", "40.0", "40.0"], ["with memories", "10.0", "10.0"],
    ]  # fmt: skip
    assert by_gap.columns == ["", "under an hour"] and "last post" in by_gap.caption
    assert not make_details(plan, [oracle])


def test_slices_that_an_older_result_lacks_are_left_out() -> None:
    new = outcome(10.0)
    old = new.model_copy(update={"by_history": {}})
    made = slice_table({"new": new.by_history, "old": old.by_history}, "x")
    assert made.columns == ["", "posts", "new", "old"] and not made.rows
