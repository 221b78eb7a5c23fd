"""Posts in tables: Parquet, JSONL and CSV, plain or compressed, with any column names."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from firehose.config import Section
from firehose.data.clean import mend
from firehose.data.post import Post, Skip
from firehose.data.sources import Shard, Source
from firehose.data.sources.fields import encodable, json_post, label, moment, sane
from firehose.data.sources.files import DamagedError, find_files, holds, lines, open_file, unpack
from firehose.errors import FirehoseError

ROWS_PER_SHARD = 262_144  # a shard in the middle of a row group reads that from its start
BYTES_PER_SHARD = 32 << 20
_WANTS = "files ending in .parquet, .jsonl, .json, .csv or .tsv (also .gz, .zst, .bz2), or a folder"
_SUFFIX = re.compile(
    r"\.(?:(parquet|pq)|(?:(jsonl|ndjson|json)|(csv|tsv))(\.gz|\.zst|\.bz2)?)$", re.IGNORECASE
)
_SAMPLE = 1_000  # records of a JSONL file, which has no header, whose keys are its columns


class Columns(Section):
    """The name of the column for each field of a post."""

    id: str = "id"
    user: str = "user"
    time: str = "time"
    text: str = "text"
    language: str = "language"
    is_retweet: str = "is_retweet"
    is_reply: str = "is_reply"


class Tabular(Source):
    """Tables with one post in each row; the columns for user, time and text are required."""

    kind: Literal["tabular"] = "tabular"
    columns: Columns = Columns()

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether ``path`` is a table by its name, or a folder with a table."""
        return holds(path, _is_table)

    def shards(self) -> list[Shard]:
        """Shards of 262,144 rows of Parquet, 32 MiB of uncompressed JSONL, or else whole files.

        Raises an error where a required column is missing.
        """
        shards: list[Shard] = []
        for path in find_files(self.paths, _is_table, _WANTS):
            name = str(path)
            present = _columns(name)
            if present is not None:
                self._check(name, present)
            parquet, jsonl, _, packed = _format(name)
            if parquet and present is not None:
                shards += _row_ranges(name)
            elif jsonl and not packed:
                shards += _spans(name, path.stat().st_size, BYTES_PER_SHARD)
            else:
                shards.append({"path": name})
        return shards

    def read(self, shard: Shard) -> Iterator[Post | Skip]:
        """One post or skip for each record, in the order of the file.

        A skip names the file and the line, or the byte in all shards but the first of a JSONL
        file, where the number of the line is not known.
        """
        path = shard["path"]
        parquet, jsonl, _, _ = _format(path)
        read = self._read_parquet if parquet else self._read_jsonl if jsonl else self._read_csv
        try:
            yield from read(path, shard)
        except DamagedError:
            yield Skip("truncated or corrupt file", path)

    def _check(self, path: str, present: Sequence[str]) -> None:
        for role, field in Columns.model_fields.items():
            name = getattr(self.columns, role)
            wanted = role in ("user", "time", "text") or name != field.default
            if wanted and name not in present:
                raise FirehoseError(
                    f"{path} has no column {name!r} for the {role} but {', '.join(present)}: "
                    f"name the right one with --set source.columns.{role}=NAME."
                )

    def _names(self) -> list[str]:
        return [getattr(self.columns, role) for role in Columns.model_fields]

    def _read_jsonl(self, path: str, shard: Shard) -> Iterator[Post | Skip]:
        names = self._names()
        first = shard.get("start", 0)

        def post_of(record: dict[str, Any]) -> Post | str:
            return _post([*map(record.get, names)])

        with open_file(path) as file:
            if first:  # a line belongs to the shard it starts in
                file.seek(first - 1)
                while (begun := file.readline(1 << 16)) and not begun.endswith(b"\n"):
                    pass
                first = file.tell()
            where = f"{path}:byte " if first else f"{path}:"
            place = first
            for number, line in enumerate(lines(unpack(file, path)), 1):
                if place >= shard.get("stop", math.inf):
                    break
                found = json_post(line, post_of, _encoding(place))
                if isinstance(found, Post):
                    yield found
                elif found:  # an empty line is no record
                    yield Skip(found, f"{where}{place if first else number}")
                place += len(line) + 1

    def _read_csv(self, path: str, _: Shard) -> Iterator[Post | Skip]:
        with open_file(path) as file:
            rows = _csv_rows(lines(unpack(file, path)), path)
            header, where = _header(rows), f"{path}:"
            # Where a column is missing, its value is the None that is put behind each row.
            place = {name: index for index, name in reversed(list(enumerate(header)))}
            pick = itemgetter(*(place.get(name, len(header)) for name in self._names()))
            for number, row in rows:
                found: Post | str = "broken CSV row"
                if row and len(row) == len(header):
                    found = _post(pick([*row, None]))
                yield found if isinstance(found, Post) else Skip(found, f"{where}{number}")

    def _read_parquet(self, path: str, shard: Shard) -> Iterator[Post | Skip]:
        if "row_group" not in shard:  # its footer could not be read
            raise DamagedError
        group, start, stop = shard["row_group"], shard["start"], shard["stop"]
        names = self._names()
        try:
            with pq.ParquetFile(path) as file:
                needed = [name for name in names if name in file.schema_arrow.names]
                before = sum(file.metadata.row_group(g).num_rows for g in range(group))
                first, where = 0, f"{path}:row "
                for batch in file.iter_batches(8192, [group], needed, use_threads=False):
                    begin = max(start - first, 0)
                    rows = _batch_posts(batch[begin : stop - first], names)
                    for number, found in enumerate(rows, before + first + begin + 1):
                        yield found if isinstance(found, Post) else Skip(found, f"{where}{number}")
                    first += len(batch)
                    if first >= stop:
                        break
        except (pa.ArrowException, OSError) as error:
            raise DamagedError from error


