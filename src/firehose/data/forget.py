"""Take one user out of a prepared corpus: the posts, the name, and all counts of them.

Two things stay. The vocabulary was trained on the text of all users. And the posts of the split
``pretrain`` have no user, so nobody can tell whose they are.
"""

import difflib
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.data import wordcount
from firehose.data.clean import words
from firehose.data.corpus import Corpus, Manifest, Split, WordCount
from firehose.data.encoding import offsets_of, write_array
from firehose.data.floor import floor_of
from firehose.data.post import USER_SPLITS
from firehose.errors import FirehoseError
from firehose.progress import announce
from firehose.storage.seals import File, sha256
from firehose.storage.workspace import workspace

CHUNK = 65_536  # posts looked at together
PAGES = "stats"  # the folder in a corpus that `firehose stats` writes to


def forget_in_corpus(path: str | Path, user: str) -> dict[str, int]:
    """Rewrite a corpus without a user, whole or not at all; returns how much was erased, by kind.

    The other users keep their order and close the gap in the numbers. Pages that `firehose stats`
    left in the folder count the user, and go.
    """
    place = Path(path).resolve()  # where a link leads to, or the old corpus would stay there
    if not place.parent.is_dir():
        raise FirehoseError(f"{path} does not exist; name the folder of a corpus.")
    # The user is looked for inside, as the workspace removes what an earlier attempt left behind.
    with workspace(place, replace=True) as work:
        corpus = Corpus(place, check=True)  # or damage would get new checksums
        number = _number_of(user, corpus)
        _refuse_strangers(corpus)
        with announce("rewriting the corpus"):
            _rewrite(corpus, number, work)
            return _erased(corpus, number)


