"""What it is worth to know who writes, drawn: by slices of the posts, and over users."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from firehose.experiments.gains import Slice, UserGain
from firehose.report.figures import BLUE, INK, LINE, VERMILION, above, blank, styled

COLOURS = (VERMILION, BLUE)  # of the methods, in their order; the best one comes last
MARKERS = ("s", "o")


@styled
def draw_slices(by_method: Mapping[str, Sequence[Slice]], about: str) -> Figure:
    """The gain of each slice as a dot with its interval, a row for each slice."""
    names = list(dict.fromkeys(each.name for found in by_method.values() for each in found))
    figure = blank(0.95 + 0.33 * len(names))
    axes = figure.add_subplot()
    for number, found in enumerate(by_method.values()):
        rows = [
            names.index(each.name) + 0.26 * (number - (len(by_method) - 1) / 2) for each in found
        ]
        for row, each in zip(rows, found, strict=True):
            axes.plot(
                [each.gain.low, each.gain.high], [row, row], color=COLOURS[number], linewidth=1
            )
        values = [each.gain.value for each in found]
        marker, colour = MARKERS[number], COLOURS[number]
        axes.plot(values, rows, linestyle="", marker=marker, markersize=4, color=colour)
    axes.axvline(0, color=INK, linewidth=0.8, zorder=0)
    axes.grid(axis="x")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_ylabel(about)
    _percent(axes, "x")
    axes.set_xlabel("perplexity falls by")
    _legend(axes, list(by_method))
    return figure


@styled
def draw_users(by_method: Mapping[str, Sequence[UserGain]]) -> Figure:
    """The gain of every user, from the one whom it helps least to the one whom it helps most."""
    figure = blank(2.6)
    axes = figure.add_subplot()
    for number, found in enumerate(by_method.values()):
        gains = np.sort([each.gain for each in found])
        share = (np.arange(len(gains)) + 0.5) / len(gains)
        axes.plot(share, gains, color=COLOURS[number], drawstyle="steps-mid")
    axes.axhline(0, color=INK, linewidth=0.8, zorder=0)
    axes.axvline(0.5, color=LINE, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.grid(axis="y")
    axes.set_xlim(0, 1)
    for axis in "xy":
        _percent(axes, axis)
    axes.set_xlabel("share of the users, those whom it helps least first")
    axes.set_ylabel("perplexity falls by")
    _legend(axes, list(by_method))
    return figure


def _percent(axes: Axes, which: str) -> None:
    """An axis in percent, with few numbers at it."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(6))
    minus = str.maketrans("-", "−")
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{100 * value:.4g} %".translate(minus))
    )


def _legend(axes: Axes, names: Sequence[str]) -> None:
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=1)
        for colour, marker in zip(COLOURS, MARKERS, strict=True)
    ]
    above(axes, names, handles[: len(names)], INK, length=1.6)
