"""What runs came to: values over seeds, and differences with their intervals."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from firehose.data.corpus import Corpus
from firehose.experiments.jobs import Job
from firehose.experiments.recipe import Shown
from firehose.game.assembly import AnyCorpus
from firehose.game.folder import read_run
from firehose.game.outcome import Outcome, TaskOutcome, read_outcome
from firehose.game.result import read_result
from firehose.game.scoring import Costs, Measure, Per, has_costs, read_costs
from firehose.game.settings import Kind
from firehose.game.totals import PERPLEXITY, Measured, Scale, Totals, samples
from firehose.report.words import number

Item = TypeVar("Item")

PLAIN: dict[Shown, Shown] = {  # the same for a run that has nothing to leave out
    "past-left-out": "past", "forgetting-left-out": "forgetting",
}  # fmt: skip
SMALL = 10  # perplexities under it are shown with more digits
LARGE = 1_000  # perplexities from it on with fewer, unless seeds agree on them


class Value(NamedTuple):
    """A number over seeds, measured here or published."""

    mean: float  # a perplexity is that of the average loss
    deviation: float | None = None  # of the runs' values; None: a single one
    scale: Scale = PERPLEXITY

    def __str__(self) -> str:
        """84.2 ± 0.7, or 1.034 for ratios and other small perplexities, or 1,708 ± 14."""
        places = 3 if self.scale is PERPLEXITY and self.mean < SMALL else 1
        if self.mean >= LARGE and (self.deviation or SMALL) >= SMALL:
            places = 0  # further digits would be false
        spread = "" if self.deviation is None else f" ± {self.deviation:.{places}f}"
        return number(self.mean, places) + spread


class Done(Hashable, Protocol):
    """A run that is over: a job's, or any other."""

    @property
    def kind(self) -> Kind:
        """A game, or a training."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""

    @property
    def corpus(self) -> AnyCorpus:
        """What was played on."""

    @property
    def seed(self) -> int:
        """The seed of everything random in it."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed, and are done."""

    facts: dict[str, str]
    jobs: tuple[Done, ...]

    def value(self, measure: Shown) -> Value | None:
        """The losses averaged, then made a perplexity; None: these runs do not have it."""
        found = self.totals(measure)
        if not found:
            return None
        values, scale = [each.value() for each in found], found[0].scale
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        mean = scale.value(np.mean([each.ratio() for each in found]))
        return Value(float(mean), deviation, scale)

    def totals(self, measure: Shown) -> list[Totals]:
        """Of each run that has the measure."""
        return [each for job in self.jobs if (each := totals(job, measure))]

    def posts(self) -> Outcome | None:
        """What came of games with posts, averaged over seeds; None: these are other runs."""
        found = [each for job in self.jobs if isinstance(each := outcome(job), Outcome)]
        return Outcome.mean(found) if found else None

    def tasks(self) -> list[TaskOutcome]:
        """What came of games with tasks, one for each seed; empty: these are other runs."""
        return [each for job in self.jobs if isinstance(each := outcome(job), TaskOutcome)]


def groups(jobs: list[Job]) -> list[Group]:
    """The jobs that are done, seeds together."""
    found = together((job for job in jobs if job.is_done), lambda job: json.dumps(job.facts))
    return [Group(members[0].facts, tuple(members)) for members in found.values()]


def together(items: Iterable[Item], key: Callable[[Item], str]) -> dict[str, list[Item]]:
    """The items with the same key, in their order."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


@cache
def outcome(job: Done) -> Outcome | TaskOutcome | None:
    """What came of a run that is done; None: it was not a game."""
    return read_outcome(job.folder) if job.kind == "play" else None


@cache
def totals(job: Done, measure: Shown) -> Totals | None:
    """What a run that is done came to, by user or by task; None: it has no such measure."""
    folder, corpus = job.folder, job.corpus
    if not isinstance(corpus, Corpus):
        return TaskOutcome.read(folder).totals(measure)
    if job.kind == "pretrain":
        return None
    users = corpus.manifest.users
    if measure in PLAIN and not _has_memories(job):
        measure = PLAIN[measure]
    file: Measure = "past-left-out" if measure in PLAIN else "past"
    match measure:
        case "old" | "recent" | "forgetting" | "forgetting-left-out" if has_costs(folder, file):
            old, recent = (half.totals(users=users) for half in _halves(folder, corpus, file))
            return {"old": old, "recent": recent}.get(measure, old.less(recent))
        case "balanced" | "per-token":
            per: Per = "user" if measure == "balanced" else "token"
            return read_costs(folder, corpus, "test").totals(per, users)
        case "online" | "past" | "past-left-out" | "validation" | "test" | "crossed" if has_costs(
            folder, measure
        ):
            return read_costs(folder, corpus, measure).totals(users=users)
        case _:
            return None


def _has_memories(job: Done) -> bool:
    """Whether a run may remember posts beside its model."""
    if job.kind != "play":
        return False
    predictor = read_run(job.folder).settings["play"].get("predictor", {"kind": "model"})
    return bool(predictor["kind"] != "model" and predictor.get("experts") != [])


def _halves(folder: Path, corpus: Corpus, measure: Measure) -> tuple[Costs, Costs]:
    """The older and the newer half of the past, by time."""
    past, time = read_costs(folder, corpus, measure), corpus.splits["train"].time
    is_old = past.time < (time[0] + time[-1]) / 2
    return past.select(is_old), past.select(~is_old)


def difference(
    lower: Group, higher: Group, measure: Shown, higher_measure: Shown, seed: int = 0
) -> Measured | None:
    """By what factor the first is the second, less one; of accuracies, the points between them.

    None: they have no seed or no units in common. The interval is bootstrapped over users (or
    tasks) and seeds: a sample has the same users, and the same seeds, on both sides, so that what
    makes users hard or easy for both does not count.
    """
    ours, theirs = ({job.seed: job for job in group.jobs} for group in (lower, higher))
    pairs = []
    for common in sorted(ours.keys() & theirs.keys()):
        one, other = totals(ours[common], measure), totals(theirs[common], higher_measure)
        if one and other and _units(one) == _units(other):
            pairs.append(one.less(other))
    return paired(pairs, seed) if pairs else None


def paired(pairs: Sequence[Totals], seed: int = 0) -> Measured:
    """The change that differences of totals come to, one for each seed, with its interval.

    It is bootstrapped over units and seeds.
    """
    generator, drawn = np.random.default_rng(seed), []
    for times in samples(pairs[0].units, generator):
        by_seed = np.stack([pair.ratios(times) for pair in pairs])
        seeds = generator.integers(0, len(pairs), by_seed.shape)
        drawn.append(np.take_along_axis(by_seed, seeds, 0).mean(0))
    change = np.mean([pair.ratio() for pair in pairs])
    low, high = np.nanquantile(np.concatenate(drawn), [0.025, 0.975])
    return Measured(*pairs[0].scale.change(np.array([change, low, high])).tolist())


def _units(found: Totals) -> tuple[str, int]:
    return found.scale.name, found.amount.shape[1]


def compute(job: Done) -> dict[str, float]:
    """Gradient steps, tokens trained on, and seconds of a run that is done."""
    found: dict[str, float] = read_result(job.folder)["compute"]
    return found


def seconds(spent: Mapping[str, float]) -> float:
    """Of all phases together."""
    return sum(value for name, value in spent.items() if name.startswith("seconds"))
