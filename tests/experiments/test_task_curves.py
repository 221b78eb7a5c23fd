"""Figures of games with tasks: what is drawn is what came of them."""

import numpy as np
import pytest

from firehose.experiments.looks import Run
from firehose.experiments.task_curves import TASK_FIGURES, TaskRun, by_benchmark
from small_experiments import task_outcome


def runs() -> list[TaskRun]:
    """Two methods on one benchmark, one of them on another, too, with less accuracy."""
    less = task_outcome("Other").model_copy(update={"accuracy": task_outcome().accuracy / 2})
    return [
        Run("GEM", "gem", "online-gd", [task_outcome("One")]),
        Run("mixed", "mixed-replay", "congrad", [task_outcome("One")]),
        Run("mixed", "mixed-replay", "congrad", [less]),
    ]


def test_accuracy_through_time() -> None:
    one, other = by_benchmark(runs()).values()
    (axes,) = TASK_FIGURES["accuracy"].draw(one).axes
    gem, mixed, *ends = axes.lines
    assert np.asarray(gem.get_xdata()).tolist() == [0, 10, 20, 30]
    mean = [20, 130 / 3, 220 / 3, 60]
    assert np.asarray(gem.get_ydata(), float) == pytest.approx(mean)
    assert [np.asarray(line.get_xdata())[0] for line in ends] == [10, 20]  # where tasks end
    assert gem.get_linestyle() == "--" and mixed.get_linestyle() == "-"
    caption = TASK_FIGURES["accuracy"].caption
    assert "Dashed: Online GD." in caption([run.pair for run in one])
    assert "Dashed" not in caption([run.pair for run in other])


def test_accuracy_on_each_task() -> None:
    one, _ = by_benchmark(runs()).values()
    (axes,) = TASK_FIGURES["tasks"].draw(one).axes
    assert [text.get_text() for text in axes.texts] == ["50", "70", "60"] * 2
    assert [label.get_text() for label in axes.get_yticklabels()] == ["GEM", "mixed"]


def test_forgetting_and_forward_transfer() -> None:
    figure = TASK_FIGURES["transfer"].draw(runs())
    points = [
        [(float(line.get_xdata()[0]), int(line.get_ydata()[0])) for line in axes.lines[:3]]  # type: ignore[index,arg-type]
        for axes in figure.axes
    ]
    assert points[0] == [pytest.approx(each) for each in ((25, 0), (25, 1), (12.5, 1))]
    assert points[1] == [pytest.approx(each) for each in ((15, 0), (15, 1), (7.5, 1))]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["One", "Other"]


def test_forgetting_is_that_of_each_seed_averaged() -> None:
    """Two seeds at their best at different times: the average curve forgets less than either."""
    peaks = ([0.9, 0.1, 0.1], [0.1, 0.9, 0.1])
    seeds = [
        task_outcome("One").model_copy(
            update={
                "accuracy": np.array([[0.1, 0.1], *zip(first, [0.1] * 3, strict=True)]),
                "ends": np.array([1, 3]),
            }
        )
        for first in peaks
    ]
    (axes, _) = TASK_FIGURES["transfer"].draw([Run("GEM", "gem", "online-gd", seeds)]).axes
    assert np.asarray(axes.lines[0].get_xdata(), float) == pytest.approx([80])
