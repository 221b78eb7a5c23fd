"""First stage of preparing: a shard of the source becomes a spool file, ordered by user.

Users are dealt into a fixed number of parts by a hash of their name. Everything that concerns
a user (how many posts there are, which of them are held out) is then decided within one part,
in memory that does not grow with the whole stream.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from firehose.data.engine import Task
from firehose.data.post import Post
from firehose.data.sources import Source
from firehose.errors import FirehoseError

PARTS = 64
ROWS = 32_768  # posts held in memory while reading
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("user", pa.string()),
        ("time", pa.int64()),
        ("text", pa.string()),
        ("language", pa.string()),
        ("is_retweet", pa.bool_()),
        ("is_reply", pa.bool_()),
        ("split", pa.string()),
    ]
)


def read_shard(source: Source, folder: Path, strict: bool, task: Task) -> Task:
    """Spool the posts of ``task["shard"]`` and count what was skipped, by reason."""
    path = folder / f"{task['number']:06}.arrow"
    skipped: Counter[str] = Counter()
    examples: dict[str, str] = {}
    parts: list[int] = []
    read = 0

    def posts() -> Iterator[Post]:
        for record in source.read(task["shard"]):
            if isinstance(record, Post):
                yield record
                continue
            if strict and not record.expected:
                raise FirehoseError(f"{record.where}: {record.reason} (--strict stops here).")
            skipped[record.reason] += 1
            if not record.expected:
                examples.setdefault(record.reason, record.where)

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, COLUMNS) as writer:
        stream = posts()
        while block := list(islice(stream, ROWS)):
            read += len(block)
            for part, batch in _by_part(block):
                parts.append(part)
                writer.write_batch(batch)
    return {"number": task["number"], "posts": read, "parts": parts} | {
        "skipped": dict(skipped),
        "examples": examples,
    }


def read_part(folder: Path, shards: Sequence[Task], part: int) -> pa.Table:
    """All posts of the users of one part, in the order of the source."""
    batches: list[pa.RecordBatch] = []
    for shard in shards:
        wanted = [number for number, of in enumerate(shard["parts"]) if of == part]
        if wanted:
            with pa.OSFile(str(folder / f"{shard['number']:06}.arrow"), "rb") as file:
                reader = pa.ipc.open_file(file)
                batches += [reader.get_batch(number) for number in wanted]
    return pa.Table.from_batches(batches, COLUMNS)


def hash64(text: str) -> int:
    """A 64-bit hash that is the same on every machine."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _by_part(posts: Sequence[Post]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The posts as one record batch for each part that has any; their order is kept within."""
    known: dict[str, int] = {}
    for post in posts:
        if post.user not in known:
            known[post.user] = hash64(post.user) % PARTS
    part = np.fromiter((known[post.user] for post in posts), np.int64, len(posts))
    order = np.argsort(part, kind="stable")
    arrays = [
        _array(column, field.type)
        for column, field in zip(zip(*posts, strict=True), COLUMNS, strict=True)
    ]
    whole = pa.RecordBatch.from_arrays(arrays, schema=COLUMNS).take(pa.array(order))
    bounds = np.searchsorted(part[order], np.arange(PARTS + 1))
    for number in np.flatnonzero(np.diff(bounds)):
        yield int(number), whole.slice(bounds[number], bounds[number + 1] - bounds[number])


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # half of a surrogate pair, as "\\ud83d" in JSON; not text
        return pa.array([_mend(value) for value in values], kind)


def _mend(text: str | None) -> str | None:
    return text and text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
