"""One self-contained HTML page from words, tables and figures: how every report looks.

The page needs no script, no other file and no network. Figures are inlined as SVG, their
colours turned into variables, so that they follow the reader's light or dark setting.
All text is escaped here and nowhere else: pass plain text.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import count
from pathlib import Path
from string import Template

import firehose
from firehose.report.figures import PALETTE
from firehose.report.tables import MARK, Beside, Cell, Published, Table, Verdict


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
LONG = 5  # sections from which on a page has a list of them
BROAD = 6  # columns from which on a table may be wider than the text
SHADES = 8  # steps from none to the darkest


def page(title: str, summary: str, blocks: Sequence[Block], command: str) -> str:
    """The page: a title, one line of summary, the blocks in order, and what made it."""
    figures = 0
    parts: list[str] = []
    sections: dict[str, str] = {}  # headings, by their anchors
    for block in blocks:
        if isinstance(block, Figure):
            figures += 1
            parts.append(_figure(block, figures))
        elif isinstance(block, Table):
            parts.append(_table(block))
        elif isinstance(block, Shaded):
            parts.append(_shaded(block))
        elif isinstance(block, Heading):
            anchor = _anchor(block.text, sections)
            sections[anchor] = block.text
            parts.append(f'<h2 id="{anchor}"><a href="#{anchor}">{escape(block.text)}</a></h2>')
        else:
            parts.append(f"<p>{escape(block.text)}</p>")
    texts = {
        "title": title,
        "summary": summary,
        "version": firehose.__version__,
        "date": _today(),
        "command": command,
    }
    escaped = {name: escape(text) for name, text in texts.items()}
    template = Template(_beside("page.html"))
    style = _colours() + _beside("page.css")
    body = "\n".join([_contents(sections), *parts])
    return template.substitute(escaped, style=style, body=body)


def _anchor(text: str, taken: Mapping[str, str]) -> str:
    """A name for a heading in the address of a page, which no other heading has."""
    name = "-".join(re.findall("[a-z0-9]+", text.lower())) or "section"
    numbers = (f"{name}-{number}" for number in count(2))
    return name if name not in taken else next(each for each in numbers if each not in taken)


def _contents(sections: Mapping[str, str]) -> str:
    """A list of the sections, where there are many."""
    if len(sections) < LONG:
        return ""
    items = "".join(
        f'<li><a href="#{anchor}">{escape(text)}</a></li>' for anchor, text in sections.items()
    )
    return f'<nav aria-label="Contents"><ol>{items}</ol></nav>'


def _today() -> str:
    """The date that a page bears; SOURCE_DATE_EPOCH may set it, as for builds."""
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(told), UTC) if told.isdigit() else datetime.now(UTC)
    return f"{now.day} {now:%B %Y}"


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
    broad = " broad" if len(table.columns) >= BROAD else ""
    return (
        f'{caption}<div class="scroll{broad}" role="region" tabindex="0" aria-label="{name}">\n'
        f"<table{wide}>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>{note}"
    )


def _cell(cell: Cell, side: str) -> str:
    mark = f"<sup>{MARK}</sup>"
    if isinstance(cell, Published):
        return f"<td{_class('published', side)}>{escape(cell.text)}{mark}</td>"
    if isinstance(cell, Verdict):
        return f'<td{_class(side)}><span class="{cell.tone}">{escape(cell.text)}</span></td>'
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
