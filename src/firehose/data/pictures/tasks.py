"""Streams of tasks made from a data set, as Aljundi et al. (2019) made them."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.data.pictures.files import CLASSES, DataSet, Pictures
from firehose.models.perceptron import PixelScale

Order = Literal["fixed", "random"]  # of tasks


class Benchmark(NamedTuple):
    """A data set, and how it becomes tasks."""

    title: str
    data: str
    kind: Literal["disjoint", "permuted"]
    tasks: int
    samples: int  # of each task, drawn at random
    rate: float


BENCHMARKS = {
    "disjoint-mnist": Benchmark("Disjoint MNIST", "mnist", "disjoint", 5, 1_000, 0.05),
    "permuted-mnist": Benchmark("Permuted MNIST", "mnist", "permuted", 10, 1_000, 0.05),
    "disjoint-cifar": Benchmark("Disjoint CIFAR", "cifar10", "disjoint", 5, 10_000, 0.01),
    "disjoint-fashion": Benchmark(
        "Disjoint Fashion-MNIST", "fashion-mnist", "disjoint", 5, 1_000, 0.05
    ),
}


class Images(Batch):
    """Posts of the same length: a matrix, with a row for each."""

    def select(self, posts: NDArray[np.integer]) -> Self:
        """These posts, in this order."""
        if not len(self):
            return self
        matrix = self.tokens.reshape(len(self), -1)
        return self.of(matrix[posts], self.user[posts], self.time[posts], self.words[posts])

    def rows(self, longest: int) -> dict[str, NDArray[Any]]:
        """A row for each post in every column; they are as long as the memory is wide."""
        matrix = self.tokens.reshape(len(self), longest)
        return {"tokens": matrix, "user": self.user, "time": self.time, "words": self.words}

    @classmethod
    def of_rows(cls, rows: Mapping[str, NDArray[Any]]) -> Self:
        """The way back."""
        return cls.of(*(rows[name] for name in ("tokens", "user", "time", "words")))

    @classmethod
    def of(cls, matrix: NDArray[np.uint8], *columns: NDArray[Any]) -> Self:
        """From a row for each post, and the other columns."""
        posts, width = matrix.shape
        return cls(matrix.reshape(-1), np.arange(posts + 1, dtype=np.int64) * width, *columns)


class Tasks(NamedTuple):
    """What each task is learned from, and tested on."""

    train: list[Images]
    test: list[Images]
    whole: NDArray[np.uint8]  # the pixels of all training pictures of the data set

    def stream(self, size: int) -> Iterator[Batch]:
        """Task after task, in batches that do not mix them."""
        for posts in self.train:
            for start in range(0, len(posts), size):
                yield posts.select(np.arange(start, min(start + size, len(posts))))

    @property
    def standard(self) -> PixelScale:
        """With it, the data set's pixels have a mean of 0 and a deviation of 1."""
        return PixelScale.standard(self.whole)

    @property
    def pixels(self) -> int:
        """Of a picture."""
        return int(self.train[0].lengths[0]) - 1


def make_tasks(benchmark: Benchmark, data: DataSet, seed: int, order: Order = "fixed") -> Tasks:
    """The tasks; the seed decides which pictures are seen, and in what order.

    The permutations are the same for every seed, and the first one's is none. In random order,
    the seed decides which task comes when.
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
    train: list[Images] = []
    test: list[Images] = []
    for task, (places, wanted) in enumerate(kinds):
        seen, held_out = (np.flatnonzero(np.isin(part.classes, wanted)) for part in data)
        chosen = seen[generator.permutation(len(seen))[: benchmark.samples]]
        for part, rows, posts in ((data.train, chosen, train), (data.test, held_out, test)):
            pictures = Pictures(part.pixels[rows][:, places], part.classes[rows])
            posts.append(as_posts(pictures, task))
    return Tasks(train, test, data.train.pixels)


def as_posts(pictures: Pictures, task: int) -> Images:
    """A picture is a post of its task: its pixels, and last its class."""
    posts = len(pictures.classes)
    return Images.of(
        np.column_stack([pictures.pixels, pictures.classes]),
        np.full(posts, task, np.int32),
        np.zeros(posts, np.int64),
        np.ones(posts, np.int32),
    )
