"""Results for other tools: one row for each number, as ``results.csv`` and ``results.parquet``."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from firehose.storage.files import write_whole

CSV, PARQUET = "results.csv", "results.parquet"


class Row(NamedTuple):
    """A number that a run, or several, came to."""

    run: str
    measure: str
    value: float
    low: float | None = None  # of the interval in which 95 of 100 samples of users have it
    high: float | None = None
    part: str = ""  # of the posts; empty: all of them
    seed: int | None = None  # None: of several seeds together
    varies: Mapping[str, str] = {}  # settings that tell runs apart, each a column

    def columns(self, names: Sequence[str]) -> dict[str, Any]:
        """A cell for each column; ``names`` are the settings that are columns."""
        settings = {name: self.varies.get(name) for name in names}
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        what = {"seed": self.seed, "measure": self.measure, "part": self.part}
        return {"run": self.run, **settings, **what, **numbers}


def table_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows with the same columns each, whatever varies."""
    names = list(dict.fromkeys(name for row in rows for name in row.varies))
    return [row.columns(names) for row in rows]


def write_results(folder: Path, rows: Sequence[Row]) -> None:
    """Write the rows into a folder, as both files, each whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not rows:
        return
    table = table_of(rows)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_whole(folder / CSV, buffer.getvalue().encode())
    kinds = {"seed": pa.int64()} | dict.fromkeys(("value", "low", "high"), pa.float64())
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in table[0]])
    packed = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(table, schema), packed)
    write_whole(folder / PARQUET, packed.getvalue().to_pybytes())