def _is_table(name: str) -> bool:
    return _SUFFIX.search(name) is not None


def _format(name: str) -> tuple[str | None, ...]:
    """The endings of Parquet, JSONL, CSV and of a compression; None for those it does not have."""
    match = _SUFFIX.search(name)
    assert match
    return match.groups()


def _columns(name: str) -> Sequence[str] | None:
    """The columns of a file, or None where it is damaged or empty."""
    parquet, jsonl, _, _ = _format(name)
    if parquet:
        open_file(name).close()  # raises an error where the file may not be read
        try:
            return cast(list[str], pq.read_schema(name).names)
        except (pa.ArrowException, OSError):
            return None
    keys: dict[str, None] = {}
    with open_file(name) as file:
        try:
            first = lines(unpack(file, name))
            if not jsonl:
                return _header(_csv_rows(first, name)) or None
            for line in islice(first, _SAMPLE):
                try:
                    record = json.loads(line.decode("utf-8-sig"))
                except (ValueError, RecursionError):
                    continue  # it is counted as skipped when it is read
                keys |= dict.fromkeys(record if isinstance(record, dict) else ())
        except DamagedError:
            pass
    return list(keys) or None


def _row_ranges(path: str) -> Iterator[Shard]:
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for span in _spans(path, metadata.row_group(group).num_rows, ROWS_PER_SHARD):
            yield span | {"row_group": group}


def _spans(path: str, size: int, step: int) -> Iterator[Shard]:
    for start in range(0, size, step):
        yield {"path": path, "start": start, "stop": min(start + step, size)}


def _batch_posts(batch: Any, names: Sequence[str]) -> Iterator[Post | str]:
    """For each row of a Parquet batch, the post, or the reason why it is none."""
    present = batch.schema.names
    cells: list[Iterable[Any]] = [
        _cells(_column(batch, name)) if name in present else repeat(None) for name in names
    ]
    cells[2], when = _times(_column(batch, names[2]))
    return (_post(row, when) for row in zip(*cells, strict=False))  # repeat() is endless


def _column(batch: Any, name: str) -> Any:
    column = batch.column(name)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _cells(column: Any) -> list[Any]:
    """The values of a column; if some are not UTF-8, all as bytes, to find the bad rows later."""
    try:
        return cast(list[Any], column.to_pylist())
    except UnicodeDecodeError:
        return cast(list[Any], column.cast(pa.large_binary()).to_pylist())


def _times(column: Any) -> tuple[list[Any], Callable[[Any], int | None]]:
    """The values of a time column, and a function that turns one into milliseconds, exactly."""
    if pa.types.is_timestamp(column.type):  # stored in UTC, with or without a zone
        divisor = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
        ticks = column.cast(pa.int64()).to_pylist()
        return ticks, lambda tick: sane(tick // divisor if divisor else tick * 1_000)
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()).to_pylist(), lambda day: sane(day * 86_400_000)
    if pa.types.is_date64(column.type):
        return column.cast(pa.int64()).to_pylist(), sane
    return _cells(column), moment


def _header(rows: Iterator[tuple[int, list[str] | None]]) -> list[str]:
    _, row = next(rows, (0, None))
    return [mend(name.strip()) for name in row or ()]


def _csv_rows(raw_lines: Iterable[bytes], name: str) -> Iterator[tuple[int, list[str] | None]]:
    """The number of the first line of each row, and the row, or None where it is broken."""
    # Bytes that are not UTF-8 become halves of surrogate pairs, which no post may contain.
    decoded = (
        line.decode(_encoding(number), "surrogateescape") + "\n"
        for number, line in enumerate(raw_lines)
    )
    delimiter = "\t" if (_format(name)[2] or "").lower() == "tsv" else ","
    reader = csv.reader(decoded, delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield number, None
        else:
            if row:  # an empty line is no record
                yield number, row


def _encoding(place: int) -> str:
    """The encoding of a line; only at ``place`` 0, the start of a file, is a byte order mark."""
    return "utf-8" if place else "utf-8-sig"


_FLAGS = dict.fromkeys(("true", "1", "1.0", "yes"), True) | dict.fromkeys(
    ("false", "0", "0.0", "no", "", "nan"), False
)


def _flag(value: Any) -> bool | None:
    """The truth value of a cell; False where it is empty, None where it cannot be read."""
    if value is None or isinstance(value, bool):
        return bool(value)
    return _FLAGS.get(str(value).strip().lower())


def _post(row: Sequence[Any], when: Callable[[Any], int | None] = moment) -> Post | str:
    """The post in a row, with cells in the order of :class:`Columns`, or why it is none."""
    identity, user, time, text, language, is_retweet, is_reply = row
    retweet, reply = _flag(is_retweet), _flag(is_reply)
    try:
        user = label(user)
        if isinstance(text, bytes):
            text = text.decode()
        if not user:
            return "no user"
        if not text or not isinstance(text, str):
            return "no text"
        milliseconds = None if time is None else when(time)
        if milliseconds is None:
            return "no time" if time in (None, "") else "unreadable time"
        if retweet is None or reply is None:
            return "unreadable yes or no"
        name, language = label(identity), label(language) or None
        if not name:
            content = f"{user}\0{milliseconds}\0{text}".encode()
            name = blake2b(content, digest_size=12).hexdigest()
        return encodable(Post(user, text, milliseconds, name, language, retweet, reply))
    except UnicodeError:
        return "not UTF-8"
