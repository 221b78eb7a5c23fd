"""Runs on one corpus, and their figures: through time, back in time, and by what they cost."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from firehose.data.corpus import Corpus, Floor
from firehose.experiments.bands import Band, ratio_bands, smooth
from firehose.experiments.ledger import Group, seconds
from firehose.experiments.looks import (
    Kind,
    Run,
    captioned,
    count_axis,
    curves,
    looks,
    pair_looks,
    panels,
)
from firehose.experiments.naming import measure_name, name_of
from firehose.experiments.recipe import Shown
from firehose.game.baseline import Price, read_baseline
from firehose.game.outcome import Outcome
from firehose.game.totals import PERPLEXITY, Measured
from firehose.report.figures import INK, LINE, MUTED, RAMP, above, blank, note
from firehose.report.tables import Cell, Table, Verdict
from firehose.report.words import interval, perplexity

FLAT = 2.0  # how far below the curves the best possible may be, as a factor, to be drawn
NARROW, WIDE = 5, 50  # by what factor a logarithmic axis ends above where it begins


DIFFERENCES: tuple[Shown, ...] = ("online", "test", "balanced")  # what runs are compared by


class Difference(NamedTuple):
    """By what factor a run's perplexity is that of the baseline, less one."""

    run: str
    measure: Shown
    change: Measured

    @property
    def verdict(self) -> str:
        """In one word; a lower perplexity is better."""
        return "better" if self.change.high < 0 else "worse" if self.change.low > 0 else "undecided"


class Comparison(NamedTuple):
    """Runs on one corpus."""

    corpus: str
    users: int
    posts: int
    floors: dict[str, Floor]  # the best possible, where the true model is known
    runs: list[Run[Outcome]]
    oracle: float | None = None  # test perplexity of a model that was trained offline
    prices: Sequence[Price] = ()  # what the stream costs compressors, where that was measured
    groups: Sequence[Group] = ()  # the seeds of each run, in the same order, where they are known
    baseline: str | None = None  # the run that the others are compared with
    differences: Sequence[Difference] = ()

    @classmethod
    def of(cls, corpus: Corpus, runs: list[Run[Outcome]], oracle: float | None = None) -> Self:
        """With what the corpus says of itself."""
        about = corpus.manifest
        posts, floors = about.posts["train"], about.floor or {}
        priced = read_baseline(corpus)
        prices = priced.prices if priced else ()
        return cls(corpus.name, about.users, posts, floors, runs, oracle, prices)

    def table(self) -> Table:
        """What each run came to, and the best possible."""
        rows = []
        for run in self.runs:
            came = run.outcome
            numbers = (came.online, came.test, came.test_balanced, came.test_per_token)
            online, test, balanced, per_token = (perplexity(number.value) for number in numbers)
            between = f"{perplexity(came.test.low)} – {perplexity(came.test.high)}"
            spent = f"{came.compute['gradient steps']:,.0f}", f"{seconds(came.compute):,.0f}"
            rows.append([run.name, online, test, between, balanced, per_token, *spent])
        rows += [[price.name, perplexity(price.perplexity), *[""] * 6] for price in self.prices]
        if self.floors:
            train, held = self.floors["train"], self.floors["test"]
            known = perplexity(train.personalized), perplexity(held.personalized)
            unknown = perplexity(train.agnostic), perplexity(held.agnostic)
            rows.append(["best possible, knowing the user", *known, "", "", "", "", ""])
            rows.append(["best possible, not knowing the user", *unknown, "", "", "", "", ""])
        heads = ["", "online", "test", "95 % of samples", "users alike", "per token"]
        return Table([*heads, "steps", "seconds"], rows)

    def changes(self) -> Table:
        """What each run differs by from the baseline."""
        rows: list[list[Cell]] = []
        for each in self.differences:
            change = each.change
            value, low, high = interval(*(100 * x for x in (change.value, change.low, change.high)))
            name = measure_name(each.measure, PERPLEXITY)
            rows.append([each.run, name, f"{value} %", f"{low} … {high} %", Verdict(each.verdict)])
        heads = ["", "measure", "change", "95 % of samples", "verdict"]
        return Table(heads, rows, f"Perplexity against {self.baseline}", labels=2)


