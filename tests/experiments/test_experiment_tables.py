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
