"""Small benchmarks with pictures that can be learned from, and games with them."""

from pathlib import Path

import numpy as np
import pytest

from firehose.classic import experiment
from firehose.classic.experiment import Cell
from firehose.classic.methods import Protocol
from firehose.data.pictures.files import DataSet, Pictures
from firehose.data.pictures.tasks import BENCHMARKS, Benchmark

SMALL = Benchmark("Small", "mnist", "disjoint", 5, 40, 0.1)
PERMUTED = SMALL._replace(kind="permuted", tasks=3)
QUICK = Protocol(memory=20, validation=10)


def ten_classes() -> DataSet:
    """Each a bright place of its own in nine dim pixels and noise."""
    generator = np.random.default_rng(0)

    def some(count: int) -> Pictures:
        classes = (np.arange(count) % 10).astype(np.uint8)
        pixels = generator.integers(0, 60, (count, 12), dtype=np.uint8)
        pixels[np.arange(count), classes] += 190
        return Pictures(pixels, classes)

    return DataSet(some(800), some(200))


DATA = ten_classes()


def stay_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disjoint MNIST is small, and played in this process."""
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL)
    monkeypatch.setattr(experiment, "_data", lambda *_: DATA)

    def here(cells: list[Cell], arguments: tuple[Path, Protocol], _: object) -> object:
        return ((cell, experiment._play(cell, *arguments)) for cell in cells)

    monkeypatch.setattr(experiment, "_games", here)
