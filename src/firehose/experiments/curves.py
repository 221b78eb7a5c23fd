"""The figures of games: online fit, retention, steps kept, cold start, quality by compute."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from firehose.experiments.naming import name_of
from firehose.report.figures import (
    AMBER,
    BLUE,
    DASHED,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    RAMP,
    VERMILION,
    above,
    blank,
    note,
    render,
    styled,
)
from firehose.report.page import Figure as Picture
from firehose.report.words import compact

if TYPE_CHECKING:
    from firehose.experiments.compare import Comparison

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, AMBER, INK)
KNOWN = ("mixed-replay", "online-only", "replay-only", "a-gem")  # always in the same colour
NARROW, WIDE = 5, 50  # by what factor a logarithmic axis ends above where it begins


Look = tuple[str, object]  # colour, and line


def looks(found: "Comparison") -> list[Look]:
    """How each run is drawn: as its learner and optimizer, if these tell all runs apart."""
    pairs = [(run.learner, run.optimizer) for run in found.runs]
    if len(set(pairs)) < len(pairs):
        return [(COLOURS[n % len(COLOURS)], "-") for n in range(len(pairs))]
    look = pair_looks(found)
    return [look[pair] for pair in pairs]


def pair_looks(found: "Comparison") -> dict[tuple[str, str], Look]:
    """The colour is the learner's; Online GD is dashed."""
    pairs = dict.fromkeys((run.learner, run.optimizer) for run in found.runs)
    others = sorted({learner for learner, _ in pairs} - set(KNOWN))
    colour = dict(zip([*KNOWN, *others], COLOURS * 9, strict=False))
    return {pair: (colour[pair[0]], DASHED if pair[1] == "online-gd" else "-") for pair in pairs}


