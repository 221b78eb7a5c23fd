"""Tables in every format and compression, times in every spelling, and damage of every kind."""

import bz2
import csv
import gzip
import io
import json
import math
import shlex
import string
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, strategies as st

from firehose.data.post import Post, Skip
from firehose.data.sources import tabular
from firehose.data.sources.columns import Columns
from firehose.data.sources.fields import moment
from firehose.data.sources.tabular import Tabular
from firehose.errors import FirehoseError

POSTS = [
    Post("ann", "plain", 1_538_000_000_000, "1"),
    Post("bob", 'line\nbreak, "quotes",\ttab; 日本語 🎉', 1_538_000_000_123, "2", "ja"),
    Post("ann", "before 1970", -1, "3", "en", is_retweet=True),
    Post("zoë", " spaces ", 0, "4", None, is_reply=True),
]
FORMATS = ["parquet", "jsonl", "ndjson", "json", "csv", "tsv"]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def iso(milliseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds")


def table(posts: Sequence[Post], kind: str) -> bytes:
    rows = [{**post._asdict(), "time": iso(post.time), "other": 1} for post in posts]
    for row in rows:
        del row["split"]
    if kind == "parquet":
        fields = [(name, pa.string()) for name in ("id", "user", "time", "text", "language")]
        flags = [("is_retweet", pa.bool_()), ("is_reply", pa.bool_())]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, pa.schema([*fields, *flags])), sink)
        return sink.getvalue()
    if kind in ("csv", "tsv"):
        names = [*(name for name in Post._fields if name != "split"), "other"]
        page = io.StringIO(newline="")
        writer = csv.DictWriter(page, names, delimiter="\t" if kind == "tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
        return page.getvalue().encode()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def read(*paths: Path, **columns: str) -> list[Post | Skip]:
    source = Tabular(paths=tuple(map(str, paths)), columns=Columns.of(columns))
    shards = json.loads(json.dumps(source.shards()))
    return [record for shard in shards for record in source.read(shard)]


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("kind", "packing"),
    [("parquet", ""), *((kind, packing) for kind in FORMATS[1:] for packing in PACK)],
)
def test_every_format_and_compression_gives_the_same_posts(
    tmp_path: Path, kind: str, packing: str
) -> None:
    path = write(tmp_path / f"posts.{kind}{packing}", PACK[packing](table(POSTS, kind)))
    assert read(path) == POSTS
    assert Tabular.recognises(path)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
posts = st.lists(
    st.builds(
        Post,
        id=texts,
        user=texts,
        time=st.integers(-30_610_224_000_000, 32_503_679_999_999),
        text=texts,
        language=st.none() | texts,
        is_retweet=st.booleans(),
        is_reply=st.booleans(),
        split=st.none(),
    )
)


@given(posts)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, written: list[Post]
) -> None:
    folder = tmp_path_factory.mktemp("written")
    for kind in ("parquet", "jsonl", "csv", "tsv"):
        assert read(write(folder / f"posts.{kind}", table(written, kind))) == written, kind


