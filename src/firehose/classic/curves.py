"""The earlier benchmarks as figures."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from firehose.classic.methods import in_words
from firehose.classic.showing import Found, games, methods
from firehose.data.pictures.tasks import BENCHMARKS
from firehose.report.figures import (
    AMBER,
    BLUE,
    DASHED,
    GREEN,
    GRID,
    INK,
    LINE,
    MUTED,
    PURPLE,
    SKY,
    VERMILION,
    above,
    blank,
    key,
    styled,
)
from firehose.report.words import compact

COLOURS = {
    "GEM": PURPLE,
    "iCaRL": AMBER,
    "online": VERMILION,
    "replay": GREEN,
    "mixed": BLUE,
}
OTHERS = (INK, SKY, MUTED)  # of learners that are not in the paper's table
DEEPEST = 0.6  # how much of its colour a cell with all pictures named rightly has
MARKS = (BLUE, VERMILION, GREEN, PURPLE)  # of benchmarks


@styled
def through_time(found: Found, name: str) -> Figure:
    """The mean accuracy over all tasks as the stream goes on."""
    figure = blank(3.2)
    axes = figure.add_subplot()
    played = methods(found)
    handles = []
    for method, (colour, line) in zip(played, _looks(played), strict=True):
        first, *_ = each = games(found, name, method)
        mean = np.mean([game.accuracy.mean(1) for game in each], 0)
        handles += axes.plot(first.seen, 100 * mean, color=colour, linestyle=line)
    for end in first.seen[first.ends][:-1]:
        axes.axvline(end, color=GRID, linewidth=0.8, zorder=0)
    axes.set_ylabel("accuracy over all tasks, %")
    axes.set_xlabel("pictures seen")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.grid(axis="y")
    above(axes, list(map(in_words, played)), handles, INK, columns=4, length=1.5)
    return figure


@styled
def by_task(found: Found, name: str) -> Figure:
    """The accuracy on each task in the end."""
    played = methods(found)
    figure = blank(0.9 + 0.26 * len(played))
    axes = figure.add_subplot()
    rows = np.array(
        [
            np.mean([game.accuracy[-1] for game in games(found, name, method)], 0)
            for method in played
        ]
    )
    shades = np.empty((*rows.shape, 4))
    shades[..., :3], shades[..., 3] = to_rgb(BLUE), DEEPEST * rows  # a page may be dark behind it
    axes.imshow(shades, aspect="auto", interpolation="nearest")
    for (row, task), value in np.ndenumerate(rows):
        axes.text(task, row, f"{100 * value:.0f}", ha="center", va="center", color=INK)
    axes.set_yticks(range(len(played)), map(in_words, played))
    axes.set_xticks(range(rows.shape[1]), [str(task + 1) for task in range(rows.shape[1])])
    axes.set_xlabel("task, in the order of the stream")
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    return figure


@styled
def transfer(found: Found, names: Sequence[str]) -> Figure:
    """Forgetting and forward transfer of each method on each benchmark."""
    played = methods(found)
    figure = blank(1.3 + 0.26 * len(played))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, measure, label in zip(
        panels, ("forgetting", "forward"), ("forgetting, points", "forward transfer, points"),
        strict=True,
    ):  # fmt: skip
        for name, colour in zip(names, MARKS, strict=False):
            for row, method in enumerate(played):
                each = games(found, name, method)
                mean = 100 * np.mean([getattr(game, measure) for game in each])
                axes.plot(mean, row, marker="o", markersize=5, color=colour)
        axes.set_xlabel(label)
        axes.grid(axis="x")
        axes.margins(x=0.12)
        axes.axvline(0, color=LINE, linewidth=0.8, zorder=0)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
    panels[0].set_yticks(range(len(played)), map(in_words, played))
    panels[0].set_ylim(len(played) - 0.5, -0.5)
    key(panels[0], [(BENCHMARKS[n].title, c) for n, c in zip(names, MARKS, strict=False)], "o")
    panels[0].get_legend().set_in_layout(False)  # it is above both
    figure.get_layout_engine().set(rect=(0, 0, 1, 0.93))  # type: ignore[union-attr,call-arg]
    return figure


def _looks(played: Sequence[str]) -> list[tuple[str, Any]]:
    """The colour is the learner's; Online GD is dashed, as in the reports of other games."""
    parts = [method.partition(" ") for method in played]
    learners = [learner or first for first, _, learner in parts]
    others = dict.fromkeys(name for name in learners if name not in COLOURS)
    colours = COLOURS | dict(zip(others, cycle(OTHERS), strict=False))
    lines = [DASHED if first == "GD" else "-" for first, *_ in parts]
    return [(colours[name], line) for name, line in zip(learners, lines, strict=True)]
