"""The second stage of preparing: clean the posts of one part of the users, and split them.

The cleaning steps come in the paper's order. Every post ends in exactly one place: in a split, or
in the counter of the step that removed it.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.data.clean import Language, is_blank, words
from firehose.data.corpus import SPLITS
from firehose.data.engine import Task
from firehose.data.plan import Cleaning, Plan, Splitting
from firehose.data.reading import hash64, read_part
from firehose.data.wordcount import COUNTS, count_table

CHUNK = 8_192  # texts held as Python strings at a time
SAMPLE = 1_024  # the time of every such post is used to cut the stream into slices

Codes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]

TRAIN, VALIDATION, TEST, PRETRAIN = range(len(SPLITS))
KEPT, EMPTY, FOREIGN, REPEATED, DUPLICATE, RARE = range(6)  # what became of a post

# The language detector is loaded once per process, as that takes longer than a small part.
_language = functools.cache(Language)


def steps(clean: Cleaning) -> list[str]:
    """The names of the cleaning steps, in their order: what each of them removes."""
    marked = {"retweets": clean.drop_retweets, "replies": clean.drop_replies}
    return [
        f"no words, or over {clean.max_characters:,} characters",
        f"language other than {', '.join(clean.languages)}" if clean.languages else "any language",
        " and ".join(name for name, drop in marked.items() if drop) or "no retweets, no replies",
        "the same post again",
        f"users with fewer than {clean.min_posts} posts",
    ]


def settle_part(plan: Plan, folder: Path, shards: Sequence[Task], task: Task) -> Task:
    """Clean and split the posts of part ``task["part"]``, and write what is kept, by time."""
    posts = read_part(folder / "read", shards, task)
    key = np.fromiter(map(hash64, posts["id"].to_pylist()), np.uint64, len(posts))
    names = pc.unique(posts["user"]).sort()
    user = pc.index_in(posts["user"], names).to_numpy()
    when = posts["time"].to_numpy()
    listed = posts["split"].is_valid().to_numpy()  # posts whose split a published list names
    limit = np.datetime64(plan.split.pretrain_before or "NaT")  # no time is before NaT
    early = ~listed & (when.astype("datetime64[ms]") < limit)

    fate = _clean(plan.clean, posts, listed)
    _drop_duplicates(fate, user, key)
    _drop_rare(fate, user, early, listed, plan.clean.min_posts)
    kept = np.flatnonzero(fate == KEPT)
    kept = kept[np.lexsort((key[kept], when[kept]))]
    split = _split(plan.split, user[kept], key[kept], early[kept])
    for code in (TRAIN, VALIDATION, TEST):
        split[pc.equal(posts["split"], SPLITS[code]).fill_null(False).to_numpy()[kept]] = code
    small = _is_small(plan.split, names)[user[kept]]

    texts = posts["text"].take(kept)
    cleaned, length, counts = _words(texts, split, small, plan.clean.mentions == "replace")
    columns = {"time": when[kept], "key": key[kept], "user": user[kept].astype(np.int32)}
    columns |= {"split": split, "small": small, "words": length, "text": cleaned}
    name = f"{task['part']:06}.parquet"
    pq.write_table(pa.table(columns), folder / "posts" / name, row_group_size=CHUNK)
    pq.write_table(_users(names, columns), folder / "users" / name)
    pq.write_table(counts, folder / "words" / name)
    owned = fate.copy()
    owned[early & (fate == KEPT)] = RARE  # kept for pretraining, without their user
    return {
        "part": task["part"],
        "users": len(names),
        "posts": [int(np.count_nonzero(fate == step)) for step in range(EMPTY, RARE + 1)],
        "lost": [_users_lost(owned, user, step) for step in range(EMPTY, RARE + 1)],
        "times": when[kept][::SAMPLE].tolist(),
    }


def _clean(clean: Cleaning, posts: pa.Table, listed: Mask) -> Codes:
    """The fate of each post after the steps that need no other posts."""
    language = _language()
    fates: list[int] = []
    for chunk in posts.select(["text", "language", "is_retweet", "is_reply"]).to_batches(CHUNK):
        rows = zip(*(column.to_pylist() for column in chunk.columns), strict=True)
        for text, stated, is_retweet, is_reply in rows:
            if len(text) > clean.max_characters or is_blank(text):
                fates.append(EMPTY)
            elif listed[len(fates)]:
                fates.append(KEPT)
            elif clean.languages and _code(stated or language.detect(text)) not in clean.languages:
                fates.append(FOREIGN)
            elif (is_retweet and clean.drop_retweets) or (is_reply and clean.drop_replies):
                fates.append(REPEATED)
            else:
                fates.append(KEPT)
    return np.array(fates, np.uint8)


def _code(language: str | None) -> str:
    """The language code without region and in lower case: “en” for “EN”, “en-US” and “en_GB”."""
    return (language or "").lower().replace("_", "-").partition("-")[0]


def _drop_duplicates(fate: Codes, user: Integers, key: Hashes) -> None:
    """Mark as duplicates all but the first read of a user's posts with the same id."""
    kept = np.flatnonzero(fate == KEPT)
    order = kept[np.lexsort((kept, key[kept], user[kept]))]
    again = (np.diff(user[order]) == 0) & (np.diff(key[order]) == 0)
    fate[order[1:][again]] = DUPLICATE


