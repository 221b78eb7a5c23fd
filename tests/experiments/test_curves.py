"""Figures of games: what is drawn is what came of them."""

import numpy as np
import pytest

from firehose.experiments.compare import Comparison, Played
from firehose.experiments.curves import FIGURES
from firehose.game.outcome import averaged
from small_experiments import outcome


@pytest.mark.parametrize("name", ["online-fit", "retention", "cold-start", "compute"])
def test_seeds_are_averaged_as_losses(name: str) -> None:
    """Perplexities of 20 and 80 are drawn at √(20 · 80) = 40, not at 50."""
    mean = averaged([outcome(20), outcome(80)])
    played = Played("mine", "mixed-replay", "congrad", mean)
    figure = FIGURES[name].draw(Comparison("corpus", 3, 30, {}, [played]))
    lines = [np.asarray(line.get_ydata(), float) for axes in figure.axes for line in axes.lines]
    assert lines and np.concatenate(lines) == pytest.approx(40)
