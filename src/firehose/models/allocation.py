"""Freed memory stays with the process, so that the next step need not ask the system for it."""

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of glibc's mallopt
MOST = 2**31 - 1


def keep_memory() -> None:
    """Keep freed memory instead of returning it to the system, where the C library can.

    Each large tensor of a step would otherwise be fresh memory that the system fills with zeros
    page by page, several times a step. For programs that train; a library must not decide this
    for others, so it is not done on import.
    """
    with contextlib.suppress(OSError, AttributeError):  # another system, or another C library
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(MMAP_MAX, 0)
        library.mallopt(TRIM_THRESHOLD, MOST)
