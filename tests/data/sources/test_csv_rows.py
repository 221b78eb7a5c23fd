"""Rows of CSV with quotes that are not closed, against a slow reading of the same rules."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from firehose.data.post import Post, Skip
from firehose.data.sources.csv_rows import BROKEN, UNCLOSED, CsvRows, Row
from firehose.data.sources.fields import TOO_LONG
from firehose.data.sources.files import Line, Overlong
from firehose.data.sources.tabular import Tabular


def rows(lines: Iterable[Line], max_lines: int = 1_000, max_characters: int = 65_536) -> list[Row]:
    return list(CsvRows(lines, ",", max_lines, max_characters))


def parse(lines: Sequence[str]) -> list[str] | str:
    """The cells of one row; “open” where it does not end in these lines, “bad” if it is none."""
    try:
        found = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        return "open" if "unexpected end of data" in str(error) else "bad"
    return found[0]


def slowly(lines: Sequence[str], max_lines: int, max_characters: int) -> Iterator[Row]:
    """Try every row from its first line on, with one line more each time."""
    width: int | None = None
    within = start = 0  # lines before ``within`` were part of a row that turned out as broken
    while start < len(lines):
        stop, is_over = start + 1, False
        while (found := parse(lines[start:stop])) == "open" and not is_over:
            size = sum(map(len, lines[start : stop + 1]))
            is_over = stop == len(lines) or start < within
            is_over = is_over or stop - start >= max_lines or size > max_characters
            stop += not is_over
        if width is None and found:
            width = 0 if isinstance(found, str) else len(found)
        if not isinstance(found, str) and (not found or len(found) == width):
            yield from [(start + 1, found)] if found else []
            start = stop
            continue
        is_one = stop == start + 1
        yield start + 1, UNCLOSED if found == "open" or (found == "bad" and not is_one) else BROKEN
        within = max(within, stop if found == "open" else stop - 1)
        start += 1


lines = st.lists(st.text('ab",\r', max_size=8))


@given(lines, st.integers(1, 5), st.integers(1, 30))
@example(['x","'] * 6 + ["a"], 3, 30)
@example(['a,"', "b", '"c', 'd,"', 'e"'], 5, 30)
def test_rows_are_those_of_the_slow_reading(
    given_lines: list[str], max_lines: int, max_characters: int
) -> None:
    expected = slowly([line + "\n" for line in given_lines], max_lines, max_characters)
    found = rows([line.encode() for line in given_lines], max_lines, max_characters)
    assert found == list(expected)


cells = st.text('ab",\n', min_size=1, max_size=20).map(lambda text: f"a{text}")


@given(st.lists(st.tuples(cells, cells) | st.none()))
def test_a_quote_that_is_not_closed_costs_its_own_line_only(
    given_rows: list[tuple[str, str] | None],
) -> None:
    page = io.StringIO(newline="")
    writer = csv.writer(page, lineterminator="\n")
    for row in [("x", "y"), *given_rows]:
        if row is None:
            page.write('u,"not closed\n')
        else:
            writer.writerow(row)
    _, *found = rows(page.getvalue().encode().split(b"\n")[:-1])
    assert [row for _, row in found] == [UNCLOSED if x is None else [*x] for x in given_rows]


def test_every_line_is_parsed_at_most_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = 0

    def counted(lines: Iterator[str]) -> Iterator[str]:
        nonlocal parsed
        for line in lines:
            parsed += 1
            yield line

    original = csv.reader
    monkeypatch.setattr(csv, "reader", lambda given, **options: original(counted(given), **options))
    # Each of these lines leaves a quote open, whether one was open before it or not.
    found = rows([b"a,b", *[b'x","'] * 3_000], max_lines=500)
    assert len(found) == 3_001
    assert parsed <= 3 * 3_001


def test_overlong_lines_are_rows_of_their_own() -> None:
    given_lines: list[Line] = [b"a,b", Overlong(9), b'1,"2', Overlong(9), b'3"', b"4,5"]
    assert rows(given_lines) == [
        (1, ["a", "b"]),
        (2, TOO_LONG),
        (3, UNCLOSED),
        (4, TOO_LONG),
        (5, BROKEN),
        (6, ["4", "5"]),
    ]
    long = b"x," + b"y" * 200_000  # more than the parser takes in one field
    assert rows([b"a,b", long, b"1,2"]) == [(1, ["a", "b"]), (2, TOO_LONG), (3, ["1", "2"])]


def test_thousands_of_posts_after_an_open_quote_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    good = [f"{number},u,0,text {number}\n" for number in range(3_000)]
    good[2_900] = '2900,u,0,"text 2900, quoted\nover\nlines"\n'
    path.write_text("id,user,time,text\n" + good[0] + '1,u,0,"open\n' + "".join(good[2:]))
    source = Tabular(paths=(str(path),))
    found = [record for shard in source.shards() for record in source.read(shard)]
    assert found[1] == Skip("unclosed quote", f"{path}:3")
    assert found[2_900] == Post("u", "text 2900, quoted\nover\nlines", 0, "2900")
    assert [one.id for one in found if isinstance(one, Post)] == [
        str(number) for number in range(3_000) if number != 1
    ]


def test_the_limits_are_settings(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,user,time,text\n1,u,0,"the first\ntwo\nthree"\n')

    def read(**limits: Any) -> list[str]:
        source = Tabular(paths=(str(path),), **limits)
        found = [record for shard in source.shards() for record in source.read(shard)]
        return [one.text if isinstance(one, Post) else one.reason for one in found]

    assert read(max_row_lines=3) == ["the first\ntwo\nthree"]
    path.write_text(path.read_text() + "1,u,0,text that is long\n")
    assert read(max_record_bytes=20) == ["the first\ntwo\nthree", "too long"]
    broken = ["unclosed quote", "broken CSV row", "broken CSV row", "text that is long"]
    assert read(max_row_lines=2) == broken
    assert read(max_row_characters=20) == broken
