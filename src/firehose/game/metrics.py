"""Metrics of games: from what every post cost, and from accuracies on tasks.

A perplexity over time averages the loss first and takes the exponential then. Intervals are
bootstrapped over users: posts of one user are not independent of each other.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

from firehose.game.scoring import BUCKETS, Costs, bucket_edges
from firehose.game.totals import Measured
from firehose.methods.buffers.storage import rank

DAY = 86_400_000  # milliseconds
HISTORIES = (0, 1, 4, 16, 64, 256, 1024)  # earlier posts of a user, where slices begin
SILENCES = (0, 1 / 24, 1, 7, 30, 90, 365)  # days since a user's last post, where slices begin

Groups = tuple[NDArray[np.int64], list[str]]  # of each post, −1: none; and their names
Slices = dict[str, Measured]  # word perplexities of some of the posts each, by their names
Scalar = TypeVar("Scalar", bound=np.generic)
Array = Annotated[  # a list in result.json
    NDArray[Scalar], PlainValidator(np.asarray), PlainSerializer(np.ndarray.tolist)
]


@dataclass(frozen=True)
class Curve:
    """A perplexity against time, a point for each of a number of stretches of the stream."""

    posts: Array[np.int64]  # seen by then
    running: Array[np.float64]  # over all posts so far
    windowed: Array[np.float64]  # over the posts of the stretch


def curve_ends(count: int, points: int = 200) -> NDArray[np.int64]:
    """Where the stretches of a stream of ``count`` posts end, of which each is a point."""
    return np.linspace(0, count, min(points, count) + 1).round().astype(np.int64)[1:]


def online_fit(paid: Costs, points: int = 200) -> Curve:
    """How well the next batch was predicted, as the stream went on."""
    ends = curve_ends(len(paid.nats), points)
    nats, words = (np.concatenate([[0], np.cumsum(c)]) for c in (paid.nats, paid.words))
    begins = np.concatenate([[0], ends[:-1]])
    stretch = (nats[ends] - nats[begins]) / (words[ends] - words[begins])
    return Curve(ends, np.exp(nats[ends] / words[ends]), np.exp(stretch))


def slices(
    paid: Costs, group: NDArray[np.int64], names: list[str], generator: np.random.Generator
) -> Slices:
    """The posts of each group that has any; group −1 is left out."""
    return {
        name: paid.select(chosen).measured(generator)
        for number, name in enumerate(names)
        if (chosen := group == number).any()
    }


def cold_start(paid: Costs, generator: np.random.Generator, most: int = 20) -> Slices:
    """By how many posts of the same user came before: the 1st, the 2nd, and so on."""
    names = [str(n + 1) for n in range(most)] + [f"after {most}"]
    return slices(paid, np.minimum(rank(paid.user), most), names, generator)


def history_groups(paid: Costs) -> Groups:
    """By how many posts of the same user came before, in wider and wider groups."""
    group = np.searchsorted(HISTORIES, rank(paid.user), side="right") - 1
    names = [f"{first} to {end - 1}" for first, end in pairwise(HISTORIES[1:])]
    return group, ["none", *names, f"{HISTORIES[-1]} or more"]


def by_history(paid: Costs, generator: np.random.Generator) -> Slices:
    """By how many posts of the same user came before, in wider and wider slices."""
    return slices(paid, *history_groups(paid), generator)


def silence_groups(paid: Costs) -> Groups:
    """By the days since the user's last post; first posts are in no group."""
    order = np.lexsort((np.arange(len(paid.user)), paid.user))
    gap = np.full(len(order), -1.0)
    same = paid.user[order][1:] == paid.user[order][:-1]
    between = np.diff(paid.time[order]) / DAY
    gap[order[1:][same]] = between[same]
    group = np.where(gap < 0, -1, np.searchsorted(SILENCES, gap, side="right") - 1)
    names = ["under an hour", "under a day", "under a week", "under a month", "under 3 months"]
    return group, [*names, "under a year", "a year or more"]


def after_silence(paid: Costs, generator: np.random.Generator) -> Slices:
    """By the days since the user's last post; first posts are left out."""
    return slices(paid, *silence_groups(paid), generator)


def activity_groups(paid: Costs) -> Groups:
    """By how much the user writes: ten groups with as many users each, the quietest first."""
    _, which, posts = np.unique(paid.user, return_inverse=True, return_counts=True)
    place = np.argsort(np.argsort(posts, kind="stable"))  # of each user, by number of posts
    decile = place * 10 // max(len(place), 1)
    return decile[which], [f"{10 * n}–{10 * (n + 1)} %" for n in range(10)]


def by_activity(paid: Costs, generator: np.random.Generator) -> Slices:
    """By how much the user writes: ten slices with as many users each, the quietest first."""
    return slices(paid, *activity_groups(paid), generator)


@dataclass(frozen=True)
class Retention:
    """What the final model pays for posts of the past, against how long ago they came."""

    days: Array[np.float64]  # before the end of the stream, the middle of each bucket
    bucket: Array[np.float64]  # perplexity on a sample of the bucket
    back_to: Array[np.float64]  # on all posts from the end back to this bucket


def retention(past: Costs, begin: int, end: int, buckets: int = BUCKETS) -> Retention:
    """From sampled posts of a stream that lasted from ``begin`` to ``end``."""
    group = np.searchsorted(bucket_edges(begin, end, buckets), past.time, side="right") - 1
    posts, nats, words, time = (
        np.bincount(group, past.weight * column, buckets)
        for column in (1, past.nats, past.words, past.time - begin)
    )
    filled = posts > 0
    posts, nats, words, time = (column[filled] for column in (posts, nats, words, time))
    back = np.cumsum(nats[::-1])[::-1] / np.cumsum(words[::-1])[::-1]
    days = (end - begin - time / posts) / DAY
    return Retention(days, np.exp(nats / words), np.exp(back))


def forgetting(accuracy: NDArray[np.float64], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far each task but the last has fallen from its best since it was over, [tasks − 1].

    ``accuracy`` is [points, tasks] as the stream went on, ``ends`` the point at which each task
    was over.
    """
    best = np.array([accuracy[end:, task].max() for task, end in enumerate(ends)])
    return np.asarray(best - accuracy[-1])[:-1]


def forward_transfer(accuracy: NDArray[np.float64], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much better than at the start each task but the first is just before it begins.

    Takes what :func:`forgetting` takes; returns [tasks − 1].
    """
    later = np.arange(1, len(ends))
    return np.asarray(accuracy[ends[:-1], later] - accuracy[0, later])
