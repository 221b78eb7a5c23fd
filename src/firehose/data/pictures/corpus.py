"""Pictures as a corpus: the tasks of a benchmark are the users, its pictures the posts."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import field_validator

from firehose.config import Section, refuse_unknown
from firehose.data.pictures.cifar import read_cifar
from firehose.data.pictures.files import CLASSES, SUMS, DataSet, find_contents
from firehose.data.pictures.mnist import read_mnist
from firehose.data.pictures.tasks import BENCHMARKS, Order, PictureStream, make_tasks


class PicturePlan(Section):
    """Which benchmark is played, and the order of its tasks."""

    benchmark: str  # one of BENCHMARKS
    order: Order = "fixed"

    @field_validator("benchmark")
    @classmethod
    def _is_known(cls, benchmark: str) -> str:
        refuse_unknown("benchmark", benchmark, list(BENCHMARKS))
        return benchmark


class PictureCorpus:
    """The tasks of a benchmark, drawn from a data set with a seed; see :func:`open_pictures`."""

    def __init__(self, path: Path, plan: PicturePlan, seed: int, data: DataSet) -> None:
        benchmark = BENCHMARKS[plan.benchmark]
        tasks = make_tasks(benchmark, data, seed, plan.order)
        self.path = path
        self.plan = plan
        self.seed = seed
        self.name = plan.benchmark
        self.title = benchmark.title
        self.classes = CLASSES
        self.pixels = tasks.pixels  # of a picture
        self.task_sizes = tuple(map(len, tasks.train))  # training pictures of each task
        self.test = tasks.test  # test pictures of each task
        self.train_pixels = tasks.train_pixels  # of all training pictures, to standardize with
        self._train = tasks.train

    def stream(self, size: int) -> PictureStream:
        """The training pictures, task after task, in batches of ``size`` that do not mix tasks."""
        return PictureStream(self._train, size)

    def seal(self) -> str:
        """A checksum over the published files, the benchmark and the plan.

        The same wherever the files lie, and for every seed.
        """
        benchmark = BENCHMARKS[self.name]
        body = [SUMS[benchmark.data], benchmark._asdict(), self.plan.public()]
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def open_pictures(
    path: str | Path, plan: PicturePlan | Mapping[str, Any], seed: int = 0
) -> PictureCorpus:
    """Read the data set that a benchmark needs from the folder ``path``, and make its tasks.

    The seed decides which pictures are seen, and in what order. Raises an error where a file is
    missing or is not the published one.
    """
    plan = plan if isinstance(plan, PicturePlan) else PicturePlan.of(plan)
    data = read_data_set(BENCHMARKS[plan.benchmark].data, Path(path))
    return PictureCorpus(Path(path), plan, seed, data)


def read_data_set(name: str, folder: Path) -> DataSet:
    """A data set from a folder, every file compared with its published checksum."""
    contents = find_contents(name, folder)
    return read_cifar(contents) if name == "cifar10" else read_mnist(contents)
