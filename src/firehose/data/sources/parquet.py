"""Read the rows of Parquet files as plain values, in memory that a hostile file cannot exhaust.

Columns of every type can be read. What has no meaning as a text, a number or a time becomes
``UNREADABLE``, row by row, and texts are measured before they become Python objects.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.data.sources.fields import moment, sane
from firehose.data.sources.files import DamagedError

ROWS = 8_192  # that are decoded at a time
BYTES = 1 << 24  # of texts that are Python objects at a time
SHARED_BYTES = 1 << 26  # of copies of texts that many rows have, at a time
ROWS_PER_BYTE = 1_024  # more, and the number of rows that a file states is not believed

UNREADABLE: Final = object()  # a value of a type that no field of a post can have

Sizes = NDArray[np.int64]
Clock = Callable[[Any], int | None]
Row = tuple[Any, ...]


class Rows(NamedTuple):
    """Some rows in the order of a file: tuples of values, or None for a row that is too long."""

    rows: Iterator[Row | None]
    clock: Clock  # makes milliseconds since 1970 of a value in the column of times


def column_names(path: str) -> list[str] | None:
    """The columns of a file, or None where it is damaged."""
    try:
        return cast(list[str], pq.read_schema(path).names)
    except Exception:  # a damaged footer can raise anything
        return None


def row_groups(path: str) -> list[int] | None:
    """The number of rows in each row group, or None where the file is damaged."""
    try:
        metadata = pq.read_metadata(path)
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    except Exception:
        return None
    believable = ROWS_PER_BYTE * Path(path).stat().st_size
    return sizes if min(sizes, default=0) >= 0 and sum(sizes) <= believable else None


def read_rows(
    path: str, group: int, span: range, names: Sequence[str], time: str, max_bytes: int
) -> Iterator[Rows]:
    """The rows ``span`` of a row group, some at a time, with the values of the columns ``names``.

    The value of a column that is missing is None; ``time`` is the name of that of the times. A
    row with texts of over ``max_bytes`` is too long. Raises a DamagedError after what could be
    read.
    """
    try:
        schema = pq.read_schema(path)
        needed = [name for name in dict.fromkeys(names) if name in schema.names]
        texts = [field.name for field in schema if field.name in needed and _is_text(field.type)]
        # A long text that is stored once must not be copied for each row that it is in.
        is_shared = ROWS * _longest_shared(path, group, texts) > SHARED_BYTES
        with pq.ParquetFile(path, read_dictionary=texts if is_shared else None) as file:
            at_a_time, first = _rows_at_a_time(file, group), 0
            for batch in file.iter_batches(at_a_time, [group], needed, use_threads=False):
                some = batch[max(span.start - first, 0) : span.stop - first]
                if len(some):
                    columns = {name: _stored(some, name) for name in needed}
                    yield from _some(columns, len(some), names, time, max_bytes)
                first += len(batch)
                if first >= span.stop:
                    break
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise DamagedError from error


def _longest_shared(path: str, group: int, texts: Sequence[str]) -> int:
    """The bytes of the longest text that is stored once for several rows of a row group."""
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        first = next(file.iter_batches(1, [group], texts, use_threads=False), None)
    columns = first.columns if first else []
    shared = [each.dictionary for each in columns if pa.types.is_dictionary(each.type)]
    return max((int(_lengths(values).max(initial=0)) for values in shared), default=0)


def _rows_at_a_time(file: pq.ParquetFile, group: int) -> int:
    """So many rows that, if all are alike, they have 16 MiB, as far as the footer tells.

    The sizes of single columns are not asked for: in a damaged footer, that ends the process.
    """
    metadata = file.metadata.row_group(group)
    rows: int = BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)
    return min(max(rows, 1), ROWS)


def _stored(batch: pa.RecordBatch, name: str) -> Any:
    """A column, the first of its name, as it is stored below a type of an application's own.

    Raises a DamagedError where it refers to texts that are not there, which Arrow does not notice.
    """
    column = batch.column(batch.schema.names.index(name))
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if pa.types.is_dictionary(column.type):
        ends = pc.min_max(column.indices).as_py()
        if ends["max"] is not None and not 0 <= ends["min"] <= ends["max"] < len(column.dictionary):
            raise DamagedError
    return column


def _some(
    columns: dict[str, Any], count: int, names: Sequence[str], time: str, max_bytes: int
) -> Iterator[Rows]:
    """The rows of a batch, divided so that the texts in each part have at most about 16 MiB."""
    long = np.zeros(count, np.bool_)
    bounds = [0, count]
    shared = any(pa.types.is_dictionary(column.type) for column in columns.values())
    if shared or sum(column.nbytes for column in columns.values()) > min(max_bytes, BYTES):
        sizes = np.zeros(count, np.int64)
        for column in columns.values():
            sizes += _sizes(column)
        long = sizes > max_bytes
        if long.any():
            columns = {name: _without(column, long) for name, column in columns.items()}
            sizes[long] = 0
        part = (np.cumsum(sizes) - sizes) // BYTES  # of each row
        bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), count]
    for begin, end in pairwise(bounds):
        some = {name: column[begin:end] for name, column in columns.items()}
        cells: dict[str, Any] = {
            name: _cells(column) for name, column in some.items() if name != time
        }
        cells[time], clock = _times(some[time])
        rows: Iterator[Row | None] = zip(
            *(cells.get(name, repeat(None, end - begin)) for name in names), strict=True
        )
        if long[begin:end].any():
            pairs = zip(rows, long[begin:end].tolist(), strict=True)
            rows = (None if is_long else row for row, is_long in pairs)
        yield Rows(rows, clock)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return bool(is_text or types.is_binary(kind) or types.is_large_binary(kind))


def _sizes(column: Any) -> Sizes | int:
    """How many bytes the text in each row has."""
    if pa.types.is_dictionary(column.type):
        if not _is_text(column.type.value_type):
            return 0
        lengths = np.append(_lengths(column.dictionary), 0)  # the last is that of no text
        return cast(Sizes, lengths[pc.fill_null(column.indices.cast(pa.int64()), -1).to_numpy()])
    return _lengths(column) if _is_text(column.type) else 0


def _lengths(texts: Any) -> Sizes:
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    return cast(Sizes, lengths.astype(np.int64))


def _without(column: Any, long: NDArray[np.bool_]) -> Any:
    """The column with nulls where rows are too long."""
    if pa.types.is_dictionary(column.type):
        indices = pc.if_else(pa.array(long), None, column.indices)
        return pa.DictionaryArray.from_arrays(indices, column.dictionary, safe=False)
    return pc.if_else(pa.array(long), None, column) if _is_text(column.type) else column


def _cells(column: Any) -> list[Any]:
    """The values of a column; if some are not UTF-8, all as bytes, to find the bad rows later."""
    if pa.types.is_dictionary(column.type):
        if len(column.dictionary) <= len(column):
            values = [*_cells(column.dictionary), None]
            return [
                values[i] for i in pc.fill_null(column.indices.cast(pa.int64()), -1).to_pylist()
            ]
        column = column.dictionary_decode()
    if not _is_plain(column.type):
        return [UNREADABLE if is_valid else None for is_valid in column.is_valid().to_pylist()]
    try:
        return cast(list[Any], column.to_pylist())
    except UnicodeDecodeError:
        return cast(list[Any], column.cast(pa.large_binary()).to_pylist())


def _is_plain(kind: pa.DataType) -> bool:
    """Whether the values of a type are texts, bytes, numbers or truth values in Python."""
    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    is_bytes = _is_text(kind) or types.is_fixed_size_binary(kind)
    return bool(is_number or is_bytes or types.is_boolean(kind) or types.is_null(kind))


_TICKS = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}


def _times(column: Any) -> tuple[list[Any], Clock]:
    """The values of a time column, and a function that turns one into milliseconds, exactly.

    Arrow's own conversion fails for a whole column at a time that Python does not have.
    """
    if pa.types.is_dictionary(column.type) and pa.types.is_temporal(column.type.value_type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):  # stored in UTC, with or without a zone
        factor, divisor = _TICKS[column.type.unit]
        return column.view(pa.int64()).to_pylist(), lambda tick: sane(tick * factor // divisor)
    if pa.types.is_date32(column.type):
        return column.view(pa.int32()).to_pylist(), lambda day: sane(day * 86_400_000)
    if pa.types.is_date64(column.type):
        return column.view(pa.int64()).to_pylist(), sane
    return _cells(column), moment