@captioned(
    "Online fit: what the next batch cost before it was learned from. Above, on average from the "
    "first round on; below, over a few hundredths of the stream.",
    "Dashed",
)
def online_fit(found: Comparison) -> Figure:
    """Perplexity of the next batch against the posts seen: on average so far, and at the time."""

    def values(came: Outcome) -> tuple[Any, ...]:
        curve = came.curve
        return curve.posts, curve.running, np.exp(smooth(np.log(curve.windowed)))

    figure, both = curves(found.runs, values, ["on average so far", "at the time"])
    for axes in both:
        if found.floors:
            floor = found.floors["train"]
            _floor(axes, "best possible, not knowing the user", floor.agnostic)
            _floor(axes, "best possible, knowing the user", floor.personalized, below=True)
            axes.margins(y=0.1)  # room for the words below the last line
        drawn = [price for price in found.prices if not price.is_simple]
        for place, price in enumerate(drawn):  # side by side, for they may be close to each other
            _line(axes, price.name, price.perplexity, right=1 - place / len(drawn))
        _perplexity(axes)
    count_axis(both[-1], "posts seen")
    return figure


@captioned(
    "Against the baseline: below 1 the next batch was cheaper, above 1 it was more expensive, as "
    "the stream went on. Above, on average from the first round on; below, at the time. Shaded: "
    "95 % of samples of users and seeds.",
    "Dashed",
)
def ratio(found: Comparison) -> Figure:
    """Perplexity of the next batch as a multiple of the baseline's, against the posts seen."""
    base = next(run for run in found.runs if run.name == (found.baseline or found.runs[0].name))
    others = [run for run in found.runs if run is not base] or [base]
    zero = base.outcome.curve

    def values(came: Outcome) -> tuple[Any, ...]:
        curve, so_far = came.curve, np.log(came.curve.running / zero.running)
        return curve.posts, np.exp(so_far), np.exp(smooth(np.log(curve.windowed / zero.windowed)))

    figure, both = curves(others, values, ["on average so far", "at the time"])
    for run, look in zip(others, looks([run.pair for run in others]), strict=True):
        for axes, band in zip(both, _bands(found, run, base), strict=False):
            x = run.outcome.curve.posts
            axes.fill_between(x, *band, color=look.colour, alpha=0.12, linewidth=0)
            for edge in band:  # drawn as the curve is, to tell two bands of one colour apart
                axes.plot(x, edge, color=look.colour, linestyle=look.line, linewidth=0.5, alpha=0.6)
    for axes in both:
        axes.axhline(1, color=MUTED, linewidth=0.8)
        axes.set_ylabel(f"as a multiple of\n{base.name}")
    count_axis(both[-1], "posts seen")
    return figure


@captioned(
    "Retention: what the final model pays for posts it has seen, against how long ago they came. "
    "Above, for a sample of each stretch of time; below, for all posts since then.",
    "Dashed",
)
def retention(found: Comparison) -> Figure:
    """Perplexity of the final model on past posts, by their age: at that age, and up to it."""

    def values(came: Outcome) -> tuple[Any, ...]:
        past = came.retention
        return past.days / 365.25, past.bucket, past.back_to

    figure, both = curves(found.runs, values, ["on posts of that time", "on all posts since then"])
    for axes in both:
        _perplexity(axes)
    both[-1].invert_xaxis()
    both[-1].set_xlabel("years before the end of the stream")
    return figure


