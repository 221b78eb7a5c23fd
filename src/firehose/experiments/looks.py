"""How runs are drawn: the colour is the learner's, Online GD is dashed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from firehose.report import figures
from firehose.report.page import Figure as Picture
from firehose.report.words import compact

KNOWN = {  # always in the same colour, as long as no other learner of the figure has it
    "mixed-replay": figures.BLUE, "online-only": figures.VERMILION, "replay-only": figures.GREEN,
    "a-gem": figures.PURPLE, "icarl": figures.AMBER, "gem": figures.PURPLE,
}  # fmt: skip
OTHERS = (figures.AMBER, figures.INK, figures.SKY, figures.MUTED)
COLOURS = (figures.BLUE, figures.VERMILION, figures.GREEN, figures.PURPLE, *OTHERS)

LONG = 32  # letters of a name; where one has more, a legend has a single column

Came = TypeVar("Came")
Found = TypeVar("Found")
Pair = tuple[str, str]  # learner, optimizer


class Run(NamedTuple, Generic[Came]):
    """A game that is over, to be drawn."""

    name: str
    learner: str
    optimizer: str
    outcome: Came

    @property
    def pair(self) -> Pair:
        """Learner and optimizer."""
        return self.learner, self.optimizer


class Look(NamedTuple):
    """A colour, and a kind of line."""

    colour: str
    line: Any

    @property
    def fill(self) -> Any:
        """Of a marker: hollow, where a line is dashed."""
        return "full" if self.line == "-" else "none"

    def handle(self, marker: str = "") -> Line2D:
        """For a legend: a line, or a marker."""
        line: Any = "" if marker else self.line
        return Line2D([], [], color=self.colour, linestyle=line, marker=marker, fillstyle=self.fill)


def looks(pairs: Sequence[Pair]) -> list[Look]:
    """How each run is drawn: as its learner and optimizer, if that tells all runs apart."""
    drawn = pair_looks(pairs)
    if len({str(look) for look in drawn.values()}) < len(pairs):
        lines = ["-", figures.DASHED]  # dashed, when all colours are taken
        return [
            Look(COLOURS[n % len(COLOURS)], lines[n // len(COLOURS) % 2]) for n in range(len(pairs))
        ]
    return list(drawn.values())


def pair_looks(pairs: Iterable[Pair]) -> dict[Pair, Look]:
    """How learners with optimizers are drawn, in the order of the runs."""
    found = dict.fromkeys(pairs)
    colour = _colours({learner for learner, _ in found})
    return {
        (learner, optimizer): Look(
            colour[learner], figures.DASHED if optimizer == "online-gd" else "-"
        )
        for learner, optimizer in found
    }


def _colours(learners: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in [*(n for n in KNOWN if n in learners), *sorted(learners - set(KNOWN))]:
        taken = set(found.values())
        wanted = [KNOWN.get(name, OTHERS[0]), *OTHERS, *COLOURS]
        found[name] = next((colour for colour in wanted if colour not in taken), figures.INK)
    return found


def panels(names: list[str], handles: list[Line2D], titles: list[str]) -> tuple[Figure, list[Axes]]:
    """Panels one above the other, each with its title, and a legend above the first."""
    has_titles = any(titles)
    columns = 2 if max(map(len, names), default=0) <= LONG else 1
    legend = 0.16 * -(-len(names) // columns)
    figure = figures.blank((2.15 if has_titles else 2.7) * len(titles) + legend)
    made = list(figure.subplots(len(titles), 1, sharex=True, squeeze=False)[:, 0])
    lift = 14 * has_titles
    figures.above(made[0], names, handles, figures.INK, columns=columns, length=1.8, lift=lift)
    for axes, title in zip(made, titles, strict=True):
        axes.grid(axis="y")
        figures.note(
            axes,
            title,
            ((0, 1), "axes fraction"),
            (0, 4),
            ha="left",
            color=figures.INK,
            fontsize=8.5,
        )
    return figure, made


def curves(
    runs: Sequence[Run[Came]],
    values: Callable[[Came], Sequence[Any]],
    titles: Sequence[str] = ("",),
    **style: Any,
) -> tuple[Figure, list[Axes]]:
    """A curve for each run in each panel; ``values`` are its x, and its y in each panel."""
    drawn = looks([run.pair for run in runs])
    handles = [look.handle() for look in drawn]
    figure, made = panels([run.name for run in runs], handles, list(titles))
    for run, look in zip(runs, drawn, strict=True):
        x, *each = values(run.outcome)
        for axes, y in zip(made, each, strict=True):
            axes.plot(x, y, color=look.colour, linestyle=look.line, **style)
    return figure, made


def count_axis(axes: Axes, label: str) -> None:
    """The x axis counts: 1K, 2K, …"""
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value, places=2)))


@dataclass(frozen=True)
class Kind(Generic[Found]):
    """A kind of figure, and what to say about it."""

    draw: Callable[[Found], Figure]
    description: str  # for those who cannot see it
    about: str  # the caption
    told: Mapping[str, str]  # more, where a learner or an optimizer of this name is drawn
    online_gd: str  # how it is drawn beside others: Dashed, Hollow, or nothing to tell

    def caption(self, pairs: Sequence[Pair]) -> str:
        """Speaks only of what is drawn."""
        names = {name for pair in pairs for name in pair}
        told = [text for name, text in self.told.items() if name in names]
        drawn = pair_looks(pairs).values() if self.online_gd == "Hollow" else looks(pairs)
        if self.online_gd and len({str(look.line) for look in drawn}) > 1:
            told.append(f"{self.online_gd}: Online GD.")
        return " ".join([self.about, *told])

    def show(self, found: Found, runs: Sequence[Run[Any]], stem: Path, title: str = "") -> Picture:
        """Draw runs, write the figure as ``stem``.png and ``stem``.svg, and return it for a page.

        ``title`` begins the caption.
        """
        svg, _ = figures.save(self.draw(found), stem)
        caption = f"{title}. " * bool(title) + self.caption([run.pair for run in runs])
        return Picture(svg.read_text(encoding="utf-8"), caption, self.description)


def captioned(
    about: str, online_gd: str = "", told: Mapping[str, str] | None = None
) -> Callable[[Callable[[Found], Figure]], Kind[Found]]:
    """Make a function that draws a kind of figure; its docstring describes what one sees in it."""
    return lambda draw: Kind(figures.styled(draw), draw.__doc__ or "", about, told or {}, online_gd)
