"""What runs paid, user by user: values over seeds, and differences with their intervals."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.experiments.jobs import Job
from firehose.experiments.recipe import Shown
from firehose.game.account import Measure, account
from firehose.game.metrics import RESAMPLES
from firehose.game.outcome import Outcome
from firehose.game.scoring import Costs
from firehose.game.settings import Training
from firehose.models.store import read_card

AT_ONCE = 50  # samples of users in memory


class Entry(NamedTuple):
    """Nats and words of each user; ``sign`` −1 where they count against."""

    sign: int
    nats: NDArray[np.float64]  # [users of the corpus], as the next
    words: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        sign: int,
        user: NDArray[np.int64],
        nats: NDArray[np.float64],
        words: NDArray[np.integer],
        users: int,
    ) -> "Entry":
        """From posts, or from some users, of a corpus with so many users."""
        summed = (np.bincount(user, values, users).astype(float) for values in (nats, words))
        return cls(sign, *summed)


Ledger = list[Entry]  # its value is exp(Σ sign · nats / words): a perplexity, or a ratio of two


class Value(NamedTuple):
    """A measure over seeds."""

    mean: float
    deviation: float | None  # None: a single seed
    seeds: int


class Difference(NamedTuple):
    """By what factor one measure is another, less one; and where 95 of 100 samples have it."""

    change: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed, and are done."""

    facts: dict[str, str]
    jobs: tuple[Job, ...]

    def value(self, measure: Shown) -> Value | None:
        """Mean and deviation; None: these runs do not have it."""
        books = [ledger(job, measure) for job in self.jobs]
        values = [float(np.exp(_value(book))) for book in books if book]
        if not values:
            return None
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return Value(float(np.mean(values)), deviation, len(values))

    def outcomes(self) -> list[Outcome]:
        """What came of each game."""
        return [Outcome.read(job.folder) for job in self.jobs]


def groups(jobs: list[Job]) -> list[Group]:
    """The jobs that are done, seeds together."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        if job.is_done:
            found.setdefault(json.dumps(job.facts), []).append(job)
    return [Group(members[0].facts, tuple(members)) for members in found.values()]


def _costs(job: Job, measure: Measure) -> Costs:
    return account(job.folder, job.corpus, measure)


@cache
def ledger(job: Job, measure: Shown) -> Ledger:
    """What a run that is done paid; empty, where it has no such measure."""
    if job.kind != "play":
        return _offline(job, measure) if job.kind == "offline" else []
    match measure:
        case "crossed":
            return []
        case "old":
            return _entries(job, [(1, _halves(job)[0])])
        case "recent":
            return _entries(job, [(1, _halves(job)[1])])
        case "forgetting":
            old, recent = _halves(job)
            return _entries(job, [(1, old), (-1, recent)])
        case _:
            return _entries(job, [(1, _costs(job, measure))])


def _entries(job: Job, parts: list[tuple[int, Costs]]) -> Ledger:
    users = job.corpus.manifest.users
    return [Entry.of(sign, paid.user, paid.nats, paid.words, users) for sign, paid in parts]


def _halves(job: Job) -> tuple[Costs, Costs]:
    """The older and the newer half of the past, by time."""
    past, seen = _costs(job, "past"), _costs(job, "online")
    is_old = past.time < (seen.time[0] + seen.time[-1]) / 2
    return past.select(is_old), past.select(~is_old)


def _offline(job: Job, measure: Shown) -> Ledger:
    if measure not in ("test", "crossed"):
        return []
    table = pq.read_table(job.folder / "users.parquet")
    column = {"test": "word_perplexity", "crossed": "cross_word_perplexity"}[measure]
    if column not in table.column_names:
        return []
    place = {name: number for number, name in enumerate(job.corpus.users)}
    user = np.array([place[name] for name in table["user"].to_pylist()])
    words = table["words"].to_numpy()
    nats = np.log(table[column].to_numpy()) * words
    return [Entry.of(1, user, nats, words, job.corpus.manifest.users)]


def _value(book: Ledger) -> float:
    """The logarithm of what the ledger comes to."""
    return float(sum(e.sign * e.nats.sum() / e.words.sum() for e in book))


def _resampled(book: Ledger, times: NDArray[np.int64]) -> NDArray[np.float64]:
    """The same for samples of users, ``times`` [samples, users] in each."""
    with np.errstate(invalid="ignore"):  # a sample may have none of who wrote it
        values: NDArray[np.float64] = sum(  # type: ignore[assignment]
            entry.sign * (times @ entry.nats) / (times @ entry.words) for entry in book
        )
    return values


def difference(
    lower: Group, higher: Group, measure: Shown, higher_measure: Shown, seed: int = 0
) -> Difference | None:
    """By what factor the first is the second, less one; None: they have no seed in common.

    The interval is bootstrapped over users and seeds: a sample has the same users, and the same
    seeds, on both sides, so that what makes users hard or easy for both does not count.
    """
    ours, theirs = ({job.seed: job for job in group.jobs} for group in (lower, higher))
    pairs = [
        (ledger(ours[s], measure), ledger(theirs[s], higher_measure))
        for s in sorted(ours.keys() & theirs.keys())
    ]
    pairs = [pair for pair in pairs if all(pair)]
    if not pairs:
        return None
    generator = np.random.default_rng(seed)
    users, drawn = len(pairs[0][0][0].nats), []
    writers = np.flatnonzero(sum(entry.words for book in pairs[0] for entry in book))
    for _ in range(RESAMPLES // AT_ONCE):
        chosen = generator.integers(0, len(writers), (AT_ONCE, len(writers)))
        times = np.zeros((AT_ONCE, users), np.int64)
        for row, sample in zip(times, chosen, strict=True):
            row[writers] = np.bincount(sample, minlength=len(writers))
        by_seed = np.stack([_resampled(a, times) - _resampled(b, times) for a, b in pairs])
        seeds = generator.integers(0, len(pairs), (len(pairs), AT_ONCE))
        drawn.append(np.take_along_axis(by_seed, seeds, 0).mean(0))
    change = np.mean([_value(a) - _value(b) for a, b in pairs])
    low, high = np.nanquantile(np.concatenate(drawn), [0.025, 0.975])
    return Difference(*(float(np.expm1(value)) for value in (change, low, high)))


def compute(job: Job) -> dict[str, float]:
    """Gradient steps, tokens trained on, and seconds of a run that is done."""
    if job.kind == "play":
        return Outcome.read(job.folder).compute
    origin: dict[str, Any] = read_card(job.model).origin
    epochs = origin["history"]
    posts = job.corpus.manifest.posts["train" if job.kind == "offline" else "pretrain"]
    training: Training = getattr(job.settings, job.kind)
    return {
        "gradient steps": len(epochs) * -(-posts // training.posts),
        "tokens trained on": sum(epoch["tokens"] for epoch in epochs),
        "seconds": sum(epoch["seconds"] for epoch in epochs),
    }
