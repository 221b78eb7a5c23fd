"""Posts in tables: Parquet, JSONL, CSV and rows of XML, plain or compressed, by any names."""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field

from firehose.config import Texts
from firehose.data.clean import mend
from firehose.data.post import Post, Skip
from firehose.data.sources import Shard, Source
from firehose.data.sources.columns import Columns
from firehose.data.sources.csv_rows import MAX_FIELD, CsvRows, Row
from firehose.data.sources.fields import TOO_LONG, checked, json_post, label, moment
from firehose.data.sources.files import (
    MAX_RECORD_BYTES,
    DamagedError,
    Line,
    Overlong,
    find_files,
    holds,
    lines,
    open_file,
    unpack,
)
from firehose.data.sources.formats import (
    WANTS,
    Format,
    Kind,
    is_table,
    keys,
    without_tags,
    xml_record,
)
from firehose.data.sources.parquet import column_names, read_rows, row_groups

ROWS_PER_SHARD = 262_144  # a shard in the middle of a row group reads that from its start
BYTES_PER_SHARD = 32 << 20
_SAMPLE = 1_000  # records of a file without a header, whose keys are its columns


class Tabular(Source):
    """Tables with one post in each row; the columns for user, time and text are required.

    A record of more than ``max_record_bytes`` is skipped. In a CSV file, so is the first line of
    a row that goes on over more than ``max_row_lines`` lines or ``max_row_characters`` characters:
    a quote was not closed, and the next line is the start of another row.

    A ``format`` that is given holds for all files, whatever their names. With ``html``, texts lose
    their tags and blocks of code. ``drop_texts`` are texts that stand for none.
    """

    kind: Literal["tabular"] = "tabular"
    columns: Columns = Columns()
    format: Kind | None = None  # else by the name of each file
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)  # of CSV; else , or tab
    html: bool = False
    drop_texts: Texts = ()
    max_record_bytes: int = Field(default=MAX_RECORD_BYTES, ge=1, le=1 << 30)
    max_row_lines: int = Field(default=1_000, ge=1)
    max_row_characters: int = Field(default=65_536, ge=1, le=MAX_FIELD)

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether ``path`` is a table by its name, or a folder with a table."""
        return holds(path, is_table)

    def shards(self) -> list[Shard]:
        """Shards of 262,144 rows of Parquet, 32 MiB of uncompressed JSONL, or else whole files.

        Raises an error where a required column is missing.
        """
        shards: list[Shard] = []
        for path in find_files(self.paths, self._is_read, WANTS):
            name = str(path)
            present = self._present(name)
            if present is not None:
                self.columns.refuse_missing(name, self.paths, present)
            kind, packed = Format.of(name, self.format)
            if kind == "parquet":
                shards += _row_ranges(name)
            elif kind in ("jsonl", "xml") and not packed:
                shards += _spans(name, path.stat().st_size, BYTES_PER_SHARD)
            else:
                shards.append({"path": name})
        return shards

    def _is_read(self, name: str) -> bool:
        return self.format is not None or is_table(name)

    def read(self, shard: Shard) -> Iterator[Post | Skip]:
        """One post or skip for each record, in the order of the file.

        A skip names the file and the line, or the byte in all shards but the first of a JSONL
        file, where the number of the line is not known.
        """
        path = shard["path"]
        kind = Format.of(path, self.format).kind
        read = {"parquet": self._read_parquet, "csv": self._read_csv, "tsv": self._read_csv}
        try:
            yield from map(self._plain, read.get(kind, self._read_lines)(path, shard))
        except DamagedError:
            yield Skip("truncated or corrupt file", path)

    def _plain(self, record: Post | Skip) -> Post | Skip:
        """A post without tags, where they are to go; a skip, where its text stands for none."""
        if isinstance(record, Skip) or not (self.html or self.drop_texts):
            return record
        if record.text.strip() in self.drop_texts:
            return Skip("a text to leave out", record.id, expected=True)
        return record._replace(text=without_tags(record.text)) if self.html else record

    def _read_lines(self, path: str, shard: Shard) -> Iterator[Post | Skip]:
        """The records of JSONL, or rows of XML: one a line."""
        first, is_xml = shard.get("start", 0), Format.of(path, self.format).kind == "xml"
        every = self.columns.every()

        def post_of(record: dict[str, Any]) -> Post | str:
            return _post([_first(record, names) for names in every])

        def read(line: Line, encoding: str) -> Post | str:
            if not is_xml:
                return json_post(line, post_of, encoding)
            record = xml_record(line)
            return record if isinstance(record, str) else post_of(record)

        with open_file(path) as file:
            stop = shard.get("stop", math.inf)
            if first:  # a line belongs to the shard it starts in
                file.seek(first - 1)
                while (begun := file.readline(1 << 16)) and not begun.endswith(b"\n"):
                    if file.tell() >= stop:  # nothing starts here
                        return
                first = file.tell()
            where = f"{path}:byte " if first else f"{path}:"
            place = first
            for number, line in enumerate(self._lines(file, path), 1):
                if place >= stop:
                    break
                found = read(line, "utf-8" if place else "utf-8-sig")
                if isinstance(found, Post):
                    yield found
                elif found:  # an empty line is no record
                    yield Skip(found, f"{where}{place if first else number}")
                place += len(line) + 1

    def _lines(self, file: IO[bytes], path: str) -> Iterator[Line]:
        packing = Format.of(path, self.format).packing
        return lines(unpack(file, packing and f"packed{packing}"), self.max_record_bytes)

    def _rows(self, file: IO[bytes], path: str) -> Iterator[Row]:
        is_tsv = Format.of(path, self.format).kind == "tsv"
        delimiter = self.delimiter or ("\t" if is_tsv else ",")
        limits = self.max_row_lines, self.max_row_characters
        return iter(CsvRows(self._lines(file, path), delimiter, *limits))

    def _read_csv(self, path: str, _: Shard) -> Iterator[Post | Skip]:
        with open_file(path) as file:
            rows = self._rows(file, path)
            header, where = _header(rows), f"{path}:"
            # Where a column is missing, its value is the None that is put behind each row.
            place = {name: index for index, name in reversed(list(enumerate(header)))}
            names = self.columns.chosen(header)
            pick = itemgetter(*(place.get(name, len(header)) for name in names))
            for number, row in rows:
                found = row if isinstance(row, str) else _post(pick([*row, None]))
                yield found if isinstance(found, Post) else Skip(found, f"{where}{number}")

    def _read_parquet(self, path: str, shard: Shard) -> Iterator[Post | Skip]:
        if "row_group" not in shard:  # its footer could not be read
            raise DamagedError
        names, where = self.columns.chosen(self._present(path) or ()), f"{path}:row "
        span = range(shard["start"], shard["stop"])
        parts = read_rows(path, shard["row_group"], span, names, names[2], self.max_record_bytes)
        numbers = iter(range(shard["before"] + span.start + 1, shard["before"] + span.stop + 1))
        with contextlib.suppress(DamagedError):
            for rows, clock in parts:
                for row, number in zip(rows, numbers, strict=False):
                    found = TOO_LONG if row is None else _post(row, clock)
                    yield found if isinstance(found, Post) else Skip(found, f"{where}{number}")
        yield from (Skip("damaged row group", f"{where}{number}") for number in numbers)

    def _present(self, name: str) -> Sequence[str] | None:
        """The columns of a file, or None where it is damaged or empty."""
        kind, found = Format.of(name, self.format).kind, dict[str, None]()
        with open_file(name) as file:
            if kind == "parquet":
                return column_names(name)
            try:
                if kind in ("csv", "tsv"):
                    return _header(self._rows(file, name)) or None
                record = xml_record if kind == "xml" else _json_record
                for line in islice(self._lines(file, name), _SAMPLE):
                    found |= dict.fromkeys(keys(record(line)))
            except DamagedError:
                pass
        return list(found) or None


def _first(record: dict[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of these fields that has one."""
    return next((value for name in names if (value := record.get(name)) is not None), None)


