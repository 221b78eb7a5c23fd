"""Streams of tasks made from a data set, as Aljundi et al. (2019) made them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.batch import UniformBatch
from firehose.data.pictures.files import CLASSES, DataSet, Pictures
from firehose.data.stream import BatchStream

Order = Literal["fixed", "random"]  # of tasks


class Benchmark(NamedTuple):
    """A data set, and how tasks are made of it.

    Disjoint tasks have classes of their own; permuted ones have all classes, and the pixels of
    each task are put in another order.
    """

    title: str
    data: str  # the name of the data set
    kind: Literal["disjoint", "permuted"]
    tasks: int
    samples: int  # training pictures of each task, drawn at random


BENCHMARKS = {
    "disjoint-mnist": Benchmark("Disjoint MNIST", "mnist", "disjoint", 5, 1_000),
    "permuted-mnist": Benchmark("Permuted MNIST", "mnist", "permuted", 10, 1_000),
    "disjoint-cifar": Benchmark("Disjoint CIFAR", "cifar10", "disjoint", 5, 10_000),
    "disjoint-fashion": Benchmark("Disjoint Fashion-MNIST", "fashion-mnist", "disjoint", 5, 1_000),
}


class PictureStream(BatchStream):
    """The training pictures, task after task, in batches that do not mix tasks."""

    def __init__(self, tasks: Sequence[UniformBatch], size: int) -> None:
        self._tasks = tasks
        self._ends = np.cumsum([len(pictures) for pictures in tasks], dtype=np.int64)
        super().__init__(int(self._ends[-1]), size)

    def __len__(self) -> int:
        left = np.diff(self._ends.clip(self.position), prepend=self.position)  # in each task
        return int((-(-left // self.size)).sum())

    def _stop(self, start: int) -> int:
        return min(start + self.size, int(self._ends[self._task_of(start)]))

    def _batch(self, start: int, stop: int) -> UniformBatch:
        task = self._task_of(start)
        first = int(self._ends[task]) - len(self._tasks[task])
        return self._tasks[task].select(np.arange(start - first, stop - first))

    def _task_of(self, position: int) -> int:
        return int(np.searchsorted(self._ends, position, side="right"))


class Tasks(NamedTuple):
    """The pictures that each task is learned from, and those it is tested on."""

    train: list[UniformBatch]
    test: list[UniformBatch]
    train_pixels: NDArray[np.uint8]  # [pictures, pixels], all training pictures of the data set

    def stream(self, size: int) -> PictureStream:
        """Task after task, in batches of ``size`` pictures that do not mix tasks."""
        return PictureStream(self.train, size)

    @property
    def pixels(self) -> int:
        """How many pixels a picture has."""
        return int(self.train[0].lengths[0]) - 1


def make_tasks(benchmark: Benchmark, data: DataSet, seed: int, order: Order = "fixed") -> Tasks:
    """Make the tasks; the seed decides which pictures are seen, and in what order.

    The permutations of the pixels are the same for every seed, and the first task's pixels stay in
    their order. With ``order="random"`` the seed also decides the order of the tasks.
    """
    generator = np.random.default_rng([seed, 1])
    shuffled = np.random.default_rng(0)
    plain, classes = np.arange(data.train.pixels.shape[1]), np.arange(CLASSES)
    if benchmark.kind == "disjoint":
        kinds = [(plain, wanted) for wanted in np.split(classes, benchmark.tasks)]
    else:
        others = [shuffled.permutation(plain) for _ in range(benchmark.tasks - 1)]
        kinds = [(places, classes) for places in (plain, *others)]
    if order == "random":
        kinds = [kinds[task] for task in np.random.default_rng([seed, 3]).permutation(len(kinds))]
    train: list[UniformBatch] = []
    test: list[UniformBatch] = []
    for task, (places, wanted) in enumerate(kinds):
        seen, held_out = (np.flatnonzero(np.isin(part.classes, wanted)) for part in data)
        chosen = seen[generator.permutation(len(seen))[: benchmark.samples]]
        for part, rows, posts in ((data.train, chosen, train), (data.test, held_out, test)):
            pictures = Pictures(part.pixels[rows][:, places], part.classes[rows])
            posts.append(as_posts(pictures, task))
    return Tasks(train, test, data.train.pixels)


def as_posts(pictures: Pictures, task: int) -> UniformBatch:
    """Each picture as a post by user ``task``, whose tokens are the pixels and last the class."""
    posts = len(pictures.classes)
    return UniformBatch.from_matrix(
        np.column_stack([pictures.pixels, pictures.classes]),
        np.full(posts, task, np.int32),
        np.zeros(posts, np.int64),
        np.ones(posts, np.int32),
    )
