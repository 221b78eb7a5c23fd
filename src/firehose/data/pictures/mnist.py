"""MNIST and Fashion-MNIST: four idx files, with the pictures and the classes of two sets.

An idx file is two zero bytes, a byte for the type of its values (8: unsigned bytes), a byte for
the number of dimensions, each dimension as a big-endian 32-bit integer, and then the values.
"""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from firehose.data.pictures.files import DataSet, Pictures
from firehose.errors import FirehoseError


def read_mnist(contents: Sequence[bytes]) -> DataSet:
    """The data set in four idx files: training pictures and classes, test pictures and classes."""
    images, labels, test_images, test_labels = map(read_idx, contents)
    return DataSet(Pictures(images, labels), Pictures(test_images, test_labels))


def read_idx(content: bytes) -> NDArray[np.uint8]:
    """The values of an idx file of bytes: ``[items]``, or ``[items, values of an item]``."""
    kind, dimensions = content[2], content[3]
    if content[:2] != b"\0\0" or kind != 8:
        raise FirehoseError("This is not an idx file of bytes.")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    return values.reshape(shape[0], -1) if dimensions > 1 else values
