"""The page: self-contained, escaped, well-formed, the same twice."""

import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure as Drawing
from rich.console import Console

from firehose.report import figures
from firehose.report.page import Figure, Heading, Paragraph, Shaded, Word, inline, page
from firehose.report.tables import Published, Table, Verdict, as_csv, terminal
from firehose.report.words import compact

HOSTILE = "<script>alert('&\"')</script>"
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Balance(HTMLParser):
    """Notes ids and tags, and fails where an end tag does not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@figures.styled
def drawing() -> Drawing:
    figure = figures.blank(1.5)
    axes = figure.add_subplot()
    axes.plot([1, 2, 3], [1, 10, 2000], "o-", color=figures.BLUE)
    axes.set_yscale("log")
    axes.set_xlabel("$rounds$ & <time>")
    figures.log_axis(axes.yaxis)
    figures.key(axes, [("first", figures.BLUE)], "o")
    return figure


@pytest.fixture
def content() -> str:
    svg = figures.render(drawing(), "svg").decode()
    return page(
        HOSTILE,
        HOSTILE,
        [
            Heading(HOSTILE),
            Paragraph(HOSTILE),
            Table([HOSTILE, "number"], [[HOSTILE, "12"], ["paper", Published(HOSTILE)]], HOSTILE),
            Figure(svg, HOSTILE, HOSTILE),
            Figure(svg, "the same again", "a line"),
        ],
        HOSTILE,
    )


def parse(content: str) -> Balance:
    parser = Balance()
    parser.feed(content)
    parser.close()
    assert parser.open == []
    return parser


def test_well_formed_and_escaped(content: str) -> None:
    parsed = parse(content)
    assert "script" not in parsed.tags
    assert "<script" not in content
    # title, h1, summary, heading, paragraph, table caption, column, two cells, caption, footer
    assert parsed.text.count(HOSTILE) == 11


def test_self_contained(content: str) -> None:
    parsed = parse(content)
    assert all(link.startswith("#") for link in parsed.links)
    assert not re.search(r"https?://", content)
    assert not re.search(r"url\((?!#)|@import", content)


def test_ids_are_unique_and_found(content: str) -> None:
    parsed = parse(content)
    assert len(parsed.ids) == len(set(parsed.ids))
    wanted = {link[1:] for link in parsed.links} | set(re.findall(r"url\(#([^)]+)\)", content))
    assert wanted
    assert wanted <= set(parsed.ids)


def test_figures_follow_the_colour_scheme(content: str) -> None:
    assert "prefers-color-scheme:dark" in content
    body = content[content.index("<body>") :]
    assert "var(--blue)" in body
    assert not re.search(r"#[0-9a-f]{6}\b", body)  # every colour is one of the palette


def test_published_is_marked(content: str) -> None:
    assert 'class="published number"' in content
    assert "† published by the authors" in content
    assert "†" not in page("title", "summary", [Table(["a"], [["b"]])], "firehose")


def test_same_bytes_twice() -> None:
    for form in ("svg", "png"):
        assert figures.render(drawing(), form) == figures.render(drawing(), form)


def test_user_settings_do_not_show() -> None:
    import matplotlib

    plain = figures.render(drawing(), "svg")
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 7, "axes.grid": True}):
        assert figures.render(drawing(), "svg") == plain


def test_svg_without_box_is_refused() -> None:
    with pytest.raises(ValueError, match="viewBox"):
        inline("<svg width='1'></svg>", "figure1", "nothing")


def test_terminal_table() -> None:
    console = Console(width=60)
    with console.capture() as captured:
        console.print(terminal(Table(["[bold]a", "b"], [["[red]x", "1"], ["y", Published("2.0")]])))
    assert "[bold]a" in captured.get()
    assert "[red]x" in captured.get()
    assert "2.0†" in captured.get()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (950, "950"),
        (999.6, "1K"),
        (1200, "1.2K"),
        (10_000, "10K"),
        (999_960, "1M"),
        (1_672_700_000, "1672.7M"),
        (-1500, "−1.5K"),
        (0.5, "0.5"),
    ],
)
def test_compact(number: float, text: str) -> None:
    assert compact(number) == text


def test_compact_keeps_places() -> None:
    assert compact(94_000, trim=False) == "94.0K"
    assert compact(17, trim=False) == "17"


def test_long_pages_have_contents_that_lead_somewhere() -> None:
    titles = ["One", "Two & three", "One", "…", "Five"]
    long = page("t", "s", [Heading(title) for title in titles], "c")
    parser = Balance()
    parser.feed(long)
    assert [link.removeprefix("#") for link in parser.links[:5]] == parser.ids[:5]
    assert len(set(parser.ids)) == 5 and parser.ids[:3] == ["one", "two-three", "one-2"]
    assert "<nav" not in page("t", "s", [Heading("One"), Heading("Two")], "c")


def test_a_page_bears_its_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1400000000")
    assert "· 13 May 2014 ·" in page("t", "s", [], "c")


def test_verdicts_have_colours_and_stay_words() -> None:
    texts = ["holds", "does not hold", "undecided", "holds in 1 of 2, not in 1"]
    table = Table(["claim", "here"], [["a", Verdict(text)] for text in texts], labels=2)
    content = page("t", "s", [table], "c")
    for text, tone in zip(texts, ["good", "bad", "open", "mixed"], strict=True):
        assert f'<span class="{tone}">{text}</span>' in content
    assert as_csv(table).splitlines()[1] == "a,holds" and not table.has_published


def test_a_table_with_many_columns_may_be_broader_than_the_text() -> None:
    for columns, is_broad in ((5, False), (6, True)):
        table = Table([str(n) for n in range(columns)], [["x"] * columns])
        assert ('class="scroll broad"' in page("t", "s", [table], "c")) == is_broad


def test_shaded_words_are_escaped_and_have_their_shade() -> None:
    words = [Word("<b>", 0.0), Word("dark", 2.0, '3 "bits"')]
    content = page("t", "s", [Shaded("caption", [("first", words)])], "c")
    assert '<span class="shade0" title="">&lt;b&gt;</span>' in content
    assert '<span class="shade8" title="3 &quot;bits&quot;">dark</span>' in content
