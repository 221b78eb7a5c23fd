"""Room for arrays that grow for as long as a game is played."""

import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

SMALL = 1 << 20  # bytes; less is not worth a question to the system
GROWTH = 1.1  # how much more room there is when an array is full


def zeros(rows: int, kind: DTypeLike) -> NDArray[Any]:
    """So many rows of zeros, in memory that goes back to the system when they are freed.

    What a program that trains frees otherwise stays with it (``keep_memory``): where a growing
    array was copied away, there would be a hole of its size.
    """
    like = np.zeros((1,), kind)  # a kind may be several numbers
    if rows * like.nbytes < SMALL or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(rows, kind)
    own = mmap.mmap(-1, rows * like.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(own, like.dtype).reshape(rows, *like.shape[1:])


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that goes back to the system when it is freed."""
    copy = zeros(array.size, array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


def with_room(array: NDArray[Any], needed: int, largest: int = 0) -> NDArray[Any]:
    """The array with room for so many numbers, of a kind that holds the largest of them."""
    kind = np.promote_types(array.dtype, np.min_scalar_type(largest)) if largest else array.dtype
    if needed <= len(array) and kind == array.dtype:
        return array
    size = max(needed, int(len(array) * GROWTH)) if needed > len(array) else len(array)
    room = zeros(size, kind)
    room[: len(array)] = array
    return room
