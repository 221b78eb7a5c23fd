"""Tables: the same cells in every form, escaped, with what is published told apart."""

import csv
import io

import pytest
from rich.console import Console

from firehose.report.tables import Beside, Published, Table, as_csv, latex, markdown, terminal

TABLE = Table(
    ["", "Online GD", "a|b & c_d %"],
    [
        ["mixed replay", Beside("12.5 ± 0.3", "133.3"), "1 × 2"],
        ["online only", "14.0", Published("7.0")],
    ],
    "A caption",
)


def test_markdown() -> None:
    assert markdown(TABLE).splitlines() == [
        "**A caption**",
        "",
        r"|  | Online GD | a\|b & c_d % |",
        "| --- | ---: | ---: |",
        "| mixed replay | 12.5 ± 0.3 (133.3†) | 1 × 2 |",
        "| online only | 14.0 | 7.0† |",
        "",
        "† published by the authors of the paper, not measured here",
    ]


def test_latex_escapes_what_means_something_there() -> None:
    text = latex(TABLE)
    assert r" & Online GD & a|b \& c\_d \% \\" in text
    assert r"mixed replay & 12.5 $\pm$ 0.3 (133.3$^{\dagger}$) & 1 $\times$ 2 \\" in text
    assert text.count(r"\begin{tabular}{lrr}") == text.count(r"\end{tabular}") == 1


def test_csv_gives_what_is_published_a_column_of_its_own() -> None:
    rows = list(csv.reader(io.StringIO(as_csv(TABLE))))
    assert rows == [
        ["", "Online GD", "Online GD, published", "a|b & c_d %"],
        ["mixed replay", "12.5 ± 0.3", "133.3", "1 × 2"],
        ["online only", "14.0", "", "7.0"],
    ]


@pytest.mark.parametrize("cell", ["12.5 ± 0.3 (133.3†)", "7.0†", "† published by"])
def test_a_terminal_shows_all_of_it(cell: str) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(terminal(TABLE))
    assert cell in console.export_text()
