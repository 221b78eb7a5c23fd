"""The prepared data set on disk: memory-mapped flat arrays, and a manifest that describes them.

::

    corpus/
      manifest.json     schema, every counter, configuration, checksums
      config.toml       the configuration that made it, ready to be used again
      vocabulary.model  SentencePiece
      users.parquet     name and number of posts of each user, by index
      train/            tokens, offsets, user, time, words, key: one .npy file each
      validation/  test/  pretrain/
"""

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from firehose.batch import Batch
from firehose.data.post import USER_SPLITS
from firehose.data.stream import BatchStream
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError
from firehose.storage.seals import File, Record, refuse_damage, seal_of
from firehose.storage.workspace import unreplaced

SCHEMA = 1
SPLITS = (*USER_SPLITS, "pretrain")
CHUNK = 1 << 20  # posts whose lengths are computed at a time
WORDS, USERS = "vocabulary.model", "users.parquet"

REMEDY = "prepare the corpus again"


class Step(Record):
    """What one cleaning step removed."""

    name: str
    posts: int
    users: int


class WordCount(Record):
    """Words of one category: how many, and how many different ones."""

    tokens: int
    unique: int


class Floor(Record):
    """The best possible word perplexities on a split, where the true model is known."""

    personalized: float
    agnostic: float


class VocabularyRecord(Record):
    """What the arrays of a corpus need to know of its vocabulary."""

    size: int
    sot: int
    eot: int
    unknown: int  # pieces that stand for text the vocabulary cannot spell


