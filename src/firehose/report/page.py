"""One self-contained HTML page from words, tables and figures: how every report looks.

The page needs no script, no other file and no network. Figures are inlined as SVG, their
colours turned into variables, so that they follow the reader's light or dark setting.
All text is escaped here and nowhere else: pass plain text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

import firehose
from firehose.report.figures import PALETTE
from firehose.report.tables import MARK, Beside, Cell, Published, Table


@dataclass(frozen=True)
class Heading:
    """Begins a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """Some sentences."""

    text: str


@dataclass(frozen=True)
class Figure:
    """A figure as SVG (see :func:`firehose.report.figures.render`), and what one sees in it."""

    svg: str
    caption: str
    description: str  # a few words in place of the image, for those who cannot see it


@dataclass(frozen=True)
class Word:
    """A word, how dark the ground is that it stands on, from 0 to 1, and what to say about it."""

    text: str
    shade: float
    note: str = ""


@dataclass(frozen=True)
class Shaded:
    """A text several times, one version below the other, each with its label and its shades."""

    caption: str
    lines: Sequence[tuple[str, Sequence[Word]]]


Block = Heading | Paragraph | Table | Figure | Shaded
SHADES = 8  # steps from none to the darkest


def page(title: str, summary: str, blocks: Sequence[Block], command: str) -> str:
    """The page: a title, one line of summary, the blocks in order, and what made it."""
    figures = 0
    parts = []
    for block in blocks:
        if isinstance(block, Figure):
            figures += 1
            parts.append(_figure(block, figures))
        elif isinstance(block, Table):
            parts.append(_table(block))
        elif isinstance(block, Shaded):
            parts.append(_shaded(block))
        elif isinstance(block, Heading):
            parts.append(f"<h2>{escape(block.text)}</h2>")
        else:
            parts.append(f"<p>{escape(block.text)}</p>")
    texts = {
        "title": title,
        "summary": summary,
        "version": firehose.__version__,
        "command": command,
    }
    escaped = {name: escape(text) for name, text in texts.items()}
    template = Template(_beside("page.html"))
    style = _colours() + _beside("page.css")
    return template.substitute(escaped, style=style, body="\n".join(parts))


def _beside(name: str) -> str:
    """The text of a file beside this one."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _table(table: Table) -> str:
    sides = ["" if index < table.labels else "number" for index in range(len(table.columns))]
    named = zip(table.columns, sides, strict=True)
    head = "".join(f'<th scope="col"{_class(side)}>{escape(name)}</th>' for name, side in named)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row, sides))}</tr>" for row in table.rows)
    caption = f'<p class="caption">{escape(table.caption)}</p>\n' if table.caption else ""
    note = f'\n<p class="note">{MARK} {escape(table.source)}</p>' if table.has_published else ""
    wide = ' class="wide"' if len(table.columns) > 3 else ""
    name = escape(table.caption or ", ".join(table.columns))
    return (
        f'{caption}<div class="scroll" role="region" tabindex="0" aria-label="{name}">\n'
        f"<table{wide}>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>{note}"
    )


def _cell(cell: Cell, side: str) -> str:
    mark = f"<sup>{MARK}</sup>"
    if isinstance(cell, Published):
        return f"<td{_class('published', side)}>{escape(cell.text)}{mark}</td>"
    if isinstance(cell, Beside):
        below = f'<span class="published">{escape(cell.published)}{mark}</span>'
        return f"<td{_class(side)}>{escape(cell.text)}<br>{below}</td>"
    return f"<td{_class(side)}>{escape(cell)}</td>"


def _class(*names: str) -> str:
    classes = " ".join(filter(None, names))
    return f' class="{classes}"' if classes else ""


def _figure(figure: Figure, number: int) -> str:
    return (
        f"<figure>\n{inline(figure.svg, f'figure{number}', figure.description)}\n"
        f"<figcaption><b>Figure {number}.</b> {escape(figure.caption)}</figcaption>\n</figure>"
    )


def _shaded(block: Shaded) -> str:
    lines = []
    for label, words in block.lines:
        shown = " ".join(
            f'<span class="shade{round(SHADES * min(max(word.shade, 0), 1))}" '
            f'title="{escape(word.note)}">{escape(word.text)}</span>'
            for word in words
        )
        lines.append(f"<dt>{escape(label)}</dt><dd>{shown}</dd>")
    inside = "\n".join(lines)
    return f'<p class="caption">{escape(block.caption)}</p>\n<dl class="shaded">\n{inside}\n</dl>'


def inline(svg: str, prefix: str, description: str) -> str:
    """The SVG element alone, ready to stand beside others in one page.

    Every id gets the prefix; sizes become relative; colours of our palette become variables.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(?:xlink:)?href="#', f'href="#{prefix}-', svg)
    svg = svg.replace("url(#", f"url(#{prefix}-")
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    # <rect/> is a start tag in HTML outside of SVG: within it browsers agree, parsers may not
    svg = re.sub(r"<(\w+)([^<>]*?)\s*/>", r"<\1\2></\1>", svg)
    names = {colour.light: f"var(--{name})" for name, colour in PALETTE.items()}
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda found: names.get(found[0], found[0]), svg)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    if not box:
        raise ValueError("an SVG without a viewBox cannot be scaled")
    return f'<svg {box[0]} role="img" aria-label="{escape(description)}">{rest.strip()}'


def _colours() -> str:
    light = "".join(f"--{name}:{colour.light};" for name, colour in PALETTE.items())
    dark = "".join(f"--{name}:{colour.dark};" for name, colour in PALETTE.items())
    shades = "".join(
        f"\n.shade{step}{{background:color-mix(in srgb,var(--vermilion) "
        f"{round(70 * step / SHADES)}%,transparent)}}"
        for step in range(1, SHADES + 1)
    )
    return (
        f"\n:root{{color-scheme:light dark;{light}}}"
        f"\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"\n@media print{{:root{{color-scheme:light;{light}}}}}"
        f"{shades}"
    )
