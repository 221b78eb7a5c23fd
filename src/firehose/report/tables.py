"""Tables of results, and what they look like in a terminal, as Markdown, LaTeX and CSV.

How they look on a page is in :mod:`firehose.report.page`.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path
from typing import TYPE_CHECKING

from firehose.errors import visible
from firehose.storage.files import write_whole

if TYPE_CHECKING:
    import rich.table

MARK = "†"
TONES = {"good": "green", "bad": "red", "mixed": "yellow", "open": "dim"}  # in a terminal


@dataclass(frozen=True)
class Published:
    """A cell whose content comes from a publication and was not measured here."""

    text: str


@dataclass(frozen=True)
class Beside:
    """A cell with what was measured here, and beside it what was published."""

    text: str
    published: str


@dataclass(frozen=True)
class Verdict:
    """A cell that says whether something is so; it has a colour of its own on a page."""

    text: str

    @property
    def tone(self) -> str:
        """Good, bad, mixed or open, by how its first words read."""
        if self.text.startswith("holds in"):
            return "mixed"
        known = {"good": ("holds", "better", "yes"), "bad": ("does not hold", "worse", "no")}
        return next((tone for tone, texts in known.items() if self.text in texts), "open")


Cell = str | Published | Beside | Verdict


@dataclass(frozen=True)
class Table:
    """Rows of cells. The first ``labels`` columns are words, the others numbers, on the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    labels: int = 1
    source: str = "published by the authors of the paper, not measured here"

    @property
    def has_published(self) -> bool:
        """Whether any cell is marked, and the mark has to be explained."""
        return any(isinstance(cell, Published | Beside) for row in self.rows for cell in row)


def plain(cell: Cell, mark: str = MARK) -> str:
    """A cell as text."""
    if isinstance(cell, Published):
        return f"{cell.text}{mark}"
    if isinstance(cell, Verdict):
        return cell.text
    return f"{cell.text} ({cell.published}{mark})" if isinstance(cell, Beside) else cell


def terminal(table: Table) -> "rich.table.Table":
    """For a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Terminal
    from rich.text import Text

    def _text(cell: Cell) -> Text:
        if isinstance(cell, Published):
            return Text(plain(cell), style="italic dim")
        if isinstance(cell, Beside):
            return Text.assemble(f"{cell.text} ", (f"({cell.published}{MARK})", "italic dim"))
        if isinstance(cell, Verdict):
            return Text(cell.text, style=TONES[cell.tone])
        return Text(visible(cell) + " " * mixed)

    mixed = any(isinstance(cell, Published) for row in table.rows for cell in row)
    drawn = Terminal(title=Text(table.caption) if table.caption else None, box=SIMPLE_HEAD)
    drawn.title_justify = "left"
    for index, name in enumerate(table.columns):
        drawn.add_column(Text(name), justify="left" if index < table.labels else "right")
    for row in table.rows:
        drawn.add_row(*map(_text, row))
    if table.has_published:
        drawn.caption, drawn.caption_justify = Text(f"{MARK} {table.source}"), "left"
    return drawn


def markdown(table: Table) -> str:
    """For a README."""
    sides = ["---" if index < table.labels else "---:" for index in range(len(table.columns))]
    lines = [list(table.columns), sides, *([plain(cell) for cell in row] for row in table.rows)]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    text = "".join(f"| {' | '.join(line)} |\n" for line in escaped)
    title = f"**{table.caption}**\n\n" if table.caption else ""
    note = f"\n{MARK} {table.source}\n" if table.has_published else ""
    return title + text + note


def latex(table: Table) -> str:
    """For a paper; needs the package booktabs."""
    sides = "".join("l" if index < table.labels else "r" for index in range(len(table.columns)))
    mark = r"$^{\dagger}$"

    def _row(cells: Sequence[Cell]) -> str:
        texts = (_tex(plain(cell, MARK)).replace(MARK, mark) for cell in cells)
        return f"  {' & '.join(texts)} \\\\\n"

    body = "".join(map(_row, table.rows))
    note = f"\n% {MARK} {table.source}" if table.has_published else ""
    return (
        f"% {table.caption}\n\\begin{{tabular}}{{{sides}}}\n  \\toprule\n"
        f"{_row(table.columns)}  \\midrule\n{body}  \\bottomrule\n\\end{{tabular}}{note}\n"
    )


def _tex(text: str) -> str:
    escaped = re.sub(r"[&%$#_{}]", lambda found: "\\" + found[0], text)
    for sign, command in {"±": r"$\pm$", "×": r"$\times$", "−": "$-$", "…": r"\dots{}"}.items():
        escaped = escaped.replace(sign, command)
    return escaped.replace("–", "--")


def as_csv(table: Table) -> str:
    """For a spreadsheet; what was published has columns of its own."""
    columns = zip(table.columns, *table.rows, strict=True)
    double = [any(isinstance(cell, Beside) for cell in column) for column in columns]
    shown = [is_shown for both in double for is_shown in (True, both)]
    heads = [(name, f"{name}, published") for name in table.columns]
    rows = [heads, *([_both(cell) for cell in row] for row in table.rows)]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([*compress(chain(*row), shown)] for row in rows)
    return buffer.getvalue()


FORMS = {"md": markdown, "csv": as_csv, "tex": latex}


def save(table: Table, stem: Path) -> None:
    """Write ``stem``.md, ``stem``.csv and ``stem``.tex, each whole or not at all."""
    for form, text in FORMS.items():
        write_whole(stem.with_name(f"{stem.name}.{form}"), text(table).encode())


def _both(cell: Cell) -> tuple[str, str]:
    if isinstance(cell, Beside):
        return cell.text, cell.published
    return (cell if isinstance(cell, str) else cell.text), ""
