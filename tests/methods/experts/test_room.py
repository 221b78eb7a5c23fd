"""Arrays with memory of their own are arrays like any other."""

import numpy as np
import pytest

from firehose.methods.experts.room import SMALL, copied, with_room, zeros


@pytest.mark.parametrize("rows", [0, 1, SMALL // 16, SMALL])
def test_zeros(rows: int) -> None:
    found = zeros(rows, np.dtype((np.uint16, (3,))))
    assert found.shape == (rows, 3) and found.dtype == np.uint16 and not found.any()
    found[:] = 7
    assert (found == 7).all()


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5,), (SMALL, 2)])
def test_a_copy_is_not_the_array(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    copy = copied(array)
    assert np.array_equal(copy, array) and copy.dtype == array.dtype
    copy[...] = -1
    assert (array >= 0).all()


@pytest.mark.parametrize("rows", [3, SMALL])
def test_room_for_more_and_larger_numbers(rows: int) -> None:
    array = np.arange(rows).astype(np.uint16)
    assert with_room(array, rows) is array
    longer = with_room(array, rows + 1)
    assert len(longer) > rows and longer.dtype == np.uint16
    wider = with_room(array, rows, 65536)
    assert wider.dtype == np.uint32 and len(wider) == rows
    for found in (longer, wider):
        assert np.array_equal(found[:rows], array) and not found[rows:].any()