class Manifest(Record):
    """Everything that is recorded about a corpus, except for the posts."""

    format: str = "firehose corpus"
    schema_version: int = SCHEMA
    version: str
    config: dict[str, Any]
    read: int  # records, including those that were skipped
    read_users: int
    skipped: dict[str, int]
    steps: list[Step]
    posts: dict[str, int]
    users: int
    words: dict[str, WordCount]
    unique_words: int
    vocabulary: VocabularyRecord
    floor: dict[str, Floor] | None = None
    files: dict[str, File]

    def to_json(self) -> str:
        """The manifest as JSON, with a checksum of itself."""
        body = self.model_dump(mode="json")
        return json.dumps(body | {"seal": seal_of(body)}, indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Split:
    """The posts of one split in time order, as memory-mapped columns."""

    name: str
    tokens: NDArray[np.unsignedinteger]  # [tokens], each post from <SOT> to <EOT>
    offsets: NDArray[np.int64]  # [posts + 1]
    user: NDArray[np.int32]  # [posts], -1 in "pretrain"
    time: NDArray[np.int64]  # [posts], milliseconds since 1970, UTC
    words: NDArray[np.int32]  # [posts], word-level tokens, <EOT> included
    key: NDArray[np.uint64]  # [posts], hash of the post's id
    floor: NDArray[np.float64] | None = None  # [posts, 2], nats: knowing the user, and not

    def __len__(self) -> int:
        return len(self.user)

    def batch(self, posts: ArrayLike) -> Batch:
        """The posts with these indices, in this order, or those where a mask is true."""
        chosen = np.asarray(posts)
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        if len(chosen) and (chosen.dtype.kind not in "iu" or chosen.min() < 0):
            raise FirehoseError("Posts are chosen by index, a whole number from 0, or by a mask.")
        return self._whole.select(chosen.astype(np.int64))

    @functools.cached_property
    def _whole(self) -> Batch:
        """All posts; plain arrays, as it takes longer to choose from memory maps."""
        rest = (np.asarray(self.user), np.asarray(self.time), np.asarray(self.words))
        return Batch(np.asarray(self.tokens), np.asarray(self.offsets), *rest)

    def between(self, start: int, stop: int) -> Batch:
        """The posts from ``start`` to before ``stop``; tokens are not copied."""
        first, last = self.offsets[start], self.offsets[stop]
        rest = (self.user[start:stop], self.time[start:stop], self.words[start:stop])
        return Batch(self.tokens[first:last], self.offsets[start : stop + 1] - first, *rest)

    def share_longer(self, max_tokens: int) -> float:
        """The share of posts with more than ``max_tokens`` tokens, <SOT> and <EOT> included."""
        return int(self._count_lengths()[max_tokens + 1 :].sum()) / max(len(self), 1)

    def tokens_covering(self, share: float = 0.99) -> int:
        """The smallest number of tokens that at least this share of the posts does not exceed."""
        if not 0 < share <= 1:
            raise FirehoseError(f"{share} is no share of posts; choose one above 0 and up to 1.")
        upto = np.cumsum(self._count_lengths())
        return int(np.searchsorted(upto / len(self), share)) if len(self) else 0

    def _count_lengths(self) -> NDArray[np.int64]:
        """The number of posts of 0, 1, 2 … tokens; a bounded number of posts is read at a time."""
        starts = range(0, len(self), CHUNK)
        return histogram(np.diff(self.offsets[start : start + CHUNK + 1]) for start in starts)


def histogram(blocks: Iterable[NDArray[np.integer]]) -> NDArray[np.int64]:
    """How often 0, 1, 2 … occur in blocks of whole numbers."""
    counts = np.zeros(1, np.int64)
    for block in blocks:
        more = np.bincount(block, minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    return counts


class Stream(BatchStream):
    """The posts of a split in time order, ``size`` at a time or by windows of time.

    With ``hours``, a batch is what was posted within a window of that many hours; windows are
    counted from 1970.
    """

    def __init__(self, split: Split, size: int, hours: float | None = None) -> None:
        super().__init__(len(split), size)
        self.split = split
        self.window = None if hours is None else max(1, round(hours * 3_600_000))

    def __len__(self) -> int:
        if self.window is None:
            return (self.posts - self.position + self.size - 1) // self.size
        return len(np.unique(self.split.time[self.position :] // self.window))

    def _stop(self, start: int) -> int:
        if self.window is None:
            return min(start + self.size, self.posts)
        end = (int(self.split.time[start]) // self.window + 1) * self.window
        return int(np.searchsorted(self.split.time, end))

    def _batch(self, start: int, stop: int) -> Batch:
        return self.split.between(start, stop)


class Corpus:
    """A prepared corpus, opened from its folder; raises an error where it is damaged.

    All of it is held from then on: the corpus stays what it was, even if another one takes its
    place. ``check`` says whether the contents of all files are compared with their checksums; by
    default those of a large corpus are only when it is opened for the first time.
    """

    def __init__(self, path: str | Path, check: bool | None = None) -> None:
        self.path = Path(path)
        self.name = self.path.resolve().name
        with unreplaced(self.path):
            self.manifest = _read_manifest(self.path)
            refuse_damage(self.path, self.manifest.files, REMEDY, check)
            self.splits = {name: self._open(name) for name in SPLITS if name in self.manifest.posts}
            self._held = {name: (self.path / name).read_bytes() for name in (WORDS, USERS)}

    def _open(self, name: str) -> Split:
        """Map the columns of a split, and check that their lengths fit each other."""
        paths = [self.path / file for file in self.manifest.files if file.startswith(f"{name}/")]
        try:
            # np.load refuses pickles unless they are allowed.
            split = Split(name, **{path.stem: np.load(path, mmap_mode="r") for path in paths})
        except (ValueError, TypeError, OSError) as error:
            if getattr(error, "errno", None):  # the system's fault, not the file's
                raise
            raise self._damaged(f"the columns of {name} cannot be read") from None
        posts = self.manifest.posts[name]
        lengths = {len(column) for column in (split.user, split.time, split.words, split.key)}
        ends = (int(split.offsets[0]), int(split.offsets[-1])) if len(split.offsets) else ()
        if lengths != {posts} or len(split.offsets) != posts + 1 or ends != (0, len(split.tokens)):
            raise self._damaged(f"the columns of {name} do not fit each other")
        return split

    def _damaged(self, how: str) -> FirehoseError:
        return FirehoseError(f"{self.path} is damaged: {how}; {REMEDY}.")

    def seal(self) -> str:
        """A checksum of the contents: the same wherever, and from whichever paths, it was made."""
        files = self.manifest.files
        return seal_of({name: files[name].sha256 for name in files if name != "config.toml"})

    def posts_of(self, split: str) -> Split:
        """The posts of a split; raises FirehoseError where there are none."""
        found = self.splits.get(split)
        if found is None or not len(found):
            raise FirehoseError(
                f"{self.path} has no posts in {split!r}; prepare it with --pretrain-before, or "
                "use others: --split train."
            )
        return found

    def stream(self, size: int = 256, hours: float | None = None) -> Stream:
        """The training posts in time order, ``size`` at a time, or by windows of ``hours``."""
        return Stream(self.splits["train"], size, hours)

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that the posts were encoded with."""
        return Vocabulary.of(self._held[WORDS], self.path / WORDS)

    @functools.cached_property
    def users(self) -> list[str]:
        """The users' names by index, in the order of their first post."""
        # In this thread: one of Arrow's that still holds Python's bytes ends the interpreter badly.
        file = pq.ParquetFile(pa.BufferReader(self._held[USERS]))
        return list(file.read(["user"], use_threads=False)["user"].to_pylist())


def open_corpus(corpus: Corpus | str | Path) -> Corpus:
    """Open the corpus at a path; a corpus that is open already is returned as it is."""
    return corpus if isinstance(corpus, Corpus) else Corpus(corpus)


def _read_manifest(path: Path) -> Manifest:
    file = path / "manifest.json"
    if not file.is_file():
        if (path / "small" / "manifest.json").is_file():
            raise FirehoseError(f"{path} holds two corpora; name {path}/small or {path}/large.")
        what = "does not exist" if not path.exists() else "is not a corpus: no manifest.json in it"
        raise FirehoseError(f"{path} {what}; make one with `firehose prepare … --out {path}`.")
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        if body["format"] != "firehose corpus":
            raise KeyError
        if body["schema_version"] != SCHEMA:
            raise FirehoseError(
                f"{path} has corpus schema {body['schema_version']}, this Firehose reads {SCHEMA}; "
                "prepare the corpus again."
            )
        seal = body.pop("seal")
        manifest = Manifest.model_validate(body)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FirehoseError(f"{file} is not the manifest of a corpus; prepare it again.") from None
    if seal != seal_of(body):
        raise FirehoseError(f"{path} is damaged: manifest.json was altered; prepare it again.")
    return manifest


def is_corpus(path: Path) -> bool:
    """Whether a folder is a corpus, or holds the two corpora that ``split.small`` makes."""
    folders = [path] if (path / "manifest.json").exists() else [path / "large", path / "small"]
    try:
        return bool([_read_manifest(folder) for folder in folders])
    except FirehoseError:
        return False


def check(path: str | Path) -> Corpus:
    """Open a corpus and compare every byte of it with its checksums."""
    return Corpus(path, check=True)
