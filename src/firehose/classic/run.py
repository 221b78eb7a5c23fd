"""A game with pictures, and what is known of every task as the stream goes on."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.classic.methods import Protocol, make_parts
from firehose.data.pictures.tasks import Benchmark, Tasks
from firehose.game.round import play
from firehose.models.perceptron import labels

POINTS = 20  # of a curve of accuracies, beside the ends of tasks
AT_ONCE = 1000  # pictures that are tested at once


class Played(NamedTuple):
    """What came of it."""

    seen: NDArray[np.int64]  # [points], pictures
    accuracy: NDArray[np.float64]  # [points, tasks]
    ends: NDArray[np.int64]  # [tasks], the point at which each task was over
    kept: list[int]  # rounds, by the number of steps kept
    steps: int  # taken, those that were taken back included
    seconds: dict[str, float]  # by phase

    @property
    def final(self) -> float:
        """The mean over the tasks' test sets, in the end."""
        return float(self.accuracy[-1].mean())

    @property
    def forgetting(self) -> float:
        """How far each earlier task has fallen from its best since it was over, on average."""
        best = [self.accuracy[end:, task].max() for task, end in enumerate(self.ends)]
        return float((best - self.accuracy[-1])[:-1].mean())

    @property
    def forward(self) -> float:
        """How much better than at the start each task is just before it begins, on average."""
        before = [self.accuracy[end, task + 1] for task, end in enumerate(self.ends[:-1])]
        return float((before - self.accuracy[0, 1:]).mean())


def run(benchmark: Benchmark, tasks: Tasks, method: str, seed: int, protocol: Protocol) -> Played:
    """Play all tasks, one after another, once."""
    parts = make_parts(benchmark, tasks, method, seed, protocol)
    ends = np.cumsum([len(posts) for posts in tasks.train])
    looks = np.union1d(np.linspace(0, ends[-1], POINTS + 1).astype(int), ends)
    done, seen, accuracy = 0, [0], [accuracies(parts.classify, tasks)]
    kept, steps, seconds = [], 0, {"test": 0.0}
    generator = np.random.default_rng([seed, 2])
    for played in play(tasks.stream(protocol.posts), *parts[:4], generator):
        done += len(played.batch)
        kept.append(played.steps.kept)
        steps += played.steps.taken
        for phase, value in played.seconds.items():
            seconds[phase] = seconds.get(phase, 0.0) + value
        if ((seen[-1] < looks) & (looks <= done)).any():
            begun = time.perf_counter()
            seen.append(done)
            accuracy.append(accuracies(parts.classify, tasks))
            seconds["test"] += time.perf_counter() - begun
    points = np.searchsorted(seen, ends)
    counts = np.bincount(kept).tolist()
    return Played(np.array(seen), np.array(accuracy), points, counts, steps, seconds)


def accuracies(classify: Callable[[Batch], NDArray[np.int64]], tasks: Tasks) -> list[float]:
    """The share of each task's test pictures that is named rightly."""
    shares = []
    for posts in tasks.test:
        cuts = range(AT_ONCE, len(posts), AT_ONCE)
        parts = [posts.select(part) for part in np.split(np.arange(len(posts)), cuts)]
        right = sum(int((classify(part) == labels(part).numpy()).sum()) for part in parts)
        shares.append(right / len(posts))
    return shares
