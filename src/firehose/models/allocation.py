"""Memory that a step gives back stays with the process for the next step."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGE = 1 << 30


def keep_memory() -> None:
    """Keep freed memory instead of returning it to the system, where the C library can.

    Each large tensor of a step would otherwise be fresh memory that the system fills with zeros
    page by page, several times a step. The peak stays the same. For programs that train; a
    library must not decide this for others, so it is not done on import.
    """
    if sys.platform != "linux":
        return
    try:
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(MMAP_THRESHOLD, LARGE)
        library.mallopt(TRIM_THRESHOLD, LARGE)
    except (OSError, AttributeError):  # another C library
        return
