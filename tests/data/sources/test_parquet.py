"""Columns of every type of Arrow: each row is a post or is skipped by itself."""

import tracemalloc
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from firehose.data.post import Post, Skip
from firehose.data.sources import parquet
from firehose.data.sources.files import DamagedError
from firehose.data.sources.parquet import _times
from firehose.data.sources.tabular import Tabular

YEAR_1000, YEAR_3000 = -30_610_224_000_000, 32_503_680_000_000


def read(path: Path, **settings: Any) -> list[Post | Skip]:
    source = Tabular(paths=(str(path),), **settings)
    return [record for shard in source.shards() for record in source.read(shard)]


def outcomes(path: Path, **columns: Any) -> list[Any]:
    """For each row its time, or the reason why it is no post."""
    size = len(next(iter(columns.values())))
    plain = {"user": ["u"] * size, "time": [0] * size, "text": ["a"] * size}
    pq.write_table(pa.table(plain | columns), path / "a.parquet")
    found = read(path / "a.parquet")
    return [one.time if isinstance(one, Post) else one.reason for one in found]


SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6)}
SECONDS |= {"ns": Fraction(1, 10**9)}
near = st.sampled_from([YEAR_1000, -1, 0, YEAR_3000]).flatmap(
    lambda edge: st.integers(edge - 2, edge + 2)
)


@given(st.data(), st.sampled_from([*SECONDS]), st.sampled_from([None, "UTC", "Mars/Phobos"]))
def test_timestamps_are_rounded_down_exactly(data: st.DataObject, unit: str, zone: str) -> None:
    any_tick = st.integers(-(2**63) + 1, 2**63 - 1)
    edge = near.map(lambda ms: int(Fraction(ms, 1_000) / SECONDS[unit]))
    at_edge = edge.filter(lambda tick: -(2**63) < tick < 2**63)
    ticks = data.draw(st.lists(st.none() | any_tick | at_edge))
    column = pa.array(ticks, pa.int64()).view(pa.timestamp(unit, zone))
    values, clock = _times(column)
    for tick, value in zip(ticks, values, strict=True):
        if tick is None:
            assert value is None
            continue
        exact = tick * SECONDS[unit] * 1_000 // 1
        assert clock(value) == (exact if YEAR_1000 <= exact < YEAR_3000 else None)


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)))
def test_dates_are_days(days: list[int | None]) -> None:
    in_ms = [None if day is None else day * 86_400_000 for day in days]
    for column in (
        pa.array(days, pa.int32()).view(pa.date32()),
        pa.array(in_ms, pa.int64()).view(pa.date64()),
    ):
        values, clock = _times(column)
        assert [None if value is None else clock(value) for value in values] == [
            time if time is not None and YEAR_1000 <= time < YEAR_3000 else None for time in in_ms
        ]


@pytest.mark.parametrize("zone", [None, "UTC", "Mars/Phobos"])
def test_times_that_python_does_not_have_cost_their_row_only(
    tmp_path: Path, zone: str | None
) -> None:
    ticks = pa.array([1_500_000_000_000_000_001, -(2**63) + 1, None, 1_999_999], pa.int64())
    expected = [1_500_000_000_000, -9_223_372_036_855, "no time", 1]
    assert outcomes(tmp_path, time=ticks.view(pa.timestamp("ns", zone))) == [*expected]
    ticks = pa.array([253_402_300_800_000_000, 5_000], pa.int64())  # the year 10000
    times = ticks.view(pa.timestamp("us", zone))
    assert outcomes(tmp_path, time=times) == ["unreadable time", 5]
    assert outcomes(tmp_path, time=times.dictionary_encode()) == ["unreadable time", 5]
    days = pa.array([2**31 - 1, 1], pa.int32()).view(pa.date32())
    assert outcomes(tmp_path, time=days) == ["unreadable time", 86_400_000]


