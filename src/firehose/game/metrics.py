"""What a game says about its learner, from what every post of the stream cost when it came.

A perplexity over time averages the loss first and takes the exponential then. Intervals are
bootstrapped over users: posts of one user are not independent of each other.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.game.scoring import Costs
from firehose.methods.buffers.storage import rank

DAY = 86_400_000  # milliseconds
SILENCES = (0, 1 / 24, 1, 7, 30, 90, 365)  # days since a user's last post, where slices begin
RESAMPLES = 1000
BUCKETS, EACH = 20, 200  # of the past, and posts sampled from each


class Curve(NamedTuple):
    """A perplexity against time, a point for each of a number of stretches of the stream."""

    posts: NDArray[np.int64]  # seen by then
    running: NDArray[np.float64]  # over all posts so far
    windowed: NDArray[np.float64]  # over the posts of the stretch


class Slice(NamedTuple):
    """Some of the posts, and what they cost."""

    name: str
    posts: int
    perplexity: float
    low: float  # the interval in which 95 of 100 samples of users lie
    high: float


def online_fit(paid: Costs, points: int = 200) -> Curve:
    """How well the next batch was predicted, as the stream went on."""
    count = len(paid.nats)
    ends = np.linspace(0, count, min(points, count) + 1).round().astype(np.int64)[1:]
    nats, words = (np.concatenate([[0], np.cumsum(c)]) for c in (paid.nats, paid.words))
    begins = np.concatenate([[0], ends[:-1]])
    stretch = (nats[ends] - nats[begins]) / (words[ends] - words[begins])
    return Curve(ends, np.exp(nats[ends] / words[ends]), np.exp(stretch))


def interval(paid: Costs, generator: np.random.Generator) -> tuple[float, float]:
    """Where the perplexity of 95 of 100 samples of as many users lies."""
    users, which = np.unique(paid.user, return_inverse=True)
    nats, words = np.bincount(which, paid.nats), np.bincount(which, paid.words)
    # How often each user is in each sample; one sample at a time, for memory's sake.
    drawn = []
    for _ in range(RESAMPLES):
        times = np.bincount(generator.integers(0, len(users), len(users)), minlength=len(users))
        drawn.append((times @ nats) / (times @ words))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(np.exp(low)), float(np.exp(high))


def slices(
    paid: Costs, group: NDArray[np.int64], names: list[str], generator: np.random.Generator
) -> list[Slice]:
    """The posts of each group that has any; group −1 is left out."""
    found = []
    for number, name in enumerate(names):
        chosen = group == number
        if chosen.any():
            part = paid.select(chosen)
            ends = interval(part, generator)
            found.append(Slice(name, int(chosen.sum()), part.per_word(), *ends))
    return found


def cold_start(paid: Costs, generator: np.random.Generator, most: int = 20) -> list[Slice]:
    """By how many posts of the same user came before: the 1st, the 2nd, and so on."""
    number = rank(paid.user)
    names = [str(n + 1) for n in range(most)] + [f"after {most}"]
    return slices(paid, np.minimum(number, most), names, generator)


def after_silence(paid: Costs, generator: np.random.Generator) -> list[Slice]:
    """By the days since the user's last post; first posts are left out."""
    order = np.lexsort((np.arange(len(paid.user)), paid.user))
    gap = np.full(len(order), -1.0)
    same = paid.user[order][1:] == paid.user[order][:-1]
    between = np.diff(paid.time[order]) / DAY
    gap[order[1:][same]] = between[same]
    group = np.where(gap < 0, -1, np.searchsorted(SILENCES, gap, side="right") - 1)
    names = ["under an hour", "under a day", "under a week", "under a month", "under 3 months"]
    return slices(paid, group, [*names, "under a year", "a year or more"], generator)


def by_activity(paid: Costs, generator: np.random.Generator) -> list[Slice]:
    """By how much the user writes: ten groups with as many users each, the quietest first."""
    users, which, posts = np.unique(paid.user, return_inverse=True, return_counts=True)
    place = np.empty(len(users), np.int64)
    place[np.argsort(posts, kind="stable")] = np.arange(len(users))
    decile = place * 10 // max(len(users), 1)
    names = [f"{10 * n}–{10 * (n + 1)} %" for n in range(10)]
    return slices(paid, decile[which], names, generator)


class Retention(NamedTuple):
    """What the final model pays for posts of the past, against how long ago they came."""

    days: NDArray[np.float64]  # before the end of the stream, the middle of each bucket
    bucket: NDArray[np.float64]  # perplexity on a sample of the bucket
    back_to: NDArray[np.float64]  # on all buckets from the end back to this one


def past_sample(
    time: NDArray[np.int64], each: int = EACH, buckets: int = BUCKETS, seed: int = 0
) -> NDArray[np.int64]:
    """A fixed sample of posts in order of time: up to so many of each stretch of equal time.

    It depends on nothing but these numbers, so all runs are asked the same.
    """
    places = np.searchsorted(time, _edges(time[0], time[-1], buckets))
    generator = np.random.default_rng(seed)
    drawn = [
        np.sort(generator.permutation(last - first)[:each] + first)
        for first, last in pairwise(places)
    ]
    return np.concatenate(drawn)


def retention(past: Costs, begin: int, end: int, buckets: int = BUCKETS) -> Retention:
    """From sampled posts of a stream that lasted from ``begin`` to ``end``."""
    group = np.searchsorted(_edges(begin, end, buckets), past.time, side="right") - 1
    posts, nats, words, time = (
        np.bincount(group, column, buckets)
        for column in (np.ones(len(group)), past.nats, past.words, past.time - begin)
    )
    filled = posts > 0
    posts, nats, words, time = (column[filled] for column in (posts, nats, words, time))
    back = np.cumsum(nats[::-1])[::-1] / np.cumsum(words[::-1])[::-1]
    days = (end - begin - time / posts) / DAY
    return Retention(days, np.exp(nats / words), np.exp(back))


def _edges(begin: int, end: int, buckets: int) -> NDArray[np.float64]:
    return np.linspace(begin, end + 1, buckets + 1)
