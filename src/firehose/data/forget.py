"""Take one user out of a prepared corpus: the posts, the name, and all counts of them.

Two things stay. The vocabulary was trained on the text of all users. And the posts of the split
``pretrain`` have no user, so nobody can tell whose they are.
"""

import difflib
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.data import encoding, wordcount
from firehose.data.clean import words
from firehose.data.corpus import Corpus, Split
from firehose.data.post import USER_SPLITS
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError
from firehose.progress import announce
from firehose.storage.workspace import workspace

NAME = "corpus"  # in the workspace
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
    for folder in ("slices", "words"):
        (work / folder).mkdir()
    for name in ("vocabulary.model", "config.toml"):
        shutil.copyfile(corpus.path / name, work / name)
    sizes = {
        name: _write_slices(split, number, corpus.vocabulary, work)
        for name, split in corpus.splits.items()
    }
    users = pq.read_table(corpus.path / "users.parquet")
    users = users.filter(pa.array(np.arange(len(users)) != number))
    (counts,) = wordcount.by_category(wordcount.count_words(work / "words"), [NAME])
    old = corpus.manifest
    kept = old.model_dump(include={"version", "config", "skipped", "steps"})
    # What cleaning removed of the user's is in its counters, and nobody can tell how much.
    read = old.read - sum(old.posts.values()) + sum(size.posts for size in sizes.values())
    told = {**kept, "read": read, "read_users": old.read_users - 1, "words": counts}
    encoding.assemble(work, NAME, users, sizes, told, work / "result")


def _write_slices(split: Split, number: int, vocabulary: Vocabulary, work: Path) -> encoding.Counts:
    """Write the posts of a split that are not the user's, and count their words, as `prepare` does.

    The users after this one get new numbers. A bounded number of posts is in memory at a time.
    """
    sizes = []
    for part, start in enumerate(range(0, max(len(split), 1), CHUNK)):
        chosen = start + np.flatnonzero(split.user[start : start + CHUNK] != number)
        batch = split.batch(chosen)
        columns: dict[str, NDArray[Any]] = {
            "user": batch.user - (batch.user > number),
            "time": batch.time,
            "words": batch.words,
            "key": split.key[chosen],
            "lengths": batch.lengths,
            "tokens": batch.tokens,
        }
        if split.floor is not None:
            columns["floor"] = split.floor[chosen]
        place = f"{NAME}/{split.name}"
        sizes.append(encoding.write_slice(work, place, part, columns, vocabulary.unknown))
        if split.name in USER_SPLITS:
            table = _count_words(batch, vocabulary)
            pq.write_table(table, work / "words" / f"{split.name}.{part:06}.parquet")
    return encoding.total(sizes)


def _count_words(batch: Batch, vocabulary: Vocabulary) -> pa.Table:
    texts = vocabulary.decode_posts(batch.tokens, batch.offsets)
    counter: Counter[str] = Counter()
    for text, count in zip(texts, (batch.words - 1).tolist(), strict=True):
        counter.update(_words_of(text, count))
    return wordcount.count_table(counter, small=False, training=False, total=True)


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