@styled
def online_fit(found: "Comparison") -> Figure:
    """What the next batch cost, as the stream went on."""
    figure, axes = _run_axes(found)
    for run, (colour, line) in zip(found.runs, looks(found), strict=True):
        curve = run.outcome.curve
        smooth = _smooth(np.log(curve.windowed))
        axes.plot(curve.posts, np.exp(smooth), color=colour, linestyle=line)
    for name, value, side in _floors(found):
        axes.axhline(value, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        where = ((1, value), ("axes fraction", "data"))
        note(axes, name, where, (0, 2.5 * side), ha="right", va="bottom" if side > 0 else "top")
        axes.margins(y=0.1)  # room for the words below the last line
    _perplexity(axes)
    axes.set_xlabel("posts seen")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    return figure


@styled
def retention(found: "Comparison") -> Figure:
    """What the final model pays for the past."""
    figure, axes = _run_axes(found)
    for run, (colour, line) in zip(found.runs, looks(found), strict=True):
        past = run.outcome.retention
        axes.plot(past.days / 365.25, past.bucket, color=colour, linestyle=line)
    _perplexity(axes)
    axes.invert_xaxis()
    axes.set_xlabel("years before the end of the stream")
    return figure


@styled
def cold_start(found: "Comparison") -> Figure:
    """How fast a new user becomes known."""
    figure, axes = _run_axes(found)
    for run, (colour, line) in zip(found.runs, looks(found), strict=True):
        parts = {int(n): part for n, part in run.outcome.cold_start.items() if n.isdigit()}
        values = [part.value for part in parts.values()]
        axes.plot(list(parts), values, color=colour, linestyle=line, marker="o", markersize=2.5)
    _perplexity(axes)
    axes.set_xlabel("a user's first post, second post, …")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


@styled
def steps_kept(found: "Comparison") -> Figure:
    """How many of the steps of a round ConGraD keeps."""
    figure = blank(0.7 + 0.3 * max(len(found.runs), 2))
    axes = figure.add_subplot()
    most = max(len(run.outcome.kept) for run in found.runs)
    colours = [RAMP[round(n * (len(RAMP) - 1) / max(most - 1, 1))] for n in range(most)]
    for row, run in enumerate(found.runs):
        shares = np.array(run.outcome.kept, float) / sum(run.outcome.kept)
        for kept, (share, left) in enumerate(zip(shares, np.cumsum(shares) - shares, strict=True)):
            axes.barh(row, share, 0.62, left, color=colours[kept])
    axes.set_yticks(range(len(found.runs)), [run.name for run in found.runs])
    axes.set_ylim(len(found.runs) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.set_xlabel("share of the rounds")
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    handles = [Line2D([], [], linestyle="", marker="s", color=colour) for colour in colours]
    names = [str(n) for n in range(most - 1)] + [f"{most - 1} steps kept"]
    above(axes, names, handles, MUTED)
    return figure


@styled
def compute(found: "Comparison") -> Figure:
    """Quality against what it cost: a method that wins by computing more is seen to do so."""
    look = pair_looks(found)
    handles = [_handle(*each, marker="o") for each in look.values()]
    figure, axes = _axes([f"{name_of(a)} × {name_of(b)}" for a, b in look], handles)
    for pair, (colour, line) in look.items():
        runs = [run for run in found.runs if (run.learner, run.optimizer) == pair]
        steps = [run.outcome.compute["gradient steps"] for run in runs]
        values = [run.outcome.test.value for run in runs]
        fill = "full" if line == "-" else "none"
        axes.plot(steps, values, "o-", color=colour, fillstyle=fill, linewidth=0.8, markersize=4.5)
    if found.oracle is not None:
        axes.axhline(found.oracle, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        where = ((1, found.oracle), ("axes fraction", "data"))
        note(axes, "trained offline", where, (0, 2.5), ha="right")
    _perplexity(axes)
    axes.set_ylabel("test perplexity (logarithmic)")
    axes.set_xlim(0, 1.05 * max(run.outcome.compute["gradient steps"] for run in found.runs))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.set_xlabel("gradient steps taken")
    return figure


def _handle(colour: str, line: object, marker: str = "") -> Line2D:
    fill = "full" if line == "-" else "none"
    line = "" if marker else line
    return Line2D([], [], color=colour, linestyle=line, marker=marker, fillstyle=fill)  # type: ignore[arg-type]


def _run_axes(found: "Comparison") -> tuple[Figure, Axes]:
    """Axes with a legend of all runs."""
    return _axes([run.name for run in found.runs], [_handle(*look) for look in looks(found)])


def _axes(names: list[str], handles: list[Line2D]) -> tuple[Figure, Axes]:
    figure = blank(2.7 + 0.16 * -(-len(names) // 2))
    axes = figure.add_subplot()
    above(axes, names, handles, INK, columns=2, length=1.8)
    axes.grid(axis="y")
    return figure, axes


def _perplexity(axes: Axes) -> None:
    """A logarithmic axis with enough numbers at it, and not too many."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ends = (1, 2, 5) if high / low < WIDE else (1,)
    near = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
    axes.yaxis.set_major_locator(near if high / low < NARROW else LogLocator(10, ends))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("word perplexity (logarithmic)")


def _plain(value: float) -> str:
    """10,000, 250, 7.5: as many digits as tell the numbers of an axis apart."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _floors(found: "Comparison") -> list[tuple[str, float, int]]:
    """What nobody can do better than, and whether to say so above the line (1) or below (−1)."""
    if not found.floors:
        return []
    floor = found.floors["train"]
    return [
        ("best possible, not knowing the user", floor.agnostic, 1),
        ("best possible, knowing the user", floor.personalized, -1),
    ]


def _smooth(values: NDArray[np.float64], width: int = 9) -> NDArray[np.float64]:
    """The mean of each value and its neighbours; fewer of them at the ends."""
    kernel = np.ones(min(width, len(values)))
    weight = np.convolve(np.ones(len(values)), kernel, mode="same")
    smooth: NDArray[np.float64] = np.convolve(values, kernel, mode="same") / weight
    return smooth


class Kind(NamedTuple):
    """A kind of figure, and what to say about it."""

    draw: Callable[["Comparison"], Figure]
    description: str  # for those who cannot see it
    caption: str

    def block(self, figure: Figure) -> Picture:
        """A drawn figure for a page."""
        return Picture(render(figure, "svg").decode(), self.caption, self.description)


FIGURES = {
    "online-fit": Kind(
        online_fit,
        "Perplexity of the next batch against the posts seen so far, a curve for each run",
        "Online fit: what the next batch cost before it was learned from, averaged over a few "
        "hundredths of the stream. Solid: ConGraD, dashed: Online GD.",
    ),
    "retention": Kind(
        retention,
        "Perplexity of the final model on posts of the past, against their age",
        "Retention: what the final model pays for a sample of the posts it has seen, against how "
        "long ago they came; the newest are on the right.",
    ),
    "cold-start": Kind(
        cold_start,
        "Perplexity on the first, second, … post of each user",
        "Cold start: what the first posts of a user cost when they came, over all users.",
    ),
    "steps-kept": Kind(
        steps_kept,
        "Shares of the rounds by the number of steps that were kept",
        "Steps kept. Online GD keeps all it takes; ConGraD goes back to what was best on posts "
        "that were held back.",
    ),
    "compute": Kind(
        compute,
        "Test perplexity of each run against the number of its gradient steps",
        "Quality against compute: steps that were taken back count, too. A-GEM's two gradients "
        "of a step are of half the posts each; what ConGraD spends on scoring candidates is not "
        "counted. Full: ConGraD, hollow: Online GD.",
    ),
}