def _drop_rare(fate: Codes, user: Integers, early: Mask, listed: Mask, minimum: int) -> None:
    """Mark the posts of users with fewer than ``minimum``, not counting those for pretraining."""
    own = (fate == KEPT) & ~early
    counts = np.bincount(user[own], minlength=int(user.max(initial=0)) + 1)
    fate[own & ~listed & (counts[user] < minimum)] = RARE


def _split(split: Splitting, user: Integers, key: Hashes, early: Mask) -> Codes:
    """The split of each post: a user's posts with the smallest hashes are held out."""
    order = np.lexsort((_mix(key, split.seed), user, early))
    order = order[: len(order) - np.count_nonzero(early)]
    first = np.flatnonzero(np.diff(user[order], prepend=-1))  # the first post of each user
    rank = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    codes = np.full(len(user), PRETRAIN, np.uint8)
    held_out = split.validation + split.test
    codes[order] = np.select([rank < split.validation, rank < held_out], [VALIDATION, TEST], TRAIN)
    return codes


def _is_small(split: Splitting, names: pa.Array) -> Mask:
    """Which users belong to the small corpus; without one, none."""
    hashes = np.fromiter(map(hash64, names.to_pylist()), np.uint64, len(names))
    return _mix(hashes, split.seed) / 2.0**64 < (split.small or 0.0)


def _mix(values: Hashes, seed: int) -> Hashes:
    """Hashes mixed with a seed by the finalizer of SplitMix64, the same on every machine."""
    mixed = values ^ np.uint64(hash64(f"seed {seed}"))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _words(
    texts: pa.ChunkedArray, split: Codes, small: Mask, replace: bool
) -> tuple[pa.ChunkedArray, NDArray[np.int32], pa.Table]:
    """Cleaned texts, their numbers of words with <EOT>, and how often each word occurs.

    The vocabulary is trained on the ``training`` counts. The ``total`` counts describe a corpus;
    posts for pretraining are not among them.
    """
    groups = zip(split.tolist(), small.tolist(), strict=True)
    counters: defaultdict[tuple[int, bool], Counter[str]] = defaultdict(Counter)
    cleaned: list[pa.Array] = []
    lengths: list[int] = []
    for chunk in pa.table({"text": texts}).to_batches(CHUNK):
        found = [words(text, replace) for text in chunk["text"].to_pylist()]
        for own, group in zip(found, islice(groups, len(found)), strict=True):
            counters[group].update(own)
        cleaned.append(pa.array([" ".join(own) for own in found], pa.string()))
        lengths += [len(own) + 1 for own in found]
    tables = [
        count_table(counter, is_small, training=code in (TRAIN, PRETRAIN), total=code != PRETRAIN)
        for (code, is_small), counter in counters.items()
    ]
    counts = pa.concat_tables([COUNTS.empty_table(), *tables])
    return pa.chunked_array(cleaned, pa.string()), np.array(lengths, np.int32), counts


def _users(names: pa.Array, columns: dict[str, Any]) -> pa.Table:
    """A table of the users with kept posts: number, name, first time, and posts in each split."""
    own = columns["split"] != PRETRAIN
    user, split = columns["user"][own].astype(np.int64), columns["split"][own]
    number, first = np.unique(user, return_index=True)  # posts are in time order
    posts = np.bincount(user * 3 + split, minlength=len(names) * 3).reshape(-1, 3)[number]
    table = {"number": number, "user": names.take(pa.array(number))}
    table |= {"first": columns["time"][own][first], "small": columns["small"][own][first]}
    return pa.table(table | {SPLITS[code]: posts[:, code] for code in (TRAIN, VALIDATION, TEST)})


def _users_lost(fate: Codes, user: Integers, step: int) -> int:
    """How many users had posts before a step and have none after it."""
    before = np.unique(user[(fate == KEPT) | (fate >= step)])
    after = np.unique(user[(fate == KEPT) | (fate > step)])
    return len(before) - len(after)
