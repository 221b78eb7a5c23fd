"""The fuzzer: some of its files for every source, and that it sees what goes wrong."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import fuzz
from firehose.data.post import Post, Skip
from firehose.data.sources import tabular
from firehose.data.sources.tabular import Tabular
from fuzz_cases import Case


@pytest.mark.parametrize("source", fuzz.SOURCES)
def test_every_record_is_in_its_place(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "BYTES_PER_SHARD", 0)  # put back after the test
    monkeypatch.setattr(tabular, "ROWS_PER_SHARD", 0)
    for number in (1, 2, 3):
        records, places, *_ = fuzz.run_case(source, 0, number)
        assert records == places.total()


POSTS = [Post("u", "a", 0, "1"), Post("u", "b", 0, "2")]
SKIP = Skip("no text", "x:3")


@pytest.mark.parametrize(
    "found",
    [
        POSTS,
        [*POSTS, SKIP, SKIP],
        [POSTS[0], POSTS[0], SKIP],
        [*POSTS, Skip("no user", "x:3")],
        [POSTS[0], SKIP, POSTS[1]],
    ],
)
def test_a_record_in_the_wrong_place_is_seen(found: list[Post | Skip]) -> None:
    case = Case(Tabular(), [*POSTS, "no text"])
    fuzz.compare([*POSTS, SKIP], case)
    with pytest.raises(fuzz.WrongError):
        fuzz.compare(found, case)
