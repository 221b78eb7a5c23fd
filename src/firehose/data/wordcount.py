"""How often each word occurs: what the vocabulary is made from, and what a corpus is made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firehose.data.clean import category
from firehose.data.corpus import WordCount
from firehose.data.engine import Runner, start

CATEGORIES = ("words", "hashtags", "mentions", "emoji", "URLs", "other")


def most_frequent(folder: Path, limit: int, runner: Runner) -> list[tuple[str, int]]:
    """The words to train on with their counts, most frequent first."""
    daft = start(runner)
    counts = _read(daft, folder).groupby("word").agg(daft.col("training").sum())
    counts = counts.where(daft.col("training") > 0)
    counts = counts.sort(["training", "word"], desc=[True, False]).limit(limit)
    table = counts.to_pydict()
    return list(zip(table["word"], table["training"], strict=True))


def by_category(folder: Path, corpora: Sequence[str], runner: Runner) -> list[dict[str, WordCount]]:
    """For each corpus, the number of words and of different words in each category."""
    daft = start(runner)
    counts = _read(daft, folder).groupby("word", "small").agg(daft.col("total").sum())
    tokens = [dict.fromkeys(CATEGORIES, 0) for _ in corpora]
    unique = [dict.fromkeys(CATEGORIES, 0) for _ in corpora]
    for batch in counts.where(daft.col("total") > 0).to_arrow_iter():
        columns = [batch.column(name).to_pylist() for name in ("word", "small", "total")]
        for word, small, total in zip(*columns, strict=True):
            kind = category(word)
            tokens[small][kind] += total
            unique[small][kind] += 1
    return [
        {kind: WordCount(tokens=count[kind], unique=different[kind]) for kind in CATEGORIES}
        for count, different in zip(tokens, unique, strict=True)
    ]


def _read(daft: Any, folder: Path) -> Any:
    return daft.read_parquet(str(folder / "*.parquet"))
