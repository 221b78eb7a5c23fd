"""CIFAR-10: six binary batches, five to train on and one to test on.

Each picture of a batch is one byte for its class, then 1,024 bytes each for red, green and blue.
"""

from collections.abc import Sequence

import numpy as np

from firehose.data.pictures.files import DataSet, Pictures

BATCH = 10_000  # pictures in one file
PIXELS = 3 * 32 * 32


def read_cifar(contents: Sequence[bytes]) -> DataSet:
    """The data set in six binary batches, that of the test pictures last."""
    *train, test = map(read_batch, contents)
    joined = Pictures(*(np.concatenate(parts) for parts in zip(*train, strict=True)))
    return DataSet(joined, test)


def read_batch(content: bytes) -> Pictures:
    """The pictures of one binary batch."""
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return Pictures(rows[:, 1:], rows[:, 0])
