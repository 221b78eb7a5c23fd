"""The figures about a corpus (activity, categories of words, turnover, gaps), and their page.

They contain no names of users, as figures get published.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from firehose.data import stats
from firehose.data.corpus import Floor
from firehose.data.stats import DAY, DURATIONS, Gaps, Statistics
from firehose.errors import FirehoseError
from firehose.report import figures as look
from firehose.report.page import Block, Figure as Picture, Heading, Paragraph, page
from firehose.report.tables import Table
from firehose.report.words import compact, listing, many, percent
from firehose.storage.files import write_whole

KINDS = {"words": "a word", "hashtags": "a hashtag", "mentions": "a mention", "emoji": "an emoji"}


@look.styled
def activity(statistics: Statistics) -> Figure:
    """Draw the posts over time of a sample of users, a strip for each."""
    sample = statistics.activity
    rows = len(sample.posts)
    figure = look.blank(0.85 + 0.145 * max(rows, 3))
    axes = figure.add_subplot()
    counts = np.array(sample.columns)  # [user, column]
    width = sample.width / DAY
    left = sample.start / DAY + width * np.arange(counts.shape[1])
    # The colours stand for 1, 2–3, 4–7, 8–15 and 16 or more posts; matplotlib's dates are days.
    levels = np.floor(np.log2(np.maximum(counts, 0.5))).astype(int).clip(-1, len(look.RAMP) - 1)
    for row in range(rows):
        seen = np.flatnonzero(counts[row])
        axes.hlines(row, left[seen[0]], left[seen[-1]] + width, color=look.LINE, linewidth=0.7)
    _right_column(axes, [f"{posts:,}" for posts in sample.posts], "posts")
    for level, colour in enumerate(look.RAMP):
        axes.add_patch(_cells(levels == level, left, width, colour))
    _date_axis(axes, left[0], left[-1] + width, width)
    axes.set_ylim(max(rows, 3) - 0.4, -0.6)
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    axes.set_ylabel("users, by first post" if rows > 5 else "users")
    _ramp_legend(axes, sample.unit, int(levels.max()))
    return figure


def _right_column(axes: Axes, texts: list[str], heading: str) -> None:
    """Write a right-aligned column of numbers to the right of the axes, one for each row."""
    place = 6 + 4.8 * max(map(len, [*texts, heading]))  # points; a digit is 4.8 wide
    for row, text in [(-1.1, heading), *enumerate(texts)]:
        where = (1, row), axes.get_yaxis_transform()
        look.note(axes, text, where, (place, 0), ha="right", va="center_baseline")


def _cells(where: Any, left: Any, width: float, colour: str) -> PathPatch:
    """All cells of one colour as one path; neighbours in a row become one rectangle."""
    corners: list[tuple[float, float]] = []
    for row, cells in enumerate(where):
        steps = np.diff(np.concatenate(([0], cells.astype(int), [0])))
        starts, stops = (np.flatnonzero(steps == step) for step in (1, -1))
        for start, stop in zip(starts, stops, strict=True):
            west, east = left[start], left[stop - 1] + width
            north, south = row - 0.36, row + 0.36
            corners += [(west, north), (east, north), (east, south), (west, south), (west, north)]
    codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    outline = Outline(np.array(corners).reshape(-1, 2), codes * (len(corners) // 5))
    return PathPatch(outline, facecolor=colour, zorder=3)


def _ramp_legend(axes: Axes, unit: str, highest: int) -> None:
    names = ["1", "2–3", "4–7", "8–15", "16 or more"][: highest + 1]
    names[-1] += f" posts per {unit}" if highest else f" post per {unit}"
    patches = [Patch(facecolor=colour) for colour in look.RAMP[: highest + 1]]
    look.above(axes, names, patches, look.MUTED)


def _date_axis(axes: Axes, start: float, stop: float, least: float) -> None:
    """Make the x axis one of dates, in days since 1970, at least eight times ``least`` wide."""
    room = max((8 * least - (stop - start)) / 2, 0.01 * (stop - start))
    axes.set_xlim(start - room, stop + room)
    locator = dates.AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.xaxis.get_offset_text().set(color=look.MUTED, fontsize=8)


@look.styled
def categories(statistics: Statistics) -> Figure:
    """Draw how many tokens, and how many different ones, each category of words has."""
    figure = look.blank(1.75)
    axes = figure.add_subplot()
    counts = [statistics.categories.get(name) for name in KINDS]
    found = [count for count in counts if count and count.tokens]
    axes.set_xscale("log")
    left = 10 ** np.floor(np.log10(min((count.unique for count in found), default=1)) - 0.5)
    right = 6 * max((count.tokens for count in found), default=2)
    for row, count in enumerate(counts):
        if count not in found or count is None:
            axes.text(left * 1.15, row, "none", color=look.MUTED, va="center_baseline")
            continue
        both = (count.unique, count.tokens)
        axes.plot(both, [row, row], color=look.LINE, linewidth=1.2, zorder=2)
        sides = (look.VERMILION, "right", -6), (look.BLUE, "left", 6)
        for value, (colour, side, offset) in zip(both, sides, strict=True):
            axes.plot(value, row, "o", color=colour, markersize=5.5, zorder=4)
            shown = {"color": colour, "fontsize": 8.5, "ha": side, "va": "center_baseline"}
            shown["bbox"] = {"facecolor": look.PAPER, "pad": 0.6, "linewidth": 0}  # hides the grid
            look.note(axes, compact(value), ((value, row), "data"), (offset, 0), **shown)
    axes.set_ylim(len(KINDS) - 0.4, -0.6)
    axes.set_yticks(range(len(KINDS)), KINDS, color=look.INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    look.log_axis(axes.xaxis)
    axes.set_xticks([10**power for power in range(12) if left <= 10**power <= right])
    axes.set_xlim(left, right)
    axes.grid(axis="x")
    axes.set_xlabel("number (logarithmic)")
    look.key(axes, [("unique tokens", look.VERMILION), ("tokens", look.BLUE)], "o")
    return figure


@look.styled
def turnover(statistics: Statistics) -> Figure:
    """Draw how many users post for the first time, and for the last time, in each quarter."""
    quarters = statistics.quarters
    places = quarters.first + np.arange(len(quarters.newcomers))
    figure = look.blank(2.3)
    axes = figure.add_subplot()
    axes.bar(places, quarters.newcomers, 0.82, color=look.BLUE, zorder=2)
    axes.bar(places, np.negative(quarters.leavers), 0.82, color=look.VERMILION, zorder=2)
    axes.axhline(0, color=look.INK, linewidth=0.7, zorder=3)
    axes.set_ylim(-1.08 * max(quarters.leavers), 1.08 * max(quarters.newcomers))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=2, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(abs(value))))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y")
    axes.set_ylabel("users per quarter")
    _quarter_axis(axes, int(places[0]), int(places[-1]))
    look.key(axes, [("first post", look.BLUE), ("last post", look.VERMILION)], "s")
    return figure


def _quarter_axis(axes: Axes, first: int, last: int) -> None:
    """Label the x axis with the quarters where there are few, otherwise with years."""
    room = max((7 - (last - first)) / 2, 0.7)
    axes.set_xlim(first - room, last + room)
    if last - first < 8:
        shown = range(first, last + 1)
        names = [stats.quarter_name(quarter).replace(" ", "\n") for quarter in shown]
        axes.set_xticks(shown, names)
        axes.tick_params(axis="x", length=0)
        return
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if last - first <= 40 * step)
    years = range(-(-first // 4) + 1970, last // 4 + 1971)
    shown_years = [year for year in years if year % every == 0]
    axes.set_xticks([4 * (year - 1970) - 0.5 for year in shown_years], map(str, shown_years))


@look.styled
def gaps(statistics: Statistics) -> Figure:
    """Draw a histogram of the time between two consecutive posts of one user."""
    found = statistics.gaps
    figure = look.blank(2.5)
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_yscale("log")
    counts, edges = np.array(found.counts), np.array(found.edges)
    bottom, top = 0.6, 2 * max(counts.max(), found.shorter, 5)
    first, last = _shown(found)
    shown = edges[first : last + 1]
    bars = dict[str, Any](baseline=bottom, fill=True, zorder=2)
    axes.stairs(np.maximum(counts[first:last], bottom), shown, color=look.BLUE, **bars)
    left = shown[0]
    if found.shorter:  # zero is not on a logarithmic scale: a bar to the left of it
        step = edges[1] / edges[0]
        sides = [left / step**7, left / step**3]
        axes.stairs([found.shorter], sides, color=look.SKY, **bars)
        where = (float(np.sqrt(sides[0] * sides[1])), 0), ("data", "axes fraction")
        look.note(axes, "< 9 s", where, (0, -6.5), va="top", fontsize=8)
        left /= step**8
    axes.set_ylim(bottom, top)
    look.log_axis(axes.xaxis)
    look.log_axis(axes.yaxis)
    axes.set_xticks([edge for edge in shown if np.log10(edge) % 1 == 0])
    axes.set_xlim(left, shown[-1] * 1.1)
    _mark_durations(axes)
    if not found.total:
        middle = (0.5, 0.5), "axes fraction"
        look.note(axes, "no user has two posts", middle, (0, 0), backgroundcolor=look.PAPER)
    axes.grid(axis="y")
    axes.set_xlabel("days between two consecutive posts of one user (logarithmic)")
    axes.set_ylabel("number (logarithmic)")
    return figure


def _shown(found: Gaps) -> tuple[int, int]:
    """The first and last edge to show: all bins that are not empty, and an hour to a year."""
    filled = np.flatnonzero(found.counts)
    hour, year = (int(np.searchsorted(found.edges, days)) for days in (1 / 24, 365))
    first = 0 if found.shorter else min([hour - 3, *filled[:1].tolist()])
    return first, max([year + 2, *(filled[-1:] + 1).tolist()])


def _mark_durations(axes: Axes) -> None:
    for name, duration in DURATIONS.items():
        days = duration / DAY
        axes.axvline(days, color=look.INK, linewidth=0.7, linestyle=(0, (1, 2.5)), zorder=3)
        aside = {"week": -3, "month": 3}.get(name, 0)  # their labels would touch
        look.note(axes, name, ((days, 1), ("data", "axes fraction")), (aside, 2), va="bottom")


FIGURES = {"activity": activity, "categories": categories, "turnover": turnover, "gaps": gaps}


def write(statistics: Statistics, out: Path, command: str) -> list[Path]:
    """Write index.html, statistics.json, and each figure as PNG and SVG; returns the paths."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FirehoseError(f"Cannot write into {out}: {error.strerror}.") from None
    drawn = {name: draw(statistics) for name, draw in FIGURES.items()}
    images = {name: look.render(figure, "svg").decode() for name, figure in drawn.items()}
    content = page(statistics.name, _summary(statistics), _blocks(statistics, images), command)
    paths = [out / "index.html", out / "statistics.json"]
    write_whole(paths[0], content.encode())
    write_whole(paths[1], statistics.model_dump_json(indent=1).encode() + b"\n")
    for name, figure in drawn.items():
        paths += look.save(figure, out / name)
    return paths