@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b" "))))
def test_every_line_is_a_post_or_a_skip(
    tmp_path_factory: pytest.TempPathFactory, garbage: list[bytes]
) -> None:
    good = b'{"user": "ann", "time": 0, "text": "hello"}'
    lines = b"".join(line + b"\n" + good + b"\n" for line in garbage)
    content = good + b"\n" + lines  # what begins like a compressed file would be taken for one
    records = read(write(tmp_path_factory.mktemp("garbage") / "posts.jsonl", content))
    skips = [record for record in records if isinstance(record, Skip)]
    assert len(records) - len(skips) == 1 + len(garbage)
    assert len(skips) == sum(bool(line.decode("latin1").strip(" \t\n\r\v\f")) for line in garbage)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2018-10-10T20:19:24Z", 1_539_202_764_000),
        ("2018-10-10 20:19:24", 1_539_202_764_000),
        ("2018-10-10 20:19:24 UTC", 1_539_202_764_000),
        ("2018-10-10T20:19:24.1239Z", 1_539_202_764_123),
        ("2018-10-10T22:19:24+02:00", 1_539_202_764_000),
        ("2018-10-10T15:19:24.5-0500", 1_539_202_764_500),
        ("2018-10-10", 1_539_129_600_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1000-01-01T00:00:00Z", -30_610_224_000_000),
        ("20180102", 1_514_851_200_000),
        (1_539_202_764, 1_539_202_764_000),
        (1_539_202_764_123, 1_539_202_764_123),
        (32_503_679_999, 32_503_679_999_000),
        (32_503_680_000, None),
        (100_000_000_000, 100_000_000_000),
        (-100_000_000_000, -100_000_000_000),
        (-5, -5_000),
        (1_539_202_764.123, 1_539_202_764_123),
        (1_539_202_764_123.0, 1_539_202_764_123),
        (Decimal("1539202764.123"), 1_539_202_764_123),
        (" 1539202764 ", 1_539_202_764_000),
        ("1539202764.123", 1_539_202_764_123),
        ("1.539202764123e+12", 1_539_202_764_123),
        ("-0.001", -1),
        ("1000-01-01T00:00:00+01:00", None),
        ("10000000000000000", None),
        ("yesterday", None),
        ("", None),
        ("nan", None),
        (math.nan, None),
        (math.inf, None),
        (True, None),
        ([1], None),
    ],
)
def test_times(value: object, expected: int | None) -> None:
    assert moment(value) == expected


WINTER = datetime(2018, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
MILLISECONDS = 1_514_862_245_678


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.timestamp("s"), WINTER.replace(tzinfo=None, microsecond=0), 1_514_862_245_000),
        (pa.timestamp("ms"), WINTER.replace(tzinfo=None, microsecond=678_000), MILLISECONDS),
        (pa.timestamp("us"), WINTER.replace(tzinfo=None), MILLISECONDS),
        (pa.timestamp("ns"), WINTER.replace(tzinfo=None), MILLISECONDS),
        (pa.timestamp("us", "America/New_York"), WINTER, MILLISECONDS),
        (pa.timestamp("us", "UTC"), datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC), -1),
        (pa.timestamp("us"), WINTER.astimezone(timezone(timedelta(hours=5))), MILLISECONDS),
        (pa.date32(), date(1969, 12, 31), -86_400_000),
        (pa.date64(), date(2018, 1, 2), 1_514_851_200_000),
        (pa.int32(), 5, 5_000),
        (pa.float64(), 0.25, 250),
        (pa.large_string(), "1970-01-01T00:00:01Z", 1_000),
        (pa.dictionary(pa.int8(), pa.string()), "1970-01-01", 0),
        (pa.decimal128(13, 3), Decimal("1514862245.678"), MILLISECONDS),
    ],
)
def test_parquet_times(tmp_path: Path, kind: Any, value: object, expected: int) -> None:
    path = parquet(
        tmp_path / "a.parquet",
        user=["u", "u"],
        time=pa.array([value, None], kind),
        text=["a", "b"],
    )
    post, skip = read(path)
    assert isinstance(post, Post)
    assert post.time == expected
    assert skip == Skip("no time", f"{path}:row 2")


def test_ids_are_kept_exactly(tmp_path: Path) -> None:
    big = 2**63 - 1
    as_json = [
        {"user": big, "time": 0, "text": "a", "id": 10**30},
        {"user": 12.0, "time": 0, "text": "a", "id": "x"},
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, as_json)))
    assert read(path) == [Post(str(big), "a", 0, str(10**30)), Post("12", "a", 0, "x")]
    path = parquet(
        tmp_path / "a.parquet",
        user=pa.array([big, None], pa.int64()),
        time=[0, 0],
        text=["a", "b"],
        id=pa.array([7.0, 8.0]),
    )
    assert read(path) == [Post(str(big), "a", 0, "7"), Skip("no user", f"{path}:row 2")]