def _number_of(user: str, corpus: Corpus) -> int:
    if user not in corpus.users:
        close = difflib.get_close_matches(user, corpus.users, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "see users.parquet."
        raise FirehoseError(f"There is no user {user!r} in {corpus.path}: {hint}")
    if len(corpus.users) == 1:
        raise FirehoseError(f"{user!r} is the only user of {corpus.path}: remove the whole folder.")
    return corpus.users.index(user)


def _refuse_strangers(corpus: Corpus) -> None:
    """Refuse a folder with files that are not the corpus's: they would be lost."""
    known = {corpus.path / name for name in (*corpus.manifest.files, "manifest.json")}
    for file in sorted(corpus.path.rglob("*")):
        of_pages = file.relative_to(corpus.path).parts[0] == PAGES
        if not (file.is_dir() or file in known or of_pages):
            raise FirehoseError(f"{file} is not a part of the corpus: move it elsewhere first.")


def _rewrite(corpus: Corpus, number: int, work: Path) -> None:
    """Write the corpus without user ``number`` to ``work/result``."""
    out, old = work / "result", corpus.manifest
    out.mkdir()
    remaining = {name: _Remaining(split, number) for name, split in corpus.splits.items()}
    files = dict(old.files)
    for name, left in remaining.items():
        files |= _write_split(left, out / name)
    for name in ("vocabulary.model", "config.toml"):
        shutil.copyfile(corpus.path / name, out / name)
    files["users.parquet"] = _write_users(corpus, number, out / "users.parquet")
    counts = _count_words(corpus, remaining, work)
    gone = [split.batch(split.user == number) for split in corpus.splits.values()]
    unknown = sum(int(np.count_nonzero(b.tokens == corpus.vocabulary.unknown)) for b in gone)
    floors = {
        name: floor_of(left.column("floor"), left.column("words"))
        for name, left in remaining.items()
        if left.posts and left.split.floor is not None
    }
    changed = {
        # What cleaning removed of the user's is in its counters, and nobody can tell how much.
        "read": old.read - sum(map(len, gone)),
        "read_users": old.read_users - 1,
        "posts": {name: left.posts for name, left in remaining.items()},
        "users": old.users - 1,
        "words": counts,
        "unique_words": sum(count.unique for count in counts.values()),
        "vocabulary": old.vocabulary.model_copy(
            update={"unknown": old.vocabulary.unknown - unknown}
        ),
        "floor": floors or None,
        "files": dict(sorted(files.items())),
    }
    manifest = Manifest(**dict(old) | changed)
    (out / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")


def _write_users(corpus: Corpus, number: int, out: Path) -> File:
    table = pq.read_table(corpus.path / "users.parquet")
    table = table.filter(pa.array(np.arange(len(table)) != number))
    pq.write_table(table.combine_chunks(), out)
    return File(bytes=out.stat().st_size, sha256=sha256(out))


class _Remaining:
    """The posts of a split that are not the user's, a bounded number at a time."""

    def __init__(self, split: Split, number: int) -> None:
        self.split = split
        self.number = number
        self.keep = np.asarray(split.user != number)  # [posts]
        self.posts = int(np.count_nonzero(self.keep))

    def indices(self) -> Iterator[NDArray[np.int64]]:
        """The posts' indices in the split."""
        for start in range(0, len(self.keep), CHUNK):
            yield start + np.flatnonzero(self.keep[start : start + CHUNK])

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        """One of the columns with a row for each post; users have their new numbers."""
        for chosen in self.indices():
            values = np.asarray(getattr(self.split, name)[chosen])
            yield values - (values > self.number) if name == "user" else values

    def lengths(self) -> Iterator[NDArray[np.int64]]:
        """The number of tokens of each post."""
        for chosen in self.indices():
            yield self.split.offsets[chosen + 1] - self.split.offsets[chosen]


def _write_split(left: _Remaining, out: Path) -> dict[str, File]:
    """Write the columns of a split; returns its files, by name."""
    out.mkdir()
    split, posts = left.split, left.posts
    files = {}

    def write(name: str, shape: tuple[int, ...], blocks: Iterator[NDArray[Any]]) -> None:
        kind = getattr(split, name).dtype
        files[f"{out.name}/{name}.npy"] = write_array(out / f"{name}.npy", kind, shape, blocks)

    tokens = (split.batch(chosen).tokens for chosen in left.indices())
    write("tokens", (sum(int(block.sum()) for block in left.lengths()),), tokens)
    write("offsets", (posts + 1,), offsets_of(left.lengths()))
    for name in ("user", "time", "words", "key"):
        write(name, (posts,), left.column(name))
    if split.floor is not None:
        write("floor", (posts, 2), left.column("floor"))
    return files


def _count_words(
    corpus: Corpus, remaining: dict[str, _Remaining], work: Path
) -> dict[str, WordCount]:
    """The words of the remaining posts of users, by category, as `prepare` counts them."""
    folder = work / "words"
    folder.mkdir()
    own = [remaining[name] for name in USER_SPLITS]
    chunks = ((left.split, chosen) for left in own for chosen in left.indices())
    for part, (split, chosen) in enumerate(chunks):
        batch = split.batch(chosen)
        texts = corpus.vocabulary.decode_posts(batch.tokens, batch.offsets)
        counter: Counter[str] = Counter()
        for text, count in zip(texts, (batch.words - 1).tolist(), strict=True):
            counter.update(_words_of(text, count))
        table = wordcount.count_table(counter, small=False, training=False, total=True)
        pq.write_table(table, folder / f"{part:06}.parquet")
    (found,) = wordcount.by_category(wordcount.count_words(folder), [corpus.name])
    return found


def _words_of(text: str, count: int) -> list[str]:
    """The words of a cleaned text that has ``count`` of them.

    They are separated by spaces, but a phone number or a spaced-out ellipsis has spaces inside:
    where there are too many parts, the tokenizer puts them together again.
    """
    found = text.split(" ")
    return found if len(found) == count else words(text, mentions=False)


def _erased(corpus: Corpus, number: int) -> dict[str, int]:
    """How much of the user the corpus holds."""
    gone = {name: corpus.splits[name].user == number for name in USER_SPLITS}
    posts = {f"{name} posts": int(np.count_nonzero(own)) for name, own in gone.items()}
    written = sum(int((corpus.splits[name].words[own] - 1).sum()) for name, own in gone.items())
    return {**posts, "words": written, "names": 1}
