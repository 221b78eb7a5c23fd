"""One self-contained HTML page from words, tables and figures: how every report looks.

The page needs no script, no other file and no network. Figures are inlined as SVG, their
colours turned into variables, so that they follow the reader's light or dark setting.
All text is escaped here and nowhere else: pass plain text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

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


Block = Heading | Paragraph | Table | Figure


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
        elif isinstance(block, Heading):
            parts.append(f"<h2>{escape(block.text)}</h2>")
        else:
            parts.append(f"<p>{escape(block.text)}</p>")
    body = "\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{_colours()}{_CSS}</style>
</head>
<body>
<main>
<header>
<h1>{escape(title)}</h1>
<p class="summary">{escape(summary)}</p>
</header>
{body}
</main>
<footer>
<p>Firehose {escape(firehose.__version__)} · made by <code>{escape(command)}</code></p>
</footer>
</body>
</html>
"""


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
    return (
        f"\n:root{{color-scheme:light dark;{light}}}"
        f"\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"\n@media print{{:root{{color-scheme:light;{light}}}}}"
    )


_CSS = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
 font:1.0625rem/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main,footer{max-width:42rem;margin:0 auto;padding:0 1.25rem}
header{margin:3.5rem 0 2.5rem}
h1{font-size:clamp(1.7rem,1.2rem + 2.4vw,2.4rem);line-height:1.15;letter-spacing:-.015em;
 margin:0 0 .8rem;text-wrap:balance;overflow-wrap:anywhere}
h2{font-size:1.3rem;line-height:1.25;letter-spacing:-.005em;margin:3.2rem 0 .8rem;
 text-wrap:balance}
p{margin:.8rem 0;text-wrap:pretty;overflow-wrap:break-word}
.summary{font-size:1.2rem;line-height:1.5;color:var(--muted);margin:0}
.scroll{overflow-x:auto;margin:1rem 0 .6rem}
.scroll:focus-visible{outline:2px solid var(--blue);outline-offset:3px}
table{border-collapse:collapse;min-width:60%;font-size:.95rem;line-height:1.35;
 font-variant-numeric:tabular-nums lining-nums}
.wide{width:100%}
td:first-child{min-width:6.5rem}
th,td{padding:.42rem 0 .42rem 1.4rem;text-align:left;vertical-align:baseline}
th:first-child,td:first-child{padding-left:0}
th:last-child,td:last-child{padding-right:.7rem}
th{font-weight:600;font-size:.86rem;color:var(--muted);vertical-align:bottom}
thead th{border-bottom:1.5px solid var(--ink)}
tbody td{border-bottom:1px solid var(--grid)}
tbody tr:last-child td{border-bottom:1.5px solid var(--ink)}
.number{text-align:right;white-space:nowrap}
.published{color:var(--muted);font-style:italic}
sup{font-size:.7em;line-height:0;font-style:normal;margin-left:.1em}
.number sup{display:inline-block;width:0;overflow:visible}
.caption{margin:1.6rem 0 -.4rem;font-size:.95rem}
.note{margin:.3rem 0 0;font-size:.86rem;color:var(--muted)}
figure{margin:2.4rem 0 2.8rem}
figure svg{display:block;width:100%;height:auto}
figure svg *{stroke-linejoin:round;stroke-linecap:butt}
figcaption{margin-top:.9rem;font-size:.95rem;line-height:1.5;color:var(--muted);text-wrap:pretty}
figcaption b{color:var(--ink)}
footer{margin:4rem auto 2.5rem;font-size:.86rem;color:var(--muted)}
footer p{border-top:1px solid var(--grid);padding-top:1rem}
code{font:.95em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
@media (max-width:30rem){main,footer{padding:0 1rem}header{margin:2rem 0}body{font-size:1rem}
 .summary{font-size:1.08rem}table{font-size:.85rem}th{font-size:.8rem}
 th,td{padding-left:.8rem}td:first-child{min-width:5.6rem}figure{margin:1.8rem -.5rem 2.2rem}
 figcaption{margin-left:.5rem;margin-right:.5rem}}
@media print{main,footer{max-width:none}figure,tr{break-inside:avoid}h2{break-after:avoid}}
"""
