"""A game with pictures: eight methods, and what they know of every task as the stream goes on."""

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from firehose.batch import Batch
from firehose.classic.files import CLASSES
from firehose.classic.gem import GEM
from firehose.classic.icarl import Exemplars, ICaRL
from firehose.classic.tasks import Benchmark, Tasks
from firehose.config import Section
from firehose.learning.buffers import make_buffer
from firehose.learning.game import play
from firehose.learning.learners import LEARNERS, Learner
from firehose.learning.optimizers import ConGraD, OnlineGD, Optimizer
from firehose.learning.slots import Buffer, BufferPlan, Strategy
from firehose.models.perceptron import Perceptron, Start, Tone, named
from firehose.models.sgd import SGD

HIDDEN = (100, 100)
POINTS = 20  # of a curve of accuracies, beside the ends of tasks
AT_ONCE = 1000  # pictures that are tested at once
ALONE = ("online-only", "gem")  # learn from the stream's pictures, without remembered ones

METHODS = {  # learner, and optimizer
    "GEM": ("gem", "online-gd"),
    "iCaRL": ("icarl", "online-gd"),
    "GD online": ("online-only", "online-gd"),
    "GD replay": ("replay-only", "online-gd"),
    "GD mixed": ("mixed-replay", "online-gd"),
    "ConGraD online": ("online-only", "congrad"),
    "ConGraD replay": ("replay-only", "congrad"),
    "ConGraD mixed": ("mixed-replay", "congrad"),
}


class Protocol(Section):
    """What is the same for all methods; what the paper leaves open is chosen here."""

    pixels: Literal["share", "standard"] = "share"  # of 255; or with mean 0 and deviation 1
    weights: Start = "xavier"
    posts: int = Field(default=10, ge=1)  # of a round
    step_size: int = Field(default=20, ge=2)  # of a step; mixed replay remembers half of it
    memory: int = Field(default=300, ge=0)  # pictures in all
    memory_strategy: Strategy = "stratified"
    validation: int = Field(default=50, ge=0)  # pictures that ConGraD holds back
    validation_strategy: Strategy = "stratified"
    steps: int = Field(default=3, ge=1)  # of a round, at most
    online_steps: int = Field(default=1, ge=1)  # of online only and GEM, with Online GD
    zero: bool = True  # whether no step at all is a candidate of ConGraD, too
    gem_memory: int = Field(default=60, ge=1)  # pictures of each task
    gem_margin: float = Field(default=0.5, ge=0)
    icarl_pace: float = Field(default=2.0, gt=0)  # its rate is so many times the others'
    icarl_strength: float = Field(default=1.0, ge=0)  # of its reminders
    rate: float | None = Field(default=None, gt=0)  # if not the benchmark's


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
        """How far each earlier task has fallen from its best, on average."""
        best = [self.accuracy[end:, task].max() for task, end in enumerate(self.ends)]
        return float((best - self.accuracy[-1])[:-1].mean())

    @property
    def forward(self) -> float:
        """How much better than at the start each task is just before it begins, on average."""
        before = [self.accuracy[end, task + 1] for task, end in enumerate(self.ends[:-1])]
        return float((before - self.accuracy[0, 1:]).mean())


class Parts(NamedTuple):
    """What a game with pictures is made of."""

    model: Perceptron
    learner: Learner
    optimizer: Optimizer
    memory: Buffer
    classify: Callable[[Batch], NDArray[np.int64]]


def make_parts(
    benchmark: Benchmark, tasks: Tasks, method: str, seed: int, protocol: Protocol
) -> Parts:
    """The parts of one of the eight methods."""
    name, optimizer = METHODS[method]
    tone = tasks.standard if protocol.pixels == "standard" else Tone()
    model = Perceptron(tasks.pixels, CLASSES, HIDDEN, seed, tone, protocol.weights)
    width = tasks.pixels + 1
    rate = benchmark.rate if protocol.rate is None else protocol.rate
    rule = SGD(model, rate * protocol.icarl_pace if name == "icarl" else rate)
    is_short = name in ALONE and optimizer == "online-gd"
    steps = protocol.online_steps if is_short else protocol.steps
    held = BufferPlan(strategy=protocol.validation_strategy, posts=protocol.validation)
    descent: Optimizer = (
        ConGraD(rule, steps, make_buffer(held, width), protocol.validation, protocol.zero)
        if optimizer == "congrad"
        else OnlineGD(rule, steps)
    )
    if name == "icarl":
        exemplars = Exemplars(model, protocol.memory, [len(posts) for posts in tasks.train])
        distilling = ICaRL(protocol.posts, protocol.icarl_strength)
        return Parts(model, distilling, descent, exemplars, exemplars.classify)
    if name == "gem":
        ring = make_buffer(BufferPlan(per_user=protocol.gem_memory), width)
        projecting = GEM(protocol.posts, protocol.gem_margin)
        return Parts(model, projecting, descent, ring, likeliest(model))
    size = protocol.posts if name in ALONE else protocol.step_size
    plan = BufferPlan(strategy=protocol.memory_strategy, posts=protocol.memory)
    return Parts(model, LEARNERS[name](size), descent, make_buffer(plan, width), likeliest(model))


def run(benchmark: Benchmark, tasks: Tasks, method: str, seed: int, protocol: Protocol) -> Played:
    """Play all tasks, one after another, once."""
    parts = make_parts(benchmark, tasks, method, seed, protocol)
    ends = np.cumsum([len(posts) for posts in tasks.train])
    looks = np.union1d(np.linspace(0, ends[-1], POINTS + 1).astype(int), ends)
    done, seen, accuracy = 0, [0], [test(parts.classify, tasks)]
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
            accuracy.append(test(parts.classify, tasks))
            seconds["test"] += time.perf_counter() - begun
    points = np.searchsorted(seen, ends)
    counts = np.bincount(kept).tolist()
    return Played(np.array(seen), np.array(accuracy), points, counts, steps, seconds)


def test(classify: Callable[[Batch], NDArray[np.int64]], tasks: Tasks) -> list[float]:
    """The share of each task's test pictures that is named rightly."""
    shares = []
    for posts in tasks.test:
        cuts = range(AT_ONCE, len(posts), AT_ONCE)
        parts = [posts.select(part) for part in np.split(np.arange(len(posts)), cuts)]
        right = sum(int((classify(part) == named(part).numpy()).sum()) for part in parts)
        shares.append(right / len(posts))
    return shares


def likeliest(model: Perceptron) -> Callable[[Batch], NDArray[np.int64]]:
    """The class that the model gives the most."""

    def classify(batch: Batch) -> NDArray[np.int64]:
        return np.asarray(model.outputs(batch).argmax(1))

    return classify