@pytest.mark.parametrize(
    "odd",
    [
        pa.array([2**62, None], pa.duration("ns")),
        pa.array([2**62, None], pa.int64()).view(pa.timestamp("ns")),
        pa.array([2**31 - 1, None], pa.int32()).view(pa.date32()),
        pa.array([5, None], pa.time32("s")),
        pa.array([[1], None], pa.list_(pa.int64())),
        pa.array([{"a": 1}, None]),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda odd: str(odd.type),
)
def test_a_type_that_a_field_cannot_have(tmp_path: Path, odd: pa.Array) -> None:
    assert outcomes(tmp_path, user=odd) == ["no user", "no user"]
    assert outcomes(tmp_path, text=odd) == ["no text", "no text"]
    assert outcomes(tmp_path, is_reply=odd) == ["unreadable yes or no", 0]
    assert outcomes(tmp_path, id=odd) == outcomes(tmp_path, language=odd) == [0, 0]
    if not pa.types.is_timestamp(odd.type):
        assert outcomes(tmp_path, time=odd) == ["unreadable time", "no time"]


@pytest.mark.parametrize(
    "users",
    [
        pa.array(["12", None]),
        pa.array(["12", None], pa.large_string()),
        pa.array(["12", None]).dictionary_encode(),
        pa.array([b"12", None], pa.binary(2)),
        pa.array([b"12", None], pa.large_binary()),
        pa.array([12, None], pa.uint8()),
        pa.array([12, None], pa.int64()).dictionary_encode(),
        pa.array([12.0, None], pa.float32()),
        pa.array([Decimal(12), None], pa.decimal256(40, 3)),
    ],
    ids=lambda users: str(users.type),
)
def test_a_user_of_any_type(tmp_path: Path, users: pa.Array) -> None:
    path = tmp_path / "a.parquet"
    columns = {"user": users, "time": [0, 0], "text": ["a", "b"], "id": ["1", "2"]}
    pq.write_table(pa.table(columns), path)
    assert read(path) == [Post("12", "a", 0, "1"), Skip("no user", f"{path}:row 2")]


def test_of_two_columns_with_one_name_the_first_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = [pa.array([value]) for value in ("u", 0, "a", "1", "other")]
    pq.write_table(pa.table(columns, names=["user", "time", "text", "id", "user"]), path)
    assert read(path) == [Post("u", "a", 0, "1")]


@pytest.mark.parametrize("stored", ["dictionary", "string", "plain"])
def test_a_long_text_of_many_rows_is_not_copied_for_each(tmp_path: Path, stored: str) -> None:
    path, count = tmp_path / "a.parquet", 200
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), ["x" * (1 << 20)])
    columns = {"user": ["u"] * count, "time": range(count), "id": [*map(str, range(count))]}
    columns["text"] = texts if stored == "dictionary" else texts.dictionary_decode()
    options = {"use_dictionary": stored != "plain", "compression": "snappy"}
    pq.write_table(pa.table(columns), path, write_batch_size=1, **options)
    del columns, texts
    before = pa.total_allocated_bytes()
    highest = 0
    tracemalloc.start()
    found = 0
    source = Tabular(paths=(str(path),))
    for shard in source.shards():
        for record in source.read(shard):
            assert isinstance(record, Post)
            found += 1
            highest = max(highest, pa.total_allocated_bytes() - before)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == count
    assert peak < 60 << 20
    assert highest < 80 << 20
    assert [
        one.reason for one in read(path, max_record_bytes=1 << 19) if isinstance(one, Skip)
    ] == ["too long"] * count


def test_long_texts_are_skipped_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BYTES", 1_000)  # many parts of a batch
    path = tmp_path / "a.parquet"
    sizes = [1, 600, 100, 601, 5_000, 2, 600, 600]
    texts = ["x" * size for size in sizes]
    for text in (pa.array(texts), pa.array(texts).dictionary_encode(), pa.array(texts, "binary")):
        columns = {"user": ["u"] * 8, "time": [0] * 8, "text": text, "id": [*map(str, range(8))]}
        pq.write_table(pa.table(columns), path)
        assert read(path, max_record_bytes=602) == [
            Skip("too long", f"{path}:row {number + 1}")
            if size > 600
            else Post("u", "x" * size, 0, str(number))
            for number, size in enumerate(sizes)
        ]


def test_no_text_is_not_as_long_as_the_first_of_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array(["x" * 5_000, None, "y"]).dictionary_encode()
    columns = {"user": ["u"] * 3, "time": [0] * 3, "text": texts, "id": ["0", "1", "2"]}
    pq.write_table(pa.table(columns), path)
    assert read(path, max_record_bytes=602) == [
        Skip("too long", f"{path}:row 1"),
        Skip("no text", f"{path}:row 2"),
        Post("u", "y", 0, "2"),
    ]


@pytest.mark.parametrize("wrong", [2, -1])
def test_texts_that_are_not_in_their_dictionary_are_damage(wrong: int) -> None:
    indices = pa.array([0, None, wrong], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, ["a", "b"], safe=False)
    with pytest.raises(DamagedError):
        parquet._stored(pa.record_batch({"text": column}), "text")
    fine = pa.record_batch({"text": pa.array(["a", None]).dictionary_encode()})
    assert parquet._stored(fine, "text").to_pylist() == ["a", None]


def test_a_footer_that_contradicts_itself_does_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {"user": ["u"] * 3, "time": [0, None, 0], "text": [*"abc"], "id": [*"012"]}
    pq.write_table(pa.table(columns), path)
    optional, required = b"\x25\x02\x18\x04time", b"\x25\x00\x18\x04time"  # in the schema
    assert path.read_bytes().count(optional) == 1
    path.write_bytes(path.read_bytes().replace(optional, required))
    assert {one.reason for one in read(path) if isinstance(one, Skip)} <= {
        "damaged row group", "truncated or corrupt file", "no text"
    }  # fmt: skip
    assert len(read(path)) in (1, 3)


def test_more_rows_than_a_file_can_have_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": ["u"], "time": [0], "text": ["a"]}), path)
    assert len(read(path)) == 1
    monkeypatch.setattr(parquet, "ROWS_PER_BYTE", 0)
    assert read(path) == [Skip("truncated or corrupt file", str(path))]
