"""One look for all figures, and files that are the same bytes whenever they are made.

A figure is made by a function with :func:`styled` around it, through matplotlib's objects;
pyplot and its global figures are never touched. Colours come from :data:`PALETTE`, so that a
page can show the same figure on a dark ground.
"""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from firehose.report.words import compact
from firehose.storage.files import write_whole

if TYPE_CHECKING:  # importing matplotlib takes half a second
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 5.0  # inches; between one and two columns, and still readable on a phone


class Colour(NamedTuple):
    """A colour on white paper, and the one that takes its part on a dark ground."""

    light: str
    dark: str


# Hues after Okabe and Ito, told apart with any kind of colour vision, and also in grey.
PALETTE = {
    "paper": Colour("#ffffff", "#15191e"),
    "ink": Colour("#1c2530", "#e4e8ec"),
    "muted": Colour("#5d6874", "#9ba6b1"),
    "line": Colour("#b9c1c9", "#4a545e"),
    "grid": Colour("#e6eaed", "#262d34"),
    "blue": Colour("#0068a8", "#56b0e6"),
    "vermilion": Colour("#cc5500", "#f28e4c"),
    "green": Colour("#00896a", "#3cc09c"),
    "purple": Colour("#b0578d", "#dd93bd"),
    "amber": Colour("#d99100", "#f0b840"),
    "sky": Colour("#7fbfe6", "#2f6f9a"),
    "ramp1": Colour("#a8cfe8", "#1d4a69"),
    "ramp2": Colour("#63a9d4", "#2a719f"),
    "ramp3": Colour("#2b7fb8", "#459dd1"),
    "ramp4": Colour("#0f5690", "#86c5ec"),
    "ramp5": Colour("#0a2f57", "#d6edfb"),
}
PAPER, INK, MUTED, LINE, GRID, BLUE, VERMILION, GREEN, PURPLE, AMBER, SKY, *_RAMP = (
    colour.light for colour in PALETTE.values()
)
RAMP = tuple(_RAMP)  # from little to much
DASHED = (0, (3, 1.6))  # Online GD, wherever it is drawn beside ConGraD

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 8.5, "axes.labelsize": 8.5, "legend.fontsize": 8,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": LINE, "grid.color": GRID,
    "figure.facecolor": PAPER, "savefig.facecolor": PAPER, "axes.facecolor": "none",
    "axes.linewidth": 0.7, "grid.linewidth": 0.7, "lines.linewidth": 1.5, "patch.linewidth": 0,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "xtick.minor.size": 1.8, "xtick.minor.width": 0.5, "lines.solid_capstyle": "round",
    "legend.frameon": False, "axes.unicode_minus": True, "text.parse_math": False,
    "svg.fonttype": "path",  # looks the same where the font is missing
    "svg.hashsalt": "firehose",  # names of clip paths and markers, otherwise random
}  # fmt: skip
TICKS = {"color": LINE, "labelcolor": MUTED, "labelsize": 8, "major.width": 0.7, "major.size": 3}
STYLE |= {f"{axis}tick.{name}": value for axis in "xy" for name, value in TICKS.items()}
LEGEND: dict[str, Any] = {
    "loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.3, "borderpad": 0,
    "handleheight": 0.9, "handletextpad": 0.5, "columnspacing": 1.4,
}  # fmt: skip
METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
}


@contextmanager
def style() -> Iterator[None]:
    """Within, matplotlib has our look, whatever the user's own settings are."""
    from matplotlib import style as styles

    with styles.context(["default", STYLE]):
        yield


styled = style()  # as a decorator of functions that make figures


def blank(height: float, width: float = WIDTH) -> "Figure":
    """An empty figure of this size in inches; its parts find room by themselves."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.04))


def render(figure: "Figure", form: str) -> bytes:
    """The figure as “svg” or “png” (300 dpi); the same figure, the same bytes."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format=form, dpi=300, metadata=METADATA[form])
    return buffer.getvalue()


def save(figure: "Figure", stem: Path) -> list[Path]:
    """Write ``stem``.png and ``stem``.svg, each whole or not at all."""
    paths = {form: stem.with_name(f"{stem.name}.{form}") for form in METADATA}
    for form, path in paths.items():
        write_whole(path, render(figure, form))
    return list(paths.values())


def log_axis(axis: "Axis") -> None:
    """Ticks at the powers of ten of a logarithmic axis, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(10, numticks=10))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    axis.set_minor_locator(NullLocator())


def _power(value: float) -> str:
    """1K, 100, 1, 0.1, 0.01, 10⁻³, …"""
    if value >= 0.009:
        return compact(value, places=2)
    exponent = f"{math.log10(value):.0f}"
    return "10" + exponent.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def key(axes: "Axes", entries: Sequence[tuple[str, str]], marker: str) -> None:
    """Which colour is which, in words of that colour: name and colour of each entry."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="", marker=marker, color=colour) for _, colour in entries]
    above(axes, [name for name, _ in entries], handles, "linecolor")


def above(
    axes: "Axes",
    names: Sequence[str],
    handles: "Sequence[Artist]",
    colour: str,
    columns: int | None = None,
    length: float = 0.9,
    lift: float = 0,
) -> None:
    """A legend without a box above the axes, in one line or so many columns.

    ``lift`` leaves room below it for a title, in points.
    """
    from matplotlib.transforms import ScaledTranslation

    scale = axes.get_figure(root=True).dpi_scale_trans  # type: ignore[union-attr]
    moved = axes.transAxes + ScaledTranslation(0, lift / 72, scale)
    looks = LEGEND | {"ncols": columns or len(names), "handlelength": length}
    axes.legend(handles, names, bbox_transform=moved, labelcolor=colour, **looks)


def note(axes: "Axes", text: str, where: Any, offset: tuple[float, float], **look: Any) -> None:
    """Text at a point (its coordinates, and their system), moved by an offset in points."""
    look = dict[str, Any](color=MUTED, fontsize=7.5, ha="center") | look
    point, system = where
    axes.annotate(text, point, xytext=offset, xycoords=system, textcoords="offset points", **look)
