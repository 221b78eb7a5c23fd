"""The last stages of preparing: encode slices of time as arrays, and join these to a corpus."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import DTypeLike, NDArray

from firehose.data.corpus import SPLITS
from firehose.data.engine import Task
from firehose.data.settling import PRETRAIN, SAMPLE
from firehose.data.vocabulary import Vocabulary
from firehose.storage.seals import File


class Counts(NamedTuple):
    """The size of a split, or of a slice of it."""

    posts: int
    pieces: int
    unknown: int  # pieces that stand for text the vocabulary cannot spell


SLICE = 131_072  # the approximate number of posts that one task encodes


def slices(times: Sequence[int]) -> list[Task]:
    """Cut the stream of posts into slices of time with about ``SLICE`` posts each.

    ``times`` are those of every ``SAMPLE``-th post.
    """
    cuts = np.unique(np.sort(np.array(times, np.int64))[SLICE // SAMPLE :: SLICE // SAMPLE])
    edges: list[int | None] = [None, *cuts.tolist(), None]
    return [
        {"number": number, "start": edges[number], "stop": edges[number + 1]}
        for number in range(len(edges) - 1)
    ]


def read_slice(folder: Path, task: Task) -> pa.Table:
    """The posts of a slice of time, from all parts, in time order, with a column ``part``."""
    wanted = ds.scalar(True)
    if task["start"] is not None:
        wanted &= ds.field("time") >= task["start"]
    if task["stop"] is not None:
        wanted &= ds.field("time") < task["stop"]
    tables = []
    for path in sorted((folder / "posts").glob("*.parquet")):
        # One file after another, as a scan of all of them would read ahead without a limit.
        table = ds.dataset(path).to_table(filter=wanted, use_threads=False)
        tables.append(table.append_column("part", pa.array(np.full(len(table), int(path.stem)))))
    posts = pa.concat_tables(tables)
    return posts.take(np.lexsort([posts[name].to_numpy() for name in ("part", "key", "time")]))


def members(posts: pa.Table, corpora: Sequence[str]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """For each split of each corpus, its name "corpus/split" and a mask of the posts in it."""
    split, small = posts["split"].to_numpy(), posts["small"].to_numpy(zero_copy_only=False)
    for number, corpus in enumerate(corpora):
        for code, name in enumerate(SPLITS):
            # The posts to pretrain on are in both corpora, which start from one pretrained model.
            yield f"{corpus}/{name}", (split == code) & ((small == number) | (code == PRETRAIN))


def encode_slice(folder: Path, corpora: Sequence[str], task: Task) -> Task:
    """Write the arrays of one slice as raw files, one file for each corpus, split and column."""
    vocabulary = Vocabulary.load(folder / "vocabulary.model")
    posts = read_slice(folder, task)
    tokens, lengths = vocabulary.encode(posts["text"].to_pylist())
    index = np.load(folder / "index.npy", mmap_mode="r")  # [part, number] -> index in its corpus
    own = posts["split"].to_numpy() != PRETRAIN
    user = np.full(len(posts), -1, np.int32)
    user[own] = index[posts["part"].to_numpy()[own], posts["user"].to_numpy()[own]]
    columns: dict[str, NDArray[np.generic]] = {"user": user, "lengths": lengths}
    columns |= {name: posts[name].to_numpy() for name in ("time", "words", "key")}
    sizes: dict[str, Counts] = {}
    for place, chosen in members(posts, corpora):
        for name, values in columns.items():
            write_raw(folder, task, place, name, values[chosen])
        pieces = tokens[np.repeat(chosen, lengths)]
        write_raw(folder, task, place, "tokens", pieces)
        unknown = np.count_nonzero(pieces == vocabulary.unknown)
        sizes[place] = Counts(int(chosen.sum()), len(pieces), int(unknown))
    return {"number": task["number"], "counts": sizes}


def counts(encoded: Sequence[Task], corpus: str) -> dict[str, Counts]:
    """The sizes of the splits of a corpus, by "corpus/split", summed over all slices."""
    places = [f"{corpus}/{name}" for name in SPLITS]
    sizes = {place: np.array([task["counts"][place] for task in encoded]) for place in places}
    return {place: Counts(*size.sum(axis=0).tolist()) for place, size in sizes.items()}


def write_raw(
    folder: Path, task: Task, place: str, column: str, values: NDArray[np.generic]
) -> None:
    """Write one column of one slice."""
    values.tofile(folder / "slices" / f"{_raw(place, column)}.{task['number']:06}")


def read_raw(
    folder: Path, place: str, column: str, kind: DTypeLike
) -> Iterator[NDArray[np.generic]]:
    """Read one column of all slices, in time order."""
    for path in sorted((folder / "slices").glob(f"{_raw(place, column)}.*")):
        yield np.fromfile(path, kind)


def has_raw(folder: Path, place: str, column: str) -> bool:
    """Whether the slices have this column."""
    return any((folder / "slices").glob(f"{_raw(place, column)}.*"))


def _raw(place: str, column: str) -> str:
    """The name of the raw files of a column, without the number of the slice."""
    return f"{place.replace('/', '.')}.{column}"


def write_array(
    path: Path, kind: DTypeLike, shape: tuple[int, ...], blocks: Iterable[NDArray[np.generic]]
) -> File:
    """Write blocks of values, one after another, as one ``.npy`` file of this type and shape."""
    checksum = hashlib.sha256()
    header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": shape}
    with path.open("w+b") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.seek(0)
        checksum.update(file.read())
        for block in blocks:
            data = np.ascontiguousarray(block, kind).tobytes()
            checksum.update(data)
            file.write(data)
        size = file.tell()
    return File(bytes=size, sha256=checksum.hexdigest())


def write_split(
    folder: Path, place: str, out: Path, size: Counts, tokens: DTypeLike
) -> dict[str, File]:
    """Join the slices of one split to files in the folder ``out``; returns the files by name."""
    posts = size.posts
    out.mkdir(parents=True)
    columns: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {
        "tokens": (tokens, (size.pieces,)),
        "lengths": (np.int64, (posts + 1,)),
        "user": (np.int32, (posts,)),
        "time": (np.int64, (posts,)),
        "words": (np.int32, (posts,)),
        "key": (np.uint64, (posts,)),
        "floor": (np.float64, (posts, 2)),
    }
    files = {}
    for column, (kind, shape) in columns.items():
        blocks = read_raw(folder, place, column, kind)
        if column == "floor" and not has_raw(folder, place, column):
            continue  # only simulated posts have one
        name = "offsets" if column == "lengths" else column
        if column == "lengths":
            blocks = offsets_of(blocks)
        files[f"{out.name}/{name}.npy"] = write_array(out / f"{name}.npy", kind, shape, blocks)
    return files


def offsets_of(lengths: Iterable[NDArray[np.generic]]) -> Iterator[NDArray[np.int64]]:
    """The offsets of posts, one more than there are, from blocks of their lengths."""
    total = np.zeros(1, np.int64)
    yield total
    for block in lengths:
        ends = total + np.cumsum(block, dtype=np.int64)
        yield ends
        total = ends[-1:] if len(ends) else total