def _summary(statistics: Statistics) -> str:
    start, end = stats.month_name(statistics.first), stats.month_name(statistics.last)
    when = f"in {start}" if start == end else f"between {start} and {end}"
    return (
        f"{many(statistics.users, 'user')} wrote {many(statistics.posts, 'post')} {when}, "
        f"with {statistics.words_per_post.mean:.1f} words each on average and "
        f"{many(statistics.unique_words, 'unique word')} in all."
    )


def _blocks(statistics: Statistics, images: dict[str, str]) -> list[Block]:
    captions = _captions(statistics)
    blocks: list[Block] = [Heading("Size"), stats.sizes(statistics), _spread(statistics)]
    blocks += [Paragraph(statistics.lengths.sentence()), Heading("Users, words and time")]
    blocks += [Picture(image, *captions[name]) for name, image in images.items()]
    blocks += [Heading("Cleaning"), *_cleaning(statistics)]
    blocks += [Heading("Splits"), _splits(statistics)]
    if statistics.floor:
        blocks += [Heading("The floor"), *_floor(statistics.floor)]
    return blocks


def _captions(statistics: Statistics) -> dict[str, tuple[str, str]]:
    """For each figure, a caption, and a short description in place of the figure."""
    sample, found, counts = statistics.activity, statistics.gaps, statistics.categories
    uses = [
        f"{single} {counts[name].tokens / counts[name].unique:,.1f} times"
        for name, single in KINDS.items()
        if name in counts and counts[name].unique
    ]
    within = [
        f"{percent(found.within[name], found.total)} "
        + ("last no longer than an hour" if name == "hour" else f"than a {name}")
        for name in DURATIONS
    ]
    return {
        "activity": (
            f"Posts over time of {many(len(sample.posts), 'user')} drawn at random, in the order "
            f"of their first posts, each with its number of posts. The colour tells the posts per "
            f"{sample.unit}; a thin line joins the first and the last. Of all users, "
            f"{percent(statistics.silent_users, statistics.users)} were silent for more than a "
            "year and came back.",
            "Strips of activity over time, one per user",
        ),
        "categories": (
            "Tokens and unique tokens by category; the longer the line, the more often a token "
            "comes back" + (f": {listing(uses)} on average." if uses else "."),
            "Number of tokens and of unique tokens by category",
        ),
        "turnover": (
            "Users by the quarter of their first post, upwards, and of their last post, "
            "downwards. The ends of the corpus show: whoever wrote before it begins seems new at "
            "its beginning, and whoever still writes when it ends seems to leave there.",
            "Users by the quarter of their first and last posts",
        ),
        "gaps": (
            f"Time between two consecutive posts of one user. Of {many(found.total, 'gap')}, "
            f"{listing(within)}."
            + " The bar apart holds those under 9 seconds, zero included."
            * bool(found.shorter),
            "Histogram of the time between two consecutive posts of one user",
        ),
    }


