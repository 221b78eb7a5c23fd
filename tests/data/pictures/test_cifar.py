"""The binary batches of CIFAR-10."""

import numpy as np

from firehose.data.pictures.cifar import read_batch, read_cifar


def test_a_batch_is_a_class_and_its_pixels() -> None:
    rows = np.arange(2 * 3073, dtype=np.int64).reshape(2, 3073) % 251
    found = read_batch(rows.astype(np.uint8).tobytes())
    assert found.classes.tolist() == rows[:, 0].tolist()
    assert found.pixels.tolist() == rows[:, 1:].tolist()


def test_the_last_of_six_batches_is_the_test_set() -> None:
    batches = [bytes([number]) + bytes(3072) for number in range(6)]
    data = read_cifar(batches)
    assert data.train.classes.tolist() == [0, 1, 2, 3, 4]
    assert data.test.classes.tolist() == [5]
    assert data.train.pixels.shape == (5, 3072)
