"""Numbers for other tools: a row each, the same in both files."""

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firehose.report.results import Row, table_of, write_results

ROWS = [
    Row("a", "online", 12.5, 11.0, 14.0, seed=0, varies={"play.steps": "1"}),
    Row("b", "test", 3.25, part="activity: 0–10 %", seed=1, varies={"play.learner": "gem"}),
    Row("a", "test, change against b", -0.5),
]


def test_every_row_has_every_column() -> None:
    first, second, third = table_of(ROWS)
    assert list(first) == list(second) == list(third)
    settings = ["play.steps", "play.learner"]
    ends = ["seed", "measure", "part", "value", "low", "high"]
    assert list(first) == ["run", *settings, *ends]
    assert (first["play.steps"], second["play.steps"]) == ("1", None)
    assert (first["low"], first["high"], third["seed"]) == (11.0, 14.0, None)


def test_both_files_say_the_same(tmp_path: Path) -> None:
    write_results(tmp_path, ROWS)
    table = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert table == table_of(ROWS)
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for text, values in zip(rows, table, strict=True):
        assert list(text) == list(values)
        assert float(text["value"]) == values["value"]
        assert text["part"] == values["part"] and text["low"] == str(values["low"] or "")


def test_nothing_is_written_of_nothing(tmp_path: Path) -> None:
    write_results(tmp_path, [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["results.csv", "results.parquet"])
def test_the_same_rows_are_the_same_bytes(tmp_path: Path, name: str) -> None:
    for folder in ("one", "two"):
        write_results(tmp_path / folder, ROWS)
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
