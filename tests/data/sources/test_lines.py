"""Lines of any length, in any chunks, and compressed files that promise too much."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, strategies as st

from firehose.data.post import Post, Skip
from firehose.data.sources import tabular
from firehose.data.sources.files import Overlong, lines
from firehose.data.sources.tabular import Tabular


@given(st.lists(st.text("ab\n", max_size=12)), st.integers(1, 9))
def test_lines_do_not_depend_on_chunks(chunks: list[str], limit: int) -> None:
    found = [*lines((chunk.encode() for chunk in chunks), limit)]
    whole = "".join(chunks).split("\n")
    expected = whole if whole[-1] else whole[:-1]
    assert [*map(len, found)] == [*map(len, expected)]
    for one, line in zip(found, expected, strict=True):
        assert one == line.encode() if len(line) <= limit else isinstance(one, Overlong)


def read(path: Path, **settings: Any) -> list[Post | Skip]:
    source = Tabular(paths=(str(path),), **settings)
    shards = json.loads(json.dumps(source.shards()))
    return [record for shard in shards for record in source.read(shard)]


GOOD = b'{"user": "u", "time": 0, "text": "a", "id": "1"}\n'
POST = Post("u", "a", 0, "1")


@pytest.mark.parametrize("shard", [1_000, 1 << 20])
def test_one_overlong_line_is_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: int
) -> None:
    monkeypatch.setattr(tabular, "BYTES_PER_SHARD", shard)
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"x" * 300_000 + b"\n" + GOOD)
    long = Skip("too long", f"{path}:2")
    assert read(path, max_record_bytes=1 << 10) == [POST, long, POST]
    path.write_bytes(GOOD + b"x" * 300_000)
    assert read(path, max_record_bytes=1 << 10) == [POST, long]
    assert read(path) == [POST, Skip("broken JSON", f"{path}:2")]


def test_a_bomb_without_line_ends_is_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD + b"\0" * (8 << 20) + b"\n" + GOOD))
    assert path.stat().st_size < 100_000
    assert read(path) == [POST, Skip("too long", f"{path}:2"), POST]


def test_a_frame_that_asks_for_too_much_memory_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    # No content size, and a window of 2 TiB: exponent 31 above 1 KiB.
    path.write_bytes(
        zstandard.compress(GOOD) + b"\x28\xb5\x2f\xfd\x00" + bytes([31 << 3]) + b"\x01"
    )
    assert read(path) == [POST, Skip("truncated or corrupt file", str(path))]


def test_names_that_would_fill_the_memory_are_too_long(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record = {"user": "u", "time": 0, "text": "a" * 10_000, "id": "1"}
    records = [record, *({**record, name: "x" * 5_000} for name in ("user", "id", "language"))]
    path.write_text("\n".join(map(json.dumps, records)))
    assert read(path) == [
        POST._replace(text="a" * 10_000),
        *(Skip("too long", f"{path}:{line}") for line in (2, 3, 4)),
    ]
