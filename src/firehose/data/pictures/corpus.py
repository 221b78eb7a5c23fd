"""Pictures as a corpus: the tasks of a benchmark are the users, its pictures the posts."""

from functools import cached_property
from pathlib import Path

from pydantic import field_validator

from firehose.config import Section, refuse_unknown
from firehose.data.pictures.cifar import read_cifar
from firehose.data.pictures.files import CLASSES, SUMS, DataSet, find_contents
from firehose.data.pictures.mnist import read_mnist
from firehose.data.pictures.tasks import BENCHMARKS, Order, PictureStream, Tasks, make_tasks
from firehose.storage.seals import seal_of


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
    """The tasks of a benchmark, drawn from a data set with a seed; read when first needed.

    The seed decides which pictures are seen, and in what order.
    """

    def __init__(
        self, path: str | Path, plan: PicturePlan, seed: int = 0, data: DataSet | None = None
    ) -> None:
        self.path = Path(path)
        self.plan = plan
        self.seed = seed
        self.name = plan.benchmark
        self.data_name = BENCHMARKS[plan.benchmark].data
        self.title = BENCHMARKS[plan.benchmark].title
        self.classes = CLASSES
        self._data = data

    @cached_property
    def tasks(self) -> Tasks:
        """The pictures of each task; refuses files that are missing or not as published."""
        data = self._data or read_data_set(self.data_name, self.path)
        return make_tasks(BENCHMARKS[self.name], data, self.seed, self.plan.order)

    def check(self) -> None:
        """Refuse files that are missing or not as published."""
        if self._data is None:
            find_contents(self.data_name, self.path)

    @property
    def task_sizes(self) -> tuple[int, ...]:
        """The number of training pictures of each task."""
        return tuple(map(len, self.tasks.train))

    def stream(self, size: int) -> PictureStream:
        """The training pictures, task after task, in batches of ``size`` that do not mix tasks."""
        return self.tasks.stream(size)

    def seal(self) -> str:
        """A checksum over the published files, the benchmark and the plan.

        The same wherever the files lie, and for every seed.
        """
        benchmark = BENCHMARKS[self.name]
        return seal_of([SUMS[self.data_name], benchmark._asdict(), self.plan.public()])


def read_data_set(name: str, folder: Path) -> DataSet:
    """A data set from a folder, every file compared with its published checksum."""
    contents = find_contents(name, folder)
    return read_cifar(contents) if name == "cifar10" else read_mnist(contents)
