"""Tables: seeds averaged, cells by hand."""

import numpy as np
import pytest

from firehose.experiments.recipe import TablePlan
from firehose.experiments.tables import table
from firehose.report.tables import Beside
from small_experiments import group, paid


def test_seeds_are_averaged_as_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Perplexities of 20 and 80 are one of √(20 · 80) = 40, not of 50."""
    losses = [paid(np.log([20.0]), [1]), paid(np.log([80.0]), [1])]
    runs = group(monkeypatch, *losses, kind="play", **{"play.steps": "1"})
    plan = TablePlan.of({"rows": ["play.steps"], "published": {"1": 39.0}})
    deviation = np.std([20, 80], ddof=1)
    assert table(plan, [runs]).rows == [["K = 1", Beside(f"40.0 ± {deviation:.1f}", "39.0")]]


def test_what_was_trained_offline_has_every_measure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    game = group(monkeypatch, paid(np.log([20.0]), [1]), kind="play", a="1", b="x")
    oracle = group(monkeypatch, paid(np.log([10.0]), [1]), kind="offline")
    plan = {"rows": ["a"], "measures": ["test", "balanced"], "published": {"offline": 9.0}}
    made = table(TablePlan.of(plan), [game, oracle])
    assert made.columns == ["", "test", "test, users alike"]
    assert made.rows[1] == ["offline oracle", Beside("10.0", "9.0"), Beside("10.0", "9.0")]
    wide = table(TablePlan.of(plan | {"columns": ["b"]}), [game, oracle])
    assert wide.rows[1] == made.rows[1]
