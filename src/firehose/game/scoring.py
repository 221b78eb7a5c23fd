"""What posts cost a model, and the files of a run that say so.

In the folder of a run, each file is a column of 32-bit numbers, the nats of posts: ``paid.f32`` for
the posts of the stream when they came; and under the final model ``validation.f32`` and
``test.f32`` for held-out posts, ``past.f32`` for a fixed sample of the stream, and
``past-left-out.f32`` for the same posts where memories predict that can do without them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.data.corpus import Corpus, Split
from firehose.errors import FirehoseError
from firehose.game.result import read_files, refuse_altered
from firehose.game.totals import Measured, Totals
from firehose.methods.predictor import Predictor
from firehose.models.model import Payer
from firehose.models.perceptron import labels
from firehose.progress import track
from firehose.storage.files import write_whole

AT_ONCE = 128  # posts that are scored at once
PICTURES = 1000  # pictures that are classified at once
BUCKETS, EACH = 20, 200  # stretches of equal time of the past, and posts sampled from each
PARTS = 100  # of that sample, each left out of memories together

Measure = Literal["online", "validation", "test", "past", "past-left-out", "crossed"]
Per = Literal["word", "token", "user"]
Places = NDArray[np.int64] | slice  # of posts in a split


class Costs(NamedTuple):
    """What each post cost in nats, and what it is spread over."""

    nats: NDArray[np.float64]  # [posts], as the rest
    words: NDArray[np.int64]  # <EOT> included
    tokens: NDArray[np.int64]  # <SOT> not included: nothing predicts it
    user: NDArray[np.int64]
    time: NDArray[np.int64]
    weight: NDArray[np.float64]  # how many posts it stands for in sums: 1, if not sampled

    @classmethod
    def of(
        cls,
        posts: Split,
        nats: NDArray[np.floating],
        places: Places,
        weight: NDArray[np.float64] | None = None,
    ) -> Self:
        """What the posts at some places of a split cost."""
        words, user, time, tokens = (
            np.asarray(column[places], np.int64)
            for column in (posts.words, posts.user, posts.time, np.diff(posts.offsets) - 1)
        )
        weight = np.ones(len(nats)) if weight is None else weight
        return cls(np.asarray(nats, np.float64), words, tokens, user, time, weight)

    def select(self, chosen: NDArray[np.bool_]) -> Self:
        """Only the chosen posts."""
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in self._fields}
        return self._replace(**columns)

    def perplexity(self, per: Per = "word") -> float:
        """The perplexity over all posts together, per word or per token.

        ``per`` user is per word, with every user counted alike, however much they write.
        """
        return self.totals(per).value()

    def measured(self, generator: np.random.Generator, per: Per = "word") -> Measured:
        """The perplexity, and its interval over samples of as many users."""
        return self.totals(per).measured(generator, len(self.nats))

    def by_user(self) -> dict[str, NDArray[Any]]:
        """Each user's posts added up: user, posts, and weighted nats, words and tokens."""
        user, which, posts = np.unique(self.user, return_inverse=True, return_counts=True)
        sums = {
            name: np.bincount(which, self.weight * getattr(self, name))
            for name in ("nats", "words", "tokens")
        }
        return {"user": user, "posts": posts, **sums}

    def totals(self, per: Per = "word", users: int | None = None) -> Totals:
        """Nats by user, and the words or tokens they are spread over.

        ``per`` user means the mean per word of each, counted once. The units are the users who
        wrote the posts or, by their numbers, all ``users`` of a corpus.
        """
        columns = self.by_user()
        nats, count = columns["nats"], columns["tokens" if per == "token" else "words"]
        if per == "user":
            nats, count = nats / count, np.ones(len(count))
        if users is not None:
            nats, count = (np.bincount(columns["user"], column, users) for column in (nats, count))
        return Totals(nats[None], count[None])


def costs(
    payer: Payer,
    posts: Split,
    doing: str | None = "scoring",
    writers: NDArray[np.int64] | None = None,
    places: NDArray[np.int64] | None = None,
) -> Costs:
    """Let a model or a predictor pay for every post of a split, or for those at ``places``.

    ``writers``, one for each post, are taken for the users who wrote them. A progress bar says what
    it is ``doing``; with None there is none.
    """
    chosen = np.arange(len(posts)) if places is None else places
    starts = range(0, len(chosen), AT_ONCE)
    nats = [np.zeros(0)]
    for start in track(starts, len(starts), doing) if doing else starts:
        batch = posts.batch(chosen[start : start + AT_ONCE])
        if writers is not None:
            batch = replace(batch, user=writers[start : start + AT_ONCE].astype(np.int32))
        nats.append(payer.pay(batch).nats)
    return Costs.of(posts, np.concatenate(nats), chosen)


