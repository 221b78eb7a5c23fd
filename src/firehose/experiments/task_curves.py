"""The figures of games with tasks: accuracy through time, on each task, forgetting and transfer."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from firehose.experiments.ledger import together
from firehose.experiments.looks import COLOURS, Kind, Run, captioned, count_axis, curves
from firehose.game.outcome import TaskOutcome
from firehose.report.figures import BLUE, GRID, INK, LINE, blank, key

DEEPEST = 0.6  # how much of its colour a cell with all pictures named rightly has

TaskRun = Run[Sequence[TaskOutcome]]  # with the outcome of each seed
Runs = Sequence[TaskRun]


@captioned("Accuracy over all tasks as the stream goes on; a line where a task ends.", "Dashed")
def through_time(runs: Runs) -> Figure:
    """Accuracy over all tasks of one benchmark against the pictures seen, a curve for each run."""

    def values(seeds: Sequence[TaskOutcome]) -> tuple[Any, ...]:
        came = TaskOutcome.mean(seeds)
        return came.seen, 100 * came.accuracy.mean(1)

    figure, (axes,) = curves(runs, values)
    first = runs[0].outcome[0]
    for end in first.seen[first.ends][:-1]:
        axes.axvline(end, color=GRID, linewidth=0.8, zorder=0)
    axes.set_ylabel("accuracy over all tasks, %")
    count_axis(axes, "pictures seen")
    return figure


@captioned("Accuracy on each task in the end, %.")
def by_task(runs: Runs) -> Figure:
    """Accuracy on each task of one benchmark in the end, a row for each run."""
    figure = blank(0.9 + 0.26 * len(runs))
    axes = figure.add_subplot()
    rows = np.array([TaskOutcome.mean(run.outcome).accuracy[-1] for run in runs])
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


@captioned(
    "Forgetting: how far the accuracy on each earlier task has fallen from its best value since "
    "the task was over. Forward transfer: how much better the accuracy on a task is just before "
    "the task begins than before any training. Where classes are disjoint, a model never answers "
    "with a class that it has not seen, and falls below chance."
)
def transfer(runs: Runs) -> Figure:
    """Forgetting and forward transfer in points, a row for each run, a mark for each benchmark."""
    names = list(dict.fromkeys(run.name for run in runs))
    colours = dict(zip(by_benchmark(runs), cycle(COLOURS[:4])))
    figure = blank(1.3 + 0.26 * len(names))
    both = figure.subplots(1, 2, sharey=True)
    labels = {"forgetting": "forgetting, points", "forward": "forward transfer, points"}
    for axes, (measure, label) in zip(both, labels.items(), strict=True):
        for run in runs:
            if found := [each for seed in run.outcome if (each := seed.totals(measure))]:
                mean = np.mean([each.value() for each in found])
                colour = colours[run.outcome[0].benchmark]
                axes.plot(mean, names.index(run.name), "o", markersize=5, color=colour)
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


def by_benchmark(runs: Runs) -> dict[str, list[TaskRun]]:
    """The runs of each benchmark, by its title."""
    return together(runs, lambda run: run.outcome[0].benchmark)


TASK_FIGURES: dict[str, Kind[Runs]] = {
    "accuracy": through_time,
    "tasks": by_task,
    "transfer": transfer,
}
TOGETHER = ("transfer",)  # drawn once for all benchmarks, the others for each