def _spread(statistics: Statistics) -> Table:
    posts, words = statistics.posts_per_user, statistics.words_per_post
    rows = [
        (name, *(f"{value:,.{1 if value % 1 else 0}f}" for _, value in quantiles))
        for name, quantiles in (("posts per user", posts), ("words per post", words))
    ]
    return Table(("", "least", "25 %", "median", "75 %", "most", "mean"), rows)


def _cleaning(statistics: Statistics) -> list[Block]:
    left = f"{many(statistics.posts, 'post')} of {many(statistics.users, 'user')} are left"
    read = f"{many(statistics.read, 'record')} were read; after cleaning {left}."
    told = "Records that were no posts were skipped:"
    skips = Paragraph(told if statistics.skipped else "No record was skipped.")
    blocks: list[Block] = [Paragraph(read), stats.cleaning(statistics)]
    blocks += [skips, stats.skipped(statistics)]
    return [block for block in blocks if not isinstance(block, Table) or block.rows]


def _splits(statistics: Statistics) -> Table:
    rows = [
        (name, *(f"{number:,}" if number else "–" for _, number in count))
        for name, count in statistics.splits.items()
    ]
    return Table(("split", "posts", "users", "words", "subword tokens"), rows)


def _floor(floors: dict[str, Floor]) -> list[Block]:
    rows = [(name, *(f"{value:.2f}" for _, value in floor)) for name, floor in floors.items()]
    return [
        Paragraph(
            "These posts were simulated, so the true probability of every word is known, and with "
            "it the best perplexity per word that any model can expect: personalized, if it knows "
            "who writes; user-agnostic, if it does not. The difference between the two is all that "
            "personalization can gain. How far a trained model is above them is what it could "
            "still learn."
        ),
        Table(("split", "personalized", "user-agnostic"), rows),
    ]