def test_without_ids_the_content_is_hashed(tmp_path: Path) -> None:
    rows = "user,time,text\nann,1,hi\nann,1,hi\nann,2,hi\nbob,1,hi\nann,1,ho\n"
    found = read(write(tmp_path / "a.csv", rows))
    ids = [post.id for post in found if isinstance(post, Post)]
    assert len(ids) == 5
    assert len(set(ids)) == 4
    assert ids[0] == ids[1]
    assert all(len(name) == 24 and set(name) <= set(string.hexdigits) for name in ids)
    assert read(write(tmp_path / "a.json", '{"user":"ann","time":1,"text":"hi"}')) == found[:1]


def test_broken_jsonl_records_are_skipped_one_by_one(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"user": "u", "time": 0, "text": "first, after a byte order mark", "id": 1}',
        b'{"user": "u", "time": 0',
        b'{"time": 0, "text": "a"}',
        b'{"user": null, "time": 0, "text": "a"}',
        b'{"user": "u", "time": 0, "text": ""}',
        b'{"user": "u", "time": 0, "text": 5}',
        b'{"user": "u", "text": "a"}',
        b'{"user": "u", "time": "noon", "text": "a"}',
        b'{"user": "u", "time": 0, "text": "\xff"}',
        b'{"user": "u", "time": 0, "text": "\\ud83d"}',
        b'{"user": "u", "time": 0, "text": "a", "id": "\\ud83d"}',
        b"[1]",
        b"",
        b"[" * 100_000,
        b'{"user": "u", "time": 0, "text": "a", "is_reply": "maybe"}',
        b'{"user": "u", "time": 0, "text": "last, without a line end", "id": 2}',
    ]
    path = write(tmp_path / "a.jsonl", b"\r\n".join(lines))
    reasons = [
        (2, "broken JSON"),
        (3, "no user"),
        (4, "no user"),
        (5, "no text"),
        (6, "no text"),
        (7, "no time"),
        (8, "unreadable time"),
        (9, "not UTF-8"),
        (10, "not UTF-8"),
        (11, "not UTF-8"),
        (12, "not a JSON object"),
        (14, "broken JSON"),
        (15, "unreadable yes or no"),
    ]
    assert read(path) == [
        Post("u", "first, after a byte order mark", 0, "1"),
        *(Skip(reason, f"{path}:{line}") for line, reason in reasons),
        Post("u", "last, without a line end", 0, "2"),
    ]


def test_broken_csv_rows_are_skipped_one_by_one(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbfid,user, time,text",
        b'1,u,0,"two',
        b'lines"',
        b"2,u,0",
        b"3,u,0,a,b",
        b"4,u,0,\xff",
        b'5,u,0,"\xff',
        b'"',
        b'6,u,0,"a"b',
        b"",
        b"7,,0,a",
        b"8,u,0,last",
    ]
    path = write(tmp_path / "a.csv", b"\n".join(lines))
    assert read(path) == [
        Post("u", "two\nlines", 0, "1"),
        Skip("broken CSV row", f"{path}:4"),
        Skip("broken CSV row", f"{path}:5"),
        Skip("not UTF-8", f"{path}:6"),
        Skip("not UTF-8", f"{path}:7"),
        Skip("broken CSV row", f"{path}:9"),
        Skip("no user", f"{path}:11"),
        Post("u", "last", 0, "8"),
    ]


def test_parquet_text_that_is_not_utf8_spoils_its_row_only(tmp_path: Path) -> None:
    raw = pa.array([b"a", b"\xff", b"c"], pa.binary())
    bad = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    for text in (raw, bad):
        path = parquet(
            tmp_path / "a.parquet", user=["u"] * 3, time=[0] * 3, text=text, id=[1, 2, 3]
        )
        skip = Skip("not UTF-8", f"{path}:row 2")
        assert read(path) == [Post("u", "a", 0, "1"), skip, Post("u", "c", 0, "3")]


