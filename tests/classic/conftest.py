"""Pictures that can be learned from, and games with them in this process."""

from pathlib import Path

import numpy as np
import pytest

from firehose.classic import experiment
from firehose.classic.experiment import Cell
from firehose.classic.files import DataSet, Pictures
from firehose.classic.methods import Protocol
from firehose.classic.tasks import BENCHMARKS
from small_pictures import SMALL


@pytest.fixture(scope="module")
def data() -> DataSet:
    """Ten classes, each a bright place of its own in nine dim pixels and noise."""
    generator = np.random.default_rng(0)

    def some(count: int) -> Pictures:
        classes = (np.arange(count) % 10).astype(np.uint8)
        pixels = generator.integers(0, 60, (count, 12), dtype=np.uint8)
        pixels[np.arange(count), classes] += 190
        return Pictures(pixels, classes)

    return DataSet(some(800), some(200))


@pytest.fixture
def at_home(data: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disjoint MNIST is small, and played in this process."""
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL)
    monkeypatch.setattr(experiment, "_data", lambda *_: data)

    def here(cells: list[Cell], arguments: tuple[Path, Protocol], _: object) -> object:
        return ((cell, experiment._play(cell, *arguments)) for cell in cells)

    monkeypatch.setattr(experiment, "_games", here)
