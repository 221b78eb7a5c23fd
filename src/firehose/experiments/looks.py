"""How runs are drawn: the colour is the learner's, Online GD is dashed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from firehose.report.figures import (
    AMBER,
    BLUE,
    DASHED,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    SKY,
    VERMILION,
    above,
    blank,
    note,
    render,
)
from firehose.report.page import Figure as Picture

Runs = TypeVar("Runs")

KNOWN = {  # always in the same colour, as long as no other learner of the figure has it
    "mixed-replay": BLUE,
    "online-only": VERMILION,
    "replay-only": GREEN,
    "a-gem": PURPLE,
    "icarl": AMBER,
    "gem": PURPLE,
}
OTHERS = (AMBER, INK, SKY, MUTED)
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, *OTHERS)

Pair = tuple[str, str]  # learner, optimizer


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
    """How each run is drawn: as its learner and optimizer, if these tell all runs apart."""
    if len(set(pairs)) < len(pairs):
        return [Look(COLOURS[n % len(COLOURS)], "-") for n in range(len(pairs))]
    look = pair_looks(pairs)
    return [look[pair] for pair in pairs]


def pair_looks(pairs: Iterable[Pair]) -> dict[Pair, Look]:
    """How learners with optimizers are drawn, in the order of the runs."""
    found = dict.fromkeys(pairs)
    colour = _colours({learner for learner, _ in found})
    return {
        (learner, optimizer): Look(colour[learner], DASHED if optimizer == "online-gd" else "-")
        for learner, optimizer in found
    }


def _colours(learners: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in [*(n for n in KNOWN if n in learners), *sorted(learners - set(KNOWN))]:
        taken = set(found.values())
        wanted = [KNOWN.get(name, OTHERS[0]), *OTHERS, *COLOURS]
        found[name] = next((colour for colour in wanted if colour not in taken), INK)
    return found


def panels(names: list[str], handles: list[Line2D], titles: list[str]) -> tuple[Figure, list[Axes]]:
    """Panels one above the other, each with its title, and a legend above the first."""
    has_titles = any(titles)
    figure = blank((2.15 if has_titles else 2.7) * len(titles) + 0.16 * -(-len(names) // 2))
    made = list(figure.subplots(len(titles), 1, sharex=True, squeeze=False)[:, 0])
    above(made[0], names, handles, INK, columns=2, length=1.8, lift=14 * has_titles)
    for axes, title in zip(made, titles, strict=True):
        axes.grid(axis="y")
        note(axes, title, ((0, 1), "axes fraction"), (0, 4), ha="left", color=INK, fontsize=8.5)
    return figure, made


def says_dashed(drawn: Iterable[Look], what: str = "Dashed") -> str:
    """A sentence for a caption, where dashed lines (or hollow points) are drawn beside others."""
    return f" {what}: Online GD." * (len({str(look.line) for look in drawn}) > 1)


@dataclass(frozen=True)
class Kind(Generic[Runs]):
    """A kind of figure, and what to say about it."""

    draw: Callable[[Runs], Figure]
    description: str  # for those who cannot see it
    caption: Callable[[Runs], str]  # speaks only of what is drawn

    def block(self, figure: Figure, found: Runs) -> Picture:
        """A drawn figure for a page."""
        return Picture(render(figure, "svg").decode(), self.caption(found), self.description)
