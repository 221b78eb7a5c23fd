"""Counts of words: the vocabulary is trained on them, and the manifest tells them by category."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from firehose.data.clean import category
from firehose.data.corpus import WordCount

CATEGORIES = ("words", "hashtags", "mentions", "emoji", "URLs", "other")
CHUNK = 65_536  # words held as Python strings at a time
COUNTS = pa.schema(
    {
        "word": pa.string(),
        "small": pa.bool_(),  # whether it is counted for the small corpus
        "training": pa.int64(),  # how often it occurs in text to train the vocabulary on
        "total": pa.int64(),  # how often it occurs in the posts of users
    }
)


def count_table(counter: Counter[str], small: bool, training: bool, total: bool) -> pa.Table:
    """The counts of words in some posts as a table with the columns of ``COUNTS``.

    ``training`` and ``total`` say whether these posts count in the columns of these names.
    """
    counts = np.fromiter(counter.values(), np.int64, len(counter))
    words = pa.array(counter.keys(), pa.string())
    columns = [words, pa.array(np.full(len(counts), small)), counts * training, counts * total]
    return pa.table(columns, COUNTS)


def count_words(folder: Path) -> pa.Table:
    """The counts in all Parquet files of a folder, summed by word."""
    tables = [COUNTS.empty_table()]  # the sums so far, and what is waiting to be added to them
    for path in sorted(folder.glob("*.parquet")):
        tables.append(pq.read_table(path))
        # Summed whenever more rows are waiting than there are words so far: then the work grows
        # like the input, and the memory like the number of different words.
        if sum(map(len, tables[1:])) > len(tables[0]):
            tables = [_summed(tables)]
    return _summed(tables)


def _summed(tables: Sequence[pa.Table]) -> pa.Table:
    summed = pa.concat_tables(tables).group_by(["word", "small"], use_threads=False)
    counts = summed.aggregate([("training", "sum"), ("total", "sum")])
    return counts.rename_columns(["word", "small", "training", "total"])


def most_frequent(counts: pa.Table, limit: int) -> list[tuple[str, int]]:
    """The words in text to train on, with their counts, at most ``limit``, most frequent first."""
    trained = counts.filter(pc.field("training") > 0).group_by("word", use_threads=False)
    trained = trained.aggregate([("training", "sum")]).rename_columns(["word", "training"])
    trained = trained.sort_by([("training", "descending"), ("word", "ascending")])[:limit]
    return list(zip(trained["word"].to_pylist(), trained["training"].to_pylist(), strict=True))


def by_category(counts: pa.Table, corpora: Sequence[str]) -> list[dict[str, WordCount]]:
    """For each corpus, the number of words and of different words of each category."""
    tokens: Counter[tuple[int, str]] = Counter()
    unique: Counter[tuple[int, str]] = Counter()
    used = counts.filter(pc.field("total") > 0).select(["word", "small", "total"])
    for batch in used.to_batches(CHUNK):
        for word, small, total in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            group = int(small), category(word)
            tokens[group] += total
            unique[group] += 1
    return [
        {kind: WordCount(tokens=tokens[n, kind], unique=unique[n, kind]) for kind in CATEGORIES}
        for n in range(len(corpora))
    ]