def past_sample(
    time: NDArray[np.int64], each: int = EACH, buckets: int = BUCKETS, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A fixed sample of posts that are in order of time: up to ``each`` of each bucket.

    Returns their places, and how many posts each stands for. Both depend on nothing but the
    arguments, so that all runs are scored on the same posts.
    """
    places = np.searchsorted(time, bucket_edges(time[0], time[-1], buckets))
    generator = np.random.default_rng(seed)
    drawn, weight = [], []
    for first, last in pairwise(places):
        drawn.append(np.sort(generator.permutation(last - first)[:each] + first))
        weight.append(np.full(len(drawn[-1]), (last - first) / max(len(drawn[-1]), 1)))
    return np.concatenate(drawn), np.concatenate(weight)


def score_past(payer: Payer, stream: Split, posts: int | None = None) -> Costs:
    """Let a model or a predictor pay for a fixed sample of a stream, or of its first posts."""
    places, weight = past_sample(stream.time[:posts])
    return costs(payer, stream, "the past", places=places)._replace(weight=weight)


def score_past_left_out(predictor: Predictor, stream: Split, posts: int | None = None) -> Costs:
    """Let a predictor pay for the same sample, each post while its memories do without it.

    One in ``PARTS`` posts of the sample is left out together with it; these lie far apart, so that
    what was written before and after a post is still there.
    """
    places, weight = past_sample(stream.time[:posts])
    nats, parts = np.zeros(len(places)), min(PARTS, len(places))
    for part in track(range(parts), parts, "the past, left out"):
        batch = stream.batch(places[part::parts])
        with predictor.without(batch):
            nats[part::parts] = predictor.pay(batch).nats
    return Costs.of(stream, nats, places, weight)


def bucket_edges(begin: int, end: int, buckets: int = BUCKETS) -> NDArray[np.float64]:
    """Where stretches of equal time begin and end, [buckets + 1]."""
    return np.linspace(begin, end + 1, buckets + 1)


def write_costs(folder: Path, measure: Measure, paid: Costs) -> None:
    """Write what posts cost into a run's file for them."""
    write_whole(folder / cost_file(measure), paid.nats.astype("<f4").tobytes())


def read_costs(folder: Path, corpus: Corpus, measure: Measure, is_sealed: bool = True) -> Costs:
    """Read what a run paid; posts of somebody who was forgotten since are left out.

    Raises FirehoseError where the file is not the one that the result of the run was made of;
    without ``is_sealed`` there is no such result yet.
    """
    if is_sealed:
        refuse_altered(folder, cost_file(measure))
    paid = Costs.of(*_posts_and_nats(folder, corpus, measure))
    known = ~np.isnan(paid.nats)
    return paid if known.all() else paid.select(known)


def has_costs(folder: Path, measure: Measure) -> bool:
    """Whether what these posts cost belongs to the result of a run that is over."""
    return cost_file(measure) in read_files(folder)


def without_user(
    folder: Path, corpus: Corpus, measure: Measure, user: int, posts: int | None = None
) -> tuple[bytes, int]:
    """The file of these costs with NaN in place of a user's, and how many those are.

    With ``posts``, only of so many posts; the file is left as it is.
    """
    split, nats, places, _ = _posts_and_nats(folder, corpus, measure, posts)
    own = np.asarray(split.user[places]) == user
    nats[own] = np.nan
    return nats.tobytes(), int(own.sum())


def cost_file(measure: Measure) -> str:
    """The name of the file of these costs in the folder of a run."""
    return "paid.f32" if measure == "online" else f"{measure}.f32"


def _posts_and_nats(
    folder: Path, corpus: Corpus, measure: Measure, posts: int | None = None
) -> tuple[Split, NDArray[np.float32], Places, NDArray[np.float64] | None]:
    """A file of a run: the split of its posts, their nats, their places, and their weights.

    With ``posts``, only the first of them; raises FirehoseError where it has too few or too many.
    """
    file, train, test = folder / cost_file(measure), corpus.splits["train"], corpus.splits["test"]
    nats: NDArray[np.float32] = np.fromfile(file, "<f4", -1 if posts is None else posts)
    split, weight = train, None
    places: Places = slice(len(nats))
    fitting = min(len(nats), len(train)) if posts is None else posts
    match measure:
        case "online":
            pass
        case "past" | "past-left-out":
            played = folder / cost_file("online")  # not there where all was trained on at once
            seen = played.stat().st_size // 4 if played.is_file() else len(train)
            places, weight = past_sample(train.time[:seen])
            fitting = len(places)
        case "crossed":  # every post once for each of some other users
            split, places = test, np.tile(np.arange(len(test)), len(nats) // len(test))
            fitting = len(places)
        case "validation" | "test":
            split = corpus.splits[measure]
            fitting = len(split)
    if len(nats) != fitting or (posts is None and file.stat().st_size % 4):
        raise FirehoseError(
            f"{file} is damaged: it has {len(nats):,} costs of {fitting:,} posts; "
            f"`firehose resume {folder}` computes it again."
        )
    return split, nats, places, weight


def accuracies(
    classify: Callable[[Batch], NDArray[np.int64]], tasks: Sequence[Batch]
) -> list[float]:
    """The share of each task's test pictures that is classified rightly."""
    shares = []
    for posts in tasks:
        parts = np.split(np.arange(len(posts)), range(PICTURES, len(posts), PICTURES))
        batches = map(posts.select, parts)
        right = sum(int((classify(each) == labels(each).numpy()).sum()) for each in batches)
        shares.append(right / len(posts))
    return shares