@pytest.mark.parametrize(
    ("word", "expected"),
    [("TRUE", True), ("Yes", True), ("1", True), ("false", False), ("NO", False), ("0", False)],
)
def test_yes_and_no(tmp_path: Path, word: str, expected: bool) -> None:
    header = "id,user,time,text,is_retweet,is_reply\n"
    path = write(tmp_path / "a.csv", f"{header}1,u,0,a,{word},\n")
    assert read(path) == [Post("u", "a", 0, "1", None, expected, False)]
    record = {"id": 1, "user": "u", "time": 0, "text": "a", "is_reply": word}
    path = write(tmp_path / "a.jsonl", json.dumps(record))
    assert read(path) == [Post("u", "a", 0, "1", None, False, expected)]


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_cut_file_gives_what_is_there_and_a_skip(tmp_path: Path, kind: str, packing: str) -> None:
    pack = PACK[packing]
    many = [post._replace(id=str(i)) for i, post in enumerate(POSTS * 5)]
    head = table(many[:12], kind)
    tail = table(many, kind)[len(head) :]
    whole = pack(head) + pack(tail)  # streams that follow each other are one file
    path = write(tmp_path / f"a.{kind}{packing}", whole)
    assert read(path) == many
    damage = Skip("truncated or corrupt file", str(path))
    write(path, whole[:-5])
    found = read(path)
    assert found[:12] == many[:12]
    assert found[-1] == damage
    assert found[:-1] == many[: len(found) - 1]
    write(path, pack(head) + b"garbage, not a stream")
    if packing != ".bz2":  # the bzip2 library ignores what follows a stream
        assert read(path) == [*many[:12], damage]
    write(path, b"")
    assert read(path) == [damage]


def test_corrupt_parquet_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", b"PAR1 and no more")
    assert read(path) == [Skip("truncated or corrupt file", str(path))]
    whole = bytearray(table(POSTS * 1_000, "parquet"))
    whole[4:400] = b"\xff" * 396  # the pages, not the footer
    write(path, bytes(whole))
    found = read(path)
    assert len(found) == 4_000  # the footer tells how many rows are lost
    assert found[-1] == Skip("damaged row group", f"{path}:row 4000")


def test_parquet_shards_cover_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 25_000
    columns = {
        "user": pa.array([f"u{i % 7}" for i in range(count)]).dictionary_encode(),
        "time": list(range(count)),
        "text": [f"t{i}" if i != 23_456 else None for i in range(count)],
        "id": list(range(count)),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=20_000)
    monkeypatch.setattr(tabular, "ROWS_PER_SHARD", 9_000)
    shards = Tabular(paths=(str(path),)).shards()
    ranges = [(shard["row_group"], shard["start"], shard["stop"]) for shard in shards]
    assert ranges == [(0, 0, 9_000), (0, 9_000, 18_000), (0, 18_000, 20_000), (1, 0, 5_000)]
    found = read(path)
    assert found[23_456] == Skip("no text", f"{path}:row 23457")
    assert [post.id for post in found if isinstance(post, Post)] == [
        str(i) for i in range(count) if i != 23_456
    ]
    assert found[7] == Post("u0", "t7", 7_000, "7")


