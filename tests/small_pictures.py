"""Small benchmarks with pictures that can be learned from, and games with them."""

import hashlib
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firehose.data.pictures import files
from firehose.data.pictures.files import DataSet, Pictures
from firehose.data.pictures.tasks import BENCHMARKS, Benchmark

SMALL = Benchmark("Small", "mnist", "disjoint", 5, 40)
PERMUTED = SMALL._replace(title="Small, permuted", kind="permuted", tasks=3)
SMALL_BUFFERS = ["play.memory.posts=20", "play.optimizer.validation.posts=10"]


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


def idx_bytes(values: NDArray[Any]) -> bytes:
    """An idx file with these bytes."""
    head = struct.pack(f">2xBB{values.ndim}I", 8, values.ndim, *values.shape)
    return head + values.tobytes()


IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([7, 1], np.uint8)
SMALLEST = DataSet(
    Pictures(IMAGES.reshape(2, 12), LABELS), Pictures(IMAGES[::-1].reshape(2, 12), LABELS[::-1])
)


def write_mnist(folder: Path, monkeypatch: pytest.MonkeyPatch, data: DataSet = SMALLEST) -> Path:
    """Write files with the names of MNIST's into ``folder/raw``, and publish their checksums."""
    arrays = (data.train.pixels, data.train.classes, data.test.pixels, data.test.classes)
    contents = dict(zip(files.SUMS["mnist"], map(idx_bytes, arrays), strict=True))
    (folder / "raw").mkdir()
    for name, content in contents.items():
        (folder / "raw" / name).write_bytes(content)
    sums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setitem(files.SUMS, "mnist", sums)
    return folder


def small_mnist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files from which Disjoint and Permuted MNIST are small benchmarks."""
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL)
    monkeypatch.setitem(BENCHMARKS, "permuted-mnist", PERMUTED)
    folder.mkdir()
    return write_mnist(folder, monkeypatch, DATA)


def small_mnist_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, also for other processes that are started by the test."""
    made = small_mnist(folder, monkeypatch)
    code = f"""
from firehose.data.pictures import files, tasks
files.SUMS["mnist"] = {files.SUMS["mnist"]!r}
tasks.BENCHMARKS["disjoint-mnist"] = tasks.Benchmark(*{tuple(SMALL)!r})
tasks.BENCHMARKS["permuted-mnist"] = tasks.Benchmark(*{tuple(PERMUTED)!r})
"""
    (folder / "sitecustomize.py").write_text(code)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return made
