"""The figures of games: online fit, retention, steps kept, cold start, quality by compute."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from firehose.experiments.looks import Kind, looks, pair_looks, panels, says_dashed
from firehose.experiments.naming import name_of
from firehose.report.figures import (
    INK,
    LINE,
    MUTED,
    RAMP,
    above,
    blank,
    note,
    styled,
)
from firehose.report.words import compact

if TYPE_CHECKING:
    from firehose.experiments.compare import Comparison

NARROW, WIDE = 5, 50  # by what factor a logarithmic axis ends above where it begins


@styled
def online_fit(found: "Comparison") -> Figure:
    """What the next batch cost, as the stream went on: on average so far, and at the time."""
    figure, both = _run_panels(found, ["on average so far", "at the time"])
    for run, (colour, line) in zip(found.runs, looks(found.pairs), strict=True):
        curve = run.outcome.curve
        window = np.exp(_smooth(np.log(curve.windowed)))
        for axes, values in zip(both, (curve.running, window), strict=True):
            axes.plot(curve.posts, values, color=colour, linestyle=line)
    for axes in both:
        for name, value, side in _floors(found):
            axes.axhline(value, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
            where = ((1, value), ("axes fraction", "data"))
            note(axes, name, where, (0, 2.5 * side), ha="right", va="bottom" if side > 0 else "top")
            axes.margins(y=0.1)  # room for the words below the last line
        _perplexity(axes)
    both[-1].set_xlabel("posts seen")
    both[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    return figure


@styled
def retention(found: "Comparison") -> Figure:
    """What the final model pays for the past: for posts of each age, and for all up to an age."""
    figure, both = _run_panels(found, ["on posts of that time", "on all posts since then"])
    for run, (colour, line) in zip(found.runs, looks(found.pairs), strict=True):
        past = run.outcome.retention
        for axes, values in zip(both, (past.bucket, past.back_to), strict=True):
            axes.plot(past.days / 365.25, values, color=colour, linestyle=line)
    for axes in both:
        _perplexity(axes)
    both[-1].invert_xaxis()
    both[-1].set_xlabel("years before the end of the stream")
    return figure


@styled
def cold_start(found: "Comparison") -> Figure:
    """How fast a new user becomes known."""
    figure, axes = _run_axes(found)
    for run, (colour, line) in zip(found.runs, looks(found.pairs), strict=True):
        parts = {int(n): part for n, part in run.outcome.cold_start.items() if n.isdigit()}
        values = [part.value for part in parts.values()]
        axes.plot(list(parts), values, color=colour, linestyle=line, marker="o", markersize=2.5)
    _perplexity(axes)
    axes.set_xlabel("a user's first post, second post, …")
    last = max(int(axes.dataLim.x1), 1)
    axes.set_xticks([1, *range(5, last + 1, 5)])
    return figure


@styled
def steps_kept(found: "Comparison") -> Figure:
    """How many of the steps of a round ConGraD keeps."""
    figure = blank(0.7 + 0.3 * max(len(found.runs), 2))
    axes = figure.add_subplot()
    most = max(len(run.outcome.kept) for run in found.runs)
    places = np.linspace(0, len(RAMP) - 1, max(most - 1, 1)).round().astype(int)
    colours = [LINE, *(RAMP[place] for place in places)]  # no step is grey
    for row, run in enumerate(found.runs):
        shares = np.array(run.outcome.kept, float) / sum(run.outcome.kept)
        for kept, (share, left) in enumerate(zip(shares, np.cumsum(shares) - shares, strict=True)):
            axes.barh(row, share, 0.62, left, color=colours[kept])
    axes.set_yticks(range(len(found.runs)), [run.name for run in found.runs])
    axes.set_ylim(len(found.runs) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_xlabel("share of the rounds")
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    handles = [Line2D([], [], linestyle="", marker="s", color=colour) for colour in colours[:most]]
    names = [str(n) for n in range(most - 1)] + [f"{most - 1} steps kept"]
    above(axes, names, handles, MUTED)
    return figure


@styled
def compute(found: "Comparison") -> Figure:
    """Quality against what it cost: a method that wins by computing more is seen to do so."""
    drawn = pair_looks(found.pairs)
    names = [f"{name_of(a)} × {name_of(b)}" for a, b in drawn]
    figure, (axes,) = panels(names, [look.handle("o") for look in drawn.values()], [""])
    style: dict[str, Any] = {"linewidth": 0.8, "marker": "o", "markersize": 4.5}
    for pair, look in drawn.items():
        runs = [run for run in found.runs if (run.learner, run.optimizer) == pair]
        steps = [run.outcome.compute["gradient steps"] for run in runs]
        values = [run.outcome.test.value for run in runs]
        on_top = 2 + (look.fill == "none")  # through what is hollow, the other is seen
        axes.plot(steps, values, color=look.colour, fillstyle=look.fill, zorder=on_top, **style)
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


def _run_axes(found: "Comparison") -> tuple[Figure, Axes]:
    """Axes with a legend of all runs."""
    figure, (axes,) = _run_panels(found, [""])
    return figure, axes


def _run_panels(found: "Comparison", titles: list[str]) -> tuple[Figure, list[Axes]]:
    """Panels one above the other, with a legend of all runs above the first."""
    names = [run.name for run in found.runs]
    handles = [look.handle() for look in looks(found.pairs)]
    return panels(names, handles, titles)


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


def _online_fit_caption(found: "Comparison") -> str:
    return (
        "Online fit: what the next batch cost before it was learned from. Above, on average from "
        "the first round on; below, over a few hundredths of the stream."
        + says_dashed(looks(found.pairs))
    )


def _retention_caption(found: "Comparison") -> str:
    return (
        "Retention: what the final model pays for posts it has seen, against how long ago they "
        "came; the newest are on the right. Above, for a sample of each stretch of time; below, "
        "for all posts since then, by the same samples." + says_dashed(looks(found.pairs))
    )


def _cold_start_caption(found: "Comparison") -> str:
    about = "Cold start: what the first posts of a user cost when they came, over all users."
    return about + says_dashed(looks(found.pairs))


def _steps_kept_caption(found: "Comparison") -> str:
    drawn = {run.optimizer for run in found.runs}
    parts = {
        "online-gd": " Online GD keeps all it takes.",
        "congrad": " ConGraD goes back to what was best on posts that were held back.",
    }
    return "Steps kept." + "".join(text for name, text in parts.items() if name in drawn)


def _compute_caption(found: "Comparison") -> str:
    drawn = {name for run in found.runs for name in (run.learner, run.optimizer)}
    parts = {
        "a-gem": " A-GEM's two gradients of a step are of half the posts each.",
        "congrad": " Steps that ConGraD took back count, too; what it spends on scoring "
        "candidates is not counted.",
    }
    told = "".join(text for name, text in parts.items() if name in drawn)
    return (
        "Quality against compute." + told + says_dashed(pair_looks(found.pairs).values(), "Hollow")
    )


FIGURES: dict[str, Kind["Comparison"]] = {
    "online-fit": Kind(
        online_fit,
        "Perplexity of the next batch against the posts seen so far, a curve for each run: "
        "the average so far, and the average over a window",
        _online_fit_caption,
    ),
    "retention": Kind(
        retention,
        "Perplexity of the final model on posts of the past, against their age: by stretch of "
        "time, and over all posts since then",
        _retention_caption,
    ),
    "cold-start": Kind(
        cold_start, "Perplexity on the first, second, … post of each user", _cold_start_caption
    ),
    "steps-kept": Kind(
        steps_kept,
        "Shares of the rounds by the number of steps that were kept",
        _steps_kept_caption,
    ),
    "compute": Kind(
        compute,
        "Test perplexity of each run against the number of its gradient steps",
        _compute_caption,
    ),
}