@pytest.mark.parametrize("size", [1, 2, 50, 51, 52, 53, 1_000])
def test_jsonl_shards_cover_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(tabular, "BYTES_PER_SHARD", size)
    path = write(tmp_path / "a.jsonl", table(POSTS * 3, "jsonl") + b"\n\nbroken")
    *found, skip = read(path)
    assert found == POSTS * 3
    assert isinstance(skip, Skip)
    line, byte = f"{path}:15", f"{path}:byte {path.stat().st_size - len('broken')}"
    assert skip.where == byte
    monkeypatch.undo()
    assert read(path)[-1] == Skip("broken JSON", line)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_columns_are_mapped_and_missing_ones_named(tmp_path: Path, kind: str) -> None:
    row = {"author": "u", "when": "0", "body": "a", "lang": "en"}
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        write(path, json.dumps(row) if kind == "jsonl" else ",".join(row) + "\nu,0,a,en\n")
    mapping = {"user": "author", "time": "when", "text": "body"}
    (post,) = read(path, **mapping, language="lang")
    assert isinstance(post, Post)
    assert post == Post("u", "a", 0, post.id, "en")
    assert read(path, **mapping) == [post._replace(language=None)]
    for role in mapping:
        with pytest.raises(FirehoseError) as error:
            read(path, **{name: value for name, value in mapping.items() if name != role})
        assert str(error.value) == (
            f"{path} has no column {role!r} for the {role}, but author, when, body, lang; "
            "this may be what you want: "
            f"firehose prepare {path} --set source.columns.user=author "
            "--set source.columns.time=when --set source.columns.text=body --out CORPUS"
        )
    with pytest.raises(
        FirehoseError, match=r"(?s)no column 'nope'.*source\.columns\.is_reply=NAME"
    ):
        read(path, **mapping, is_reply="nope")


def test_all_missing_columns_are_named_at_once_with_a_command_that_works(tmp_path: Path) -> None:
    path = write(tmp_path / "my tickets.csv", "Ticket,Agent,Opened,Message body\n1,u,0,a\n")
    with pytest.raises(FirehoseError, match="'user' for the user, 'time' for the time") as error:
        read(path)
    told, command = str(error.value).split(": firehose ")
    assert told.endswith("; name the right one in place of NAME")
    assert "--set 'source.columns.text=Message body'" in command  # the others cannot be guessed
    assert "columns.user=NAME" in command and "columns.time=NAME" in command
    path = write(tmp_path / "b.csv", "Author ID,Created,Body\nu,0,a\n")
    with pytest.raises(FirehoseError) as error:
        read(path)
    command = "firehose " + str(error.value).split(": firehose ")[1]
    assigned = [part for part in shlex.split(command) if part.startswith("source.columns.")]
    columns = dict(part.removeprefix("source.columns.").split("=") for part in assigned)
    assert columns == {"user": "Author ID", "time": "Created", "text": "Body"}
    (post,) = read(path, **columns)
    assert isinstance(post, Post) and post[:3] == ("u", "a", 0)


def test_folders_and_globs(tmp_path: Path) -> None:
    for number, name in enumerate(["b/1.csv", "b/0.jsonl.gz", "a.json", ".hidden.csv", "notes.md"]):
        row = table([Post("u", "a", 0, str(number))], "csv" if name.endswith("csv") else "json")
        write(tmp_path / "in" / name, gzip.compress(row) if name.endswith("gz") else row)

    def ids(*paths: Path) -> list[str]:
        return [post.id for post in read(*paths) if isinstance(post, Post)]

    assert ids(tmp_path / "in") == ["2", "1", "0"]
    assert ids(tmp_path / "in/b/*.csv") == ["0"]
    assert ids(tmp_path / "in/*") == ["2", "1", "0"]
    assert ids(tmp_path / "in/b", tmp_path / "in/b/1.csv") == ["1", "0"]
    assert Tabular.recognises(tmp_path / "in")
    assert Tabular.recognises(tmp_path / "in/b/*.gz")
    assert not Tabular.recognises(tmp_path / "in/notes.md")
    assert not Tabular.recognises(tmp_path / "in/b/*.md")


def test_paths_that_lead_nowhere_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FirehoseError, match=r"missing\.csv in source\.paths does not exist"):
        read(tmp_path / "missing.csv")
    with pytest.raises(FirehoseError, match=r"nothing to read in .*\*\.csv"):
        read(tmp_path / "*.csv")
    with pytest.raises(FirehoseError, match="nothing to read in"):
        read(tmp_path)
    with pytest.raises(FirehoseError, match="nothing to read in"):
        read(write(tmp_path / "a.txt", "text"))
    with pytest.raises(FirehoseError, match=r"source\.paths is empty"):
        read()
