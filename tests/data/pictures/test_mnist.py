"""The idx files of MNIST and Fashion-MNIST."""

import numpy as np
import pytest

from firehose.data.pictures.mnist import read_idx, read_mnist
from firehose.errors import FirehoseError
from small_pictures import IMAGES, LABELS, idx_bytes


def test_four_files_are_a_data_set() -> None:
    arrays = (IMAGES, LABELS, IMAGES[::-1], LABELS[::-1])
    data = read_mnist([idx_bytes(np.ascontiguousarray(each)) for each in arrays])
    assert data.train.pixels.tolist() == IMAGES.reshape(2, 12).tolist()
    assert data.train.classes.tolist() == [7, 1]
    assert data.test.pixels.tolist() == IMAGES[::-1].reshape(2, 12).tolist()
    assert data.test.classes.tolist() == [1, 7]


def test_dimensions_are_big_endian_and_come_before_the_values() -> None:
    content = b"\0\0\x08\x02" + b"\0\0\0\x02" + b"\0\0\0\x03" + bytes(range(6))
    assert read_idx(content).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_is_not_idx_is_refused() -> None:
    with pytest.raises(FirehoseError, match="not an idx file"):
        read_idx(b"\1\2\3\4\5\6\7\x08")
