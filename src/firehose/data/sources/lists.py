"""Read the published lists of tweets.

The authors of the paper publish which tweets are in which split, as lists of (user id, tweet id,
time). They are read from CSV, Parquet or the authors' pickles into sorted arrays, which take 13
bytes a tweet.
"""

import pickle
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.data.post import USER_SPLITS
from firehose.data.sources.files import find_files, open_file
from firehose.errors import FirehoseError
from firehose.plugins import brief

_LISTS = "CSV, Parquet or pickle files of (user, tweet, time), or a folder of them"
_LIST_NAME = re.compile(r"\.(?:(parquet|pq)|(pkl|pickle|p)|csv(?:\.gz|\.bz2|\.zst)?)$", re.I)
_SPLIT_WORD = re.compile(r"train|valid|dev|(?<!la)test")
_SPLIT_CODE = {"train": 0, "valid": 1, "validation": 1, "dev": 1, "test": 2}


class Published(NamedTuple):
    """The split of each listed tweet, as columns sorted by tweet."""

    tweets: NDArray[np.int64]  # [tweets]
    users: NDArray[np.uint32]  # [tweets], user ids folded to 32 bits, only to be compared
    splits: NDArray[np.uint8]  # [tweets], indices into USER_SPLITS

    def split_of(self, tweet: str, user: str) -> str | None:
        """The split of a tweet; None if it is not listed, ``""`` if it is another user's there."""
        number = int(tweet) if tweet.isdecimal() else -1
        if not 0 <= number < 1 << 63:
            return None
        place = int(self.tweets.searchsorted(number))
        if place == len(self.tweets) or self.tweets[place] != number:
            return None
        if not user.isdecimal() or self.users[place] != _folded(int(user)):
            return ""
        return USER_SPLITS[self.splits[place]]


def list_files(paths: Sequence[str]) -> list[Path]:
    """The list files in ``paths``, which are files, folders or globs."""
    return find_files(paths, lambda name: bool(_LIST_NAME.search(name)), _LISTS, "source.ids")


@lru_cache(maxsize=1)
def published(paths: tuple[str, ...]) -> Published:
    """Read the lists in ``paths``, once in a process; a tweet in two splits is an error."""
    parts = [part for path in list_files(paths) for part in _read_list(path)]
    tweets, users, splits = (
        np.concatenate([part[field] for part in parts] or [[]]).astype(kind, copy=False)
        for field, kind in enumerate((np.int64, np.uint32, np.uint8))
    )
    del parts
    order = np.argsort(tweets, kind="stable")
    found = Published(tweets[order], users[order], splits[order])
    same = found.tweets[1:] == found.tweets[:-1]
    for what, values in (("split", found.splits), ("user", found.users)):
        clash = np.flatnonzero(same & (values[1:] != values[:-1]))
        if len(clash):
            raise FirehoseError(
                f"Tweet {found.tweets[clash[0]]} is listed twice in source.ids, each time with "
                f"another {what}: remove the list that is wrong."
            )
    return found


Part = tuple[Any, Any, Any]  # tweets, folded users, split codes


def _read_list(path: Path) -> Iterator[Part]:
    match = _LIST_NAME.search(path.name)
    assert match
    try:
        columns = _pickled(path) if match[2] else _tabled(path, bool(match[1]))
        for users, tweets, splits in columns:
            if splits is None:
                codes = np.full(len(tweets), _split_by_name(path), np.uint8)
            else:
                codes = np.array([_split_code(split, path) for split in splits], np.uint8)
            yield tweets, _folded(users).astype(np.uint32), codes
    except FirehoseError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise FirehoseError(
            f"{path} is not a readable list of (user, tweet, time): {brief(error)}."
        ) from None


def _tabled(path: Path, is_parquet: bool) -> Iterator[Part]:
    """Yield users, tweets and splits of a table, batch by batch."""
    if is_parquet:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
    else:
        with pa.csv.open_csv(path) as head:
            names = head.schema.names
    kinds = {_column(path, names, ("user", "user_id")): pa.int64()}
    kinds |= {_column(path, names, ("tweet", "tweet_id", "id")): pa.int64()}
    kinds |= {"split": pa.string()} if "split" in names else {}
    chosen = list(kinds)
    if is_parquet:
        batches = file.iter_batches(columns=chosen)
    else:
        options = pa.csv.ConvertOptions(include_columns=chosen, column_types=kinds)
        batches = pa.csv.open_csv(path, convert_options=options)
    for batch in batches:
        users, tweets = (batch.column(name).cast(pa.int64()) for name in chosen[:2])
        if users.null_count or tweets.null_count:
            raise ValueError("an id is missing")
        splits = batch.column("split").to_pylist() if chosen[2:] else None
        yield users.to_numpy(), tweets.to_numpy(), splits


def _column(path: Path, present: Sequence[str], names: Sequence[str]) -> str:
    for name in names:
        if name in present:
            return name
    either, there = " or ".join(names), ", ".join(present)
    raise FirehoseError(f"{path} has no column {either} but {there}: rename the right one.")


def _pickled(path: Path) -> Iterator[Part]:
    with open_file(str(path)) as file:
        data = _PlainUnpickler(file, path).load()["data"]
    users = np.fromiter((int(user) for user, _, _ in data), np.int64, len(data))
    tweets = np.fromiter((int(tweet) for _, tweet, _ in data), np.int64, len(data))
    yield users, tweets, None


def _bytes(text: Any, encoding: Any) -> bytes:
    """A safe stand-in for ``codecs.encode``, which old pickles call to make bytes of datetimes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("strange bytes")
    return text.encode("latin1")


class _PlainUnpickler(pickle.Unpickler):
    """Reads containers, numbers, texts and datetimes, and refuses to import anything else."""

    _allowed: ClassVar = {
        ("datetime", "datetime"): datetime,
        ("datetime", "timedelta"): timedelta,
        ("datetime", "timezone"): timezone,
        ("_codecs", "encode"): _bytes,
    }

    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__(file, encoding="latin1")  # needed for datetimes of Python 2
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allowed:
            raise self._refusal(f"calls for {module}.{name}, which no list of tweets needs")
        return self._allowed[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise self._refusal(f"refers to an object outside of it ({pid!r:.40})")

    def _refusal(self, what: str) -> FirehoseError:
        advice = "get the list from its authors again, or as CSV"
        return FirehoseError(f"{self._path} {what}, so it is not read: {advice}.")


def _split_code(split: Any, path: Path) -> int:
    if split not in _SPLIT_CODE:
        raise FirehoseError(
            f"{path} names a split {split!r}: write one of {', '.join(USER_SPLITS)} there."
        )
    return _SPLIT_CODE[split]


def _split_by_name(path: Path) -> int:
    codes = {_SPLIT_CODE[word] for word in _SPLIT_WORD.findall(path.name.lower())}
    if len(codes) != 1:
        raise FirehoseError(
            f"Cannot tell which split {path} lists: let its name contain one of train, valid and "
            "test, or add a column split."
        )
    return codes.pop()


def _folded(user: Any) -> Any:
    """The id of a user, or an array of ids, folded to 32 bits."""
    return (user ^ (user >> 32)) & 0xFFFFFFFF