@captioned(
    "Cold start: what the first posts of a user cost when they came, over all users; shaded: "
    "95 % of samples of users.",
    "Dashed",
)
def cold_start(found: Comparison) -> Figure:
    """Perplexity on the first, second, … post of each user."""

    def values(came: Outcome) -> tuple[Any, ...]:
        parts = {int(n): part.value for n, part in came.cold_start.items() if n.isdigit()}
        return list(parts), list(parts.values())

    figure, (axes,) = curves(found.runs, values, marker="o", markersize=2.5)
    for run, look in zip(found.runs, looks([run.pair for run in found.runs]), strict=True):
        shown = {int(n): part for n, part in run.outcome.cold_start.items() if n.isdigit()}
        low, high = ([getattr(part, end) for part in shown.values()] for end in ("low", "high"))
        axes.fill_between(list(shown), low, high, color=look.colour, alpha=0.12, linewidth=0)
    _perplexity(axes)
    axes.set_xlabel("a user's first post, second post, …")
    last = max(int(axes.dataLim.x1), 1)
    axes.set_xticks([1, *range(5, last + 1, 5)])
    return figure


@captioned(
    "Steps kept.",
    told={
        "online-gd": "Online GD keeps all it takes.",
        "congrad": "ConGraD goes back to what was best on posts that were held back.",
    },
)
def steps_kept(found: Comparison) -> Figure:
    """Shares of the rounds by the number of steps that were kept."""
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


@captioned(
    "Quality against compute.",
    "Hollow",
    {
        "a-gem": "A-GEM's two gradients of a step are of half the posts each.",
        "congrad": "Steps that ConGraD took back count, too; scoring its candidates does not.",
    },
)
def compute(found: Comparison) -> Figure:
    """Test perplexity of each run against the number of its gradient steps."""
    drawn = pair_looks(run.pair for run in found.runs)
    names = [f"{name_of(a)} × {name_of(b)}" for a, b in drawn]
    figure, (axes,) = panels(names, [look.handle("o") for look in drawn.values()], [""])
    style: dict[str, Any] = {"linewidth": 0.8, "marker": "o", "markersize": 4.5}
    for pair, look in drawn.items():
        came = [run.outcome for run in found.runs if run.pair == pair]
        steps, values = [c.compute["gradient steps"] for c in came], [c.test.value for c in came]
        on_top = 2 + (look.fill == "none")  # through what is hollow, the other is seen
        axes.plot(steps, values, color=look.colour, fillstyle=look.fill, zorder=on_top, **style)
    if found.oracle is not None:
        _line(axes, "trained offline", found.oracle)
    _perplexity(axes)
    axes.set_ylabel("test perplexity (logarithmic)")
    axes.set_xlim(0, 1.05 * max(run.outcome.compute["gradient steps"] for run in found.runs))
    count_axis(axes, "gradient steps taken")
    return figure


def _bands(found: Comparison, run: Run[Outcome], base: Run[Outcome]) -> Sequence[Band]:
    """The bands of a run against the baseline, where it is known what each of them paid."""
    if not found.groups or run is base:
        return ()
    groups = dict(zip((each.name for each in found.runs), found.groups, strict=True))
    return ratio_bands(groups[run.name], groups[base.name]) or ()


def _line(axes: Axes, name: str, value: float, below: bool = False, right: float = 1.0) -> None:
    """A dotted line across the axes, and its name above or below it, up to the share ``right``."""
    axes.axhline(value, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
    where, offset = ((right, value), ("axes fraction", "data")), (0, -2.5 if below else 2.5)
    note(axes, name, where, offset, ha="right", va="top" if below else "bottom")


def _floor(axes: Axes, name: str, value: float, below: bool = False) -> None:
    """The best possible as a line, or in words at the edge where it would flatten the curves."""
    low = min(float(np.min(line.get_ydata())) for line in axes.get_lines())
    if value * FLAT >= low:
        _line(axes, name, value, below)
        return
    where = ((1.0, 0.0), "axes fraction")
    note(axes, f"{name}: {perplexity(value)} ↓", where, (0, 12 if below else 22), ha="right")


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


FIGURES: dict[str, Kind[Comparison]] = {
    "online-fit": online_fit,
    "ratio": ratio,
    "retention": retention,
    "cold-start": cold_start,
    "steps-kept": steps_kept,
    "compute": compute,
}