def _json_record(line: Line) -> dict[str, Any] | str:
    """The JSON object in a line; nothing where that is broken, which is counted later."""
    if isinstance(line, Overlong):
        return ""
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return ""
    return record if isinstance(record, dict) else ""


def _header(rows: Iterator[Row]) -> list[str]:
    _, row = next(rows, (0, ""))
    return [] if isinstance(row, str) else [mend(name.strip()) for name in row]


def _row_ranges(path: str) -> Iterator[Shard]:
    sizes = row_groups(path)
    if sizes is None:
        yield {"path": path}
        return
    for group, size in enumerate(sizes):
        for span in _spans(path, size, ROWS_PER_SHARD):
            yield span | {"row_group": group, "before": sum(sizes[:group])}


def _spans(path: str, size: int, step: int) -> Iterator[Shard]:
    for start in range(0, size, step):
        yield {"path": path, "start": start, "stop": min(start + step, size)}


_FLAGS = dict.fromkeys(("true", "1", "1.0", "yes"), True) | dict.fromkeys(
    ("false", "0", "0.0", "no", "", "nan"), False
)


def _flag(value: Any) -> bool | None:
    """The truth value of a cell; False where it is empty, None where it cannot be read."""
    if value is None:
        return False
    return _FLAGS.get(str(value).strip().lower())


def _post(row: Sequence[Any], when: Callable[[Any], int | None] = moment) -> Post | str:
    """The post in a row, with cells in the order of :class:`Columns`, or why it is none."""
    identity, user, time, text, language, is_retweet, is_reply = row
    # The calls are for what is not already as it should be, as most is.
    retweet = is_retweet if isinstance(is_retweet, bool) else _flag(is_retweet)
    reply = is_reply if isinstance(is_reply, bool) else _flag(is_reply)
    try:
        user = user if isinstance(user, str) else label(user)
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
        language = label(language) or None
        name = identity if isinstance(identity, str) else label(identity)
        if not name:
            content = f"{user}\0{milliseconds}\0{text}".encode()
            name = blake2b(content, digest_size=12).hexdigest()
        return checked(Post(user, text, milliseconds, name, language, retweet, reply))
    except UnicodeError:
        return "not UTF-8"
