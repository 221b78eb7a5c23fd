"""One way to lock a folder, so that two processes do not change it at the same time.

The lock is one of the operating system's on the folder itself (``flock``): it ends with the
process that holds it, however that ends, and leaves no file behind.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from firehose.errors import FirehoseError


class LockedError(FirehoseError):
    """Another process, or another part of this one, holds the lock."""


@contextlib.contextmanager
def locked(folder: Path, wait: bool) -> Iterator[None]:
    """Make a folder, if there is none, and hold its lock.

    Where another holds it, ``wait`` for as long as that takes, or raise a :class:`LockedError`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise FirehoseError(f"Cannot write to {folder}: {error.strerror}.") from None
    try:
        if wait:
            fcntl.flock(handle, fcntl.LOCK_EX)
        elif not _lock_at_once(handle):
            raise LockedError(f"{folder} is in use: the same run goes on elsewhere; wait for it.")
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether somebody holds the lock of a folder; nobody does where there is none."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _lock_at_once(handle: int) -> bool:
    """Try for a fifth of a second: :func:`is_locked` holds a lock, too, but only for a moment."""
    for _ in range(10):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False
