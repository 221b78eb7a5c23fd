"""The first stage of preparing: read the shards of the source, and put posts into parts by user.

The hash of a user's name decides the part, and a part that is too large is divided again. So all
posts of a user are in one part, and what depends on them together (how many there are, which of
them are held out) can be decided within that part, in memory that does not grow with the stream.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from firehose.data.clean import mend
from firehose.data.engine import Task
from firehose.data.post import Post
from firehose.data.sources import Source
from firehose.errors import FirehoseError, visible

PARTS = 64
PART = 500_000  # posts above which a part is divided
ROWS = 32_768  # posts held in memory while reading,
CHARACTERS = 1 << 24  # or fewer, if their texts have so many characters
COLUMNS = pa.schema({  # the fields of a post, in their order
    "user": pa.string(),
    "text": pa.large_string(),  # the 32-bit offsets of pa.string() end at 2 GB
    "time": pa.int64(), "id": pa.string(), "language": pa.string(),
    "is_retweet": pa.bool_(), "is_reply": pa.bool_(), "split": pa.string(),
})  # fmt: skip


def read_shard(source: Source, folder: Path, max_characters: int, strict: bool, task: Task) -> Task:
    """Write the posts of ``task["shard"]`` to a file, part by part, and count what was skipped.

    Texts over ``max_characters`` are cut to one character more, so that the next stage still sees
    that they are too long.
    """
    path = folder / f"{task['number']:06}.arrow"
    skipped: Counter[str] = Counter()
    examples: dict[str, str] = {}
    batches: list[tuple[int, int]] = []  # part and posts of each record batch

    def posts() -> Iterator[Post]:
        for record in source.records(task["shard"]):
            if isinstance(record, Post):
                is_long = len(record.text) > max_characters
                yield record._replace(text=record.text[: max_characters + 1]) if is_long else record
                continue
            if strict and not record.expected:
                where = visible(record.where)
                raise FirehoseError(f"{where}: {record.reason} (--strict stops here).")
            skipped[record.reason] += 1
            if not record.expected:
                examples.setdefault(record.reason, visible(record.where))

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, COLUMNS) as writer:
        for block in _blocks(posts()):
            for part, batch in _by_part(block):
                batches.append((part, len(batch)))
                writer.write_batch(batch)
    told = {"number": task["number"], "batches": batches}
    return told | {"skipped": skipped, "examples": examples}


def _blocks(posts: Iterable[Post]) -> Iterator[list[Post]]:
    """The posts in lists that fit into memory."""
    block: list[Post] = []
    room = CHARACTERS
    for post in posts:
        block.append(post)
        room -= len(post.text)
        if len(block) == ROWS or room <= 0:
            yield block
            block, room = [], CHARACTERS
    if block:
        yield block


def parts(shards: Sequence[Task]) -> list[Task]:
    """The tasks of the next stage: each part, or, where a part is too large, each share of it."""
    sizes = [0] * PARTS
    for shard in shards:
        for part, posts in shard["batches"]:
            sizes[part] += posts
    counts = [max(math.ceil(size / PART), 1) for size in sizes]
    shares = [
        {"residue": part + PARTS * share, "modulus": PARTS * count}
        for part, count in enumerate(counts)
        for share in range(count)
    ]
    return [{"part": number} | share for number, share in enumerate(shares)]


def read_part(folder: Path, shards: Sequence[Task], task: Task) -> pa.Table:
    """All posts of the users of one task that :func:`parts` made, in the order of the source."""
    batches: list[pa.RecordBatch] = []
    part = task["residue"] % PARTS
    for shard in shards:
        wanted = [number for number, (of, _) in enumerate(shard["batches"]) if of == part]
        if wanted:
            with pa.OSFile(str(folder / f"{shard['number']:06}.arrow"), "rb") as file:
                reader = pa.ipc.open_file(file)
                batches += [_share(reader.get_batch(number), task) for number in wanted]
    return pa.Table.from_batches(batches, COLUMNS)


def _share(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:
    if task["modulus"] == PARTS:
        return batch
    users = batch.column("user").to_pylist()
    return batch.filter(pa.array([hash64(u) % task["modulus"] == task["residue"] for u in users]))


def hash64(text: str) -> int:
    """A 64-bit hash that is the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _by_part(posts: Sequence[Post]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number of each part that has some of the posts, and these, in their order."""
    try:
        whole = _batch(posts)
    except UnicodeEncodeError:  # half of a surrogate pair, such as "\ud83d" in JSON
        posts = [Post(*map(_mended, post)) for post in posts]
        whole = _batch(posts)
    part_of = {user: hash64(user) % PARTS for user in {post.user for post in posts}}
    part = np.fromiter((part_of[post.user] for post in posts), np.int64, len(posts))
    order = np.argsort(part, kind="stable")
    whole = whole.take(pa.array(order))
    bounds = np.searchsorted(part[order], np.arange(PARTS + 1))
    for number in np.flatnonzero(np.diff(bounds)):
        yield int(number), whole.slice(bounds[number], bounds[number + 1] - bounds[number])


def _batch(posts: Sequence[Post]) -> pa.RecordBatch:
    columns = dict(zip(COLUMNS.names, zip(*posts, strict=True), strict=True))
    return pa.RecordBatch.from_pydict(columns, COLUMNS)


def _mended(value: Any) -> Any:
    return mend(value) if isinstance(value, str) else value
