"""The last stages of preparing: encode slices of time as arrays, and join these to a corpus."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import DTypeLike, NDArray

from firehose.data.corpus import SPLITS, Floor, Manifest, VocabularyRecord
from firehose.data.engine import Task
from firehose.data.post import USER_SPLITS
from firehose.data.settling import PRETRAIN, SAMPLE
from firehose.data.vocabulary import Vocabulary
from firehose.storage.seals import File

SLICE = 131_072  # the approximate number of posts that one task encodes
NUMBERS = {"user": np.int32, "time": np.int64, "words": np.int32, "key": np.uint64}  # one a post


class Counts(NamedTuple):
    """The size of a split, or of a slice of it."""

    posts: int
    pieces: int
    unknown: int  # pieces that stand for text the vocabulary cannot spell


def slices(times: Sequence[int]) -> list[Task]:
    """Cut the stream of posts into slices of time with about ``SLICE`` posts each.

    ``times`` are those of every ``SAMPLE``-th post.
    """
    cuts = np.unique(np.sort(np.array(times, np.int64))[SLICE // SAMPLE :: SLICE // SAMPLE])
    spans = enumerate(pairwise([None, *cuts.tolist(), None]))
    return [{"number": number, "start": start, "stop": stop} for number, (start, stop) in spans]


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
        own = {name: values[chosen] for name, values in columns.items()}
        own["tokens"] = tokens[np.repeat(chosen, lengths)]
        sizes[place] = write_slice(folder, place, task["number"], own, vocabulary.unknown)
    return {"counts": sizes}


def write_slice(
    folder: Path, place: str, number: int, columns: Mapping[str, NDArray[Any]], unknown: int
) -> Counts:
    """Write the columns of a slice of a split as raw files; returns how much there is of it."""
    for column, values in columns.items():
        write_raw(folder, place, column, number, values)
    tokens = columns["tokens"]
    return Counts(len(columns["user"]), len(tokens), int(np.count_nonzero(tokens == unknown)))


def total(sizes: Iterable[Counts]) -> Counts:
    """The size of a split from those of its slices."""
    return Counts(*np.sum([*sizes], axis=0).tolist())


def write_raw(folder: Path, place: str, column: str, number: int, values: NDArray[Any]) -> None:
    """Write one column of slice ``number``."""
    values.tofile(folder / "slices" / f"{place.replace('/', '.')}.{column}.{number:06}")


def read_raw(folder: Path, place: str, column: str, kind: DTypeLike) -> Iterator[NDArray[Any]]:
    """Read one column of all slices, in time order."""
    for path in raw_files(folder, place, column):
        yield np.fromfile(path, kind)


def raw_files(folder: Path, place: str, column: str) -> list[Path]:
    """The files of one column of all slices, in time order; none where nothing has that column."""
    return sorted((folder / "slices").glob(f"{place.replace('/', '.')}.{column}.*"))


def assemble(
    folder: Path,
    corpus: str,
    users: pa.Table,
    sizes: Mapping[str, Counts],
    told: Mapping[str, Any],
    out: Path,
) -> None:
    """Join the slices of a corpus in the folder ``out``.

    ``sizes`` are those of its splits, ``told`` the fields of the manifest that are known already.
    """
    vocabulary = Vocabulary.load(folder / "vocabulary.model")
    filled = [name for name in sizes if sizes[name].posts]
    splits = [name for name in sizes if name in (*USER_SPLITS, *filled)]
    for name in splits:
        _write_split(folder, f"{corpus}/{name}", sizes[name], vocabulary.dtype, out / name)
    pq.write_table(users.combine_chunks(), out / "users.parquet")
    for name in ("vocabulary.model", "config.toml"):
        shutil.copyfile(folder / name, out / name)
    floors = {name: _floor(folder, f"{corpus}/{name}") for name in filled}
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    pieces = {"size": vocabulary.size, "sot": vocabulary.sot, "eot": vocabulary.eot}
    manifest = Manifest(
        posts={name: sizes[name].posts for name in splits},
        users=len(users),
        unique_words=sum(count.unique for count in told["words"].values()),
        vocabulary=VocabularyRecord(**pieces, unknown=sum(size.unknown for size in sizes.values())),
        floor={name: floor for name, floor in floors.items() if floor} or None,
        files={path.relative_to(out).as_posix(): File.of(path) for path in files},
        **told,
    )
    (out / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")


def _write_split(folder: Path, place: str, size: Counts, tokens: DTypeLike, out: Path) -> None:
    """Join the slices of one split to files in the folder ``out``."""
    out.mkdir(parents=True)

    def write(name: str, kind: DTypeLike, shape: tuple[int, ...], blocks: Iterable[Any]) -> None:
        header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": shape}
        with (out / f"{name}.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks:
                block.tofile(file)

    write("tokens", tokens, (size.pieces,), read_raw(folder, place, "tokens", tokens))
    lengths = read_raw(folder, place, "lengths", np.int64)
    write("offsets", np.int64, (size.posts + 1,), offsets_of(lengths))
    for name, kind in NUMBERS.items():
        write(name, kind, (size.posts,), read_raw(folder, place, name, kind))
    if raw_files(folder, place, "floor"):  # of simulated posts only
        floors = read_raw(folder, place, "floor", np.float64)
        write("floor", np.float64, (size.posts, 2), floors)


def _floor(folder: Path, place: str) -> Floor | None:
    """The best possible word perplexities on the posts of a split, where they are known."""
    nats = [block.reshape(-1, 2).sum(0) for block in read_raw(folder, place, "floor", np.float64)]
    if not nats:
        return None
    words = sum(int(block.sum()) for block in read_raw(folder, place, "words", np.int32))
    personalized, agnostic = np.exp(sum(nats) / words).tolist()
    return Floor(personalized=personalized, agnostic=agnostic)


def offsets_of(lengths: Iterable[NDArray[Any]]) -> Iterator[NDArray[np.int64]]:
    """The offsets of posts, one more than there are, from blocks of their lengths."""
    last = np.zeros(1, np.int64)
    yield last
    for block in lengths:
        ends = last + np.cumsum(block, dtype=np.int64)
        yield ends
        last = ends[-1:] if len(ends) else last
