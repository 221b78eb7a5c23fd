"""How runs are drawn: the colour is the learner's, Online GD is dashed."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
)

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


def says_dashed(drawn: Iterable[Look], what: str = "Dashed") -> str:
    """A sentence for a caption, where dashed lines (or hollow points) are drawn beside others."""
    return f" {what}: Online GD." * (len({str(look.line) for look in drawn}) > 1)
