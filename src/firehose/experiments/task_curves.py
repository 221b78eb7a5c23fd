"""The figures of games with tasks: accuracy through time, on each task, forgetting and transfer."""

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from firehose.experiments.looks import Kind, looks, panels, says_dashed
from firehose.game.outcome import TaskOutcome
from firehose.report.figures import (
    BLUE,
    GREEN,
    GRID,
    INK,
    LINE,
    PURPLE,
    VERMILION,
    blank,
    key,
    styled,
)
from firehose.report.words import compact

DEEPEST = 0.6  # how much of its colour a cell with all pictures named rightly has
MARKS = (BLUE, VERMILION, GREEN, PURPLE)  # of benchmarks


class TaskRun(NamedTuple):
    """A game with tasks that is over, with one or several seeds."""

    name: str
    learner: str
    optimizer: str
    seeds: Sequence[TaskOutcome]

    @property
    def benchmark(self) -> str:
        """Its title."""
        return self.seeds[0].benchmark

    def mean(self) -> TaskOutcome:
        """The seeds averaged."""
        return TaskOutcome.mean(self.seeds)


Runs = Sequence[TaskRun]


@styled
def through_time(runs: Runs) -> Figure:
    """The mean accuracy over all tasks of one benchmark, as the stream goes on."""
    drawn = looks(_pairs(runs))
    figure, (axes,) = panels([run.name for run in runs], [look.handle() for look in drawn], [""])
    for run, look in zip(runs, drawn, strict=True):
        came = run.mean()
        mean = 100 * came.accuracy.mean(1)
        axes.plot(came.seen, mean, color=look.colour, linestyle=look.line)
    first = runs[0].seeds[0]
    for end in first.seen[first.ends][:-1]:
        axes.axvline(end, color=GRID, linewidth=0.8, zorder=0)
    axes.set_ylabel("accuracy over all tasks, %")
    axes.set_xlabel("pictures seen")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    return figure


@styled
def by_task(runs: Runs) -> Figure:
    """The accuracy on each task of one benchmark in the end."""
    figure = blank(0.9 + 0.26 * len(runs))
    axes = figure.add_subplot()
    rows = np.array([run.mean().accuracy[-1] for run in runs])
    shades = np.empty((*rows.shape, 4))
    shades[..., :3], shades[..., 3] = to_rgb(BLUE), DEEPEST * rows  # a page may be dark behind it
    axes.imshow(shades, aspect="auto", interpolation="nearest")
    for (row, task), value in np.ndenumerate(rows):
        axes.text(task, row, f"{100 * value:.0f}", ha="center", va="center_baseline", color=INK)
    axes.set_yticks(range(len(runs)), [run.name for run in runs])
    axes.set_xticks(range(rows.shape[1]), [str(task + 1) for task in range(rows.shape[1])])
    axes.set_xlabel("task, in the order of the stream")
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    return figure


@styled
def transfer(runs: Runs) -> Figure:
    """Forgetting and forward transfer of every run, a mark for each benchmark."""
    names = list(dict.fromkeys(run.name for run in runs))
    colours = dict(zip(dict.fromkeys(run.benchmark for run in runs), cycle(MARKS)))
    figure = blank(1.3 + 0.26 * len(names))
    both = figure.subplots(1, 2, sharey=True)
    labels = {"forgetting": "forgetting, points", "forward": "forward transfer, points"}
    for axes, (measure, label) in zip(both, labels.items(), strict=True):
        for run in runs:
            if found := [each for seed in run.seeds if (each := seed.totals(measure))]:
                mean = np.mean([each.value() for each in found])
                row, colour = names.index(run.name), colours[run.benchmark]
                axes.plot(mean, row, "o", markersize=5, color=colour)
        axes.set_xlabel(label)
        axes.grid(axis="x")
        axes.margins(x=0.12)
        axes.axvline(0, color=LINE, linewidth=0.8, zorder=0)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
    both[0].set_yticks(range(len(names)), names)
    both[0].set_ylim(len(names) - 0.5, -0.5)
    key(both[0], list(colours.items()), "o")
    both[0].get_legend().set_in_layout(False)  # it is above both
    figure.get_layout_engine().set(rect=(0, 0, 1, 0.93))  # type: ignore[union-attr,call-arg]
    return figure


def _pairs(runs: Runs) -> list[tuple[str, str]]:
    return [(run.learner, run.optimizer) for run in runs]


def by_benchmark(runs: Runs) -> dict[str, list[TaskRun]]:
    """The runs of each benchmark, by its title."""
    found: dict[str, list[TaskRun]] = {}
    for run in runs:
        found.setdefault(run.benchmark, []).append(run)
    return found


def _accuracy_caption(runs: Runs) -> str:
    about = (
        f"{runs[0].benchmark}. Accuracy over all tasks as the stream goes on; a line where "
        "a task ends."
    )
    return about + says_dashed(looks(_pairs(runs)))


def _tasks_caption(runs: Runs) -> str:
    return f"{runs[0].benchmark}. Accuracy on each task in the end, %."


def _transfer_caption(runs: Runs) -> str:
    about = (
        "Forgetting: how far each earlier task has fallen from its best since it was over. Forward "
        "transfer: how much better than before any training each task is just before it begins"
    )
    below = (
        "; where classes are disjoint, a model does not answer with those it has not seen, and "
        "falls below chance"
    )
    return about + below * any("Disjoint" in run.benchmark for run in runs) + "."


TASK_FIGURES: dict[str, Kind[Runs]] = {
    "accuracy": Kind(
        through_time,
        "Accuracy over all tasks against the pictures seen, a curve for each run",
        _accuracy_caption,
    ),
    "tasks": Kind(
        by_task,
        "Accuracy on each task in the end, a row for each run",
        _tasks_caption,
    ),
    "transfer": Kind(
        transfer,
        "Forgetting and forward transfer in points, a row for each run and a mark for each "
        "benchmark",
        _transfer_caption,
    ),
}
TOGETHER = ("transfer",)  # drawn once for all benchmarks, the others for each
