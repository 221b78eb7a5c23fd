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
from firehose.storage.files import make_folder


class LockedError(FirehoseError):
    """Another process, or another part of this one, holds the lock."""


@contextlib.contextmanager
def locked(folder: Path, wait: bool) -> Iterator[None]:
    """Make a folder, if there is none, and hold its lock: nobody else changes what is in it.

    Where another holds it, ``wait`` for as long as that takes, or raise a :class:`LockedError`.
    """
    handle = _open(folder)
    try:
        while True:
            if wait:
                fcntl.flock(handle, fcntl.LOCK_EX)
            elif not _lock_at_once(handle, fcntl.LOCK_EX):
                raise _in_use(folder)
            if _is_at(handle, folder):
                break
            os.close(handle)  # the folder was replaced by another one meanwhile
            handle = _open(folder)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Keep everybody from changing a folder while it is read; others may read it, too.

    Raises a :class:`LockedError` where somebody is changing it. Where there is none, nobody is.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        if not _lock_at_once(handle, fcntl.LOCK_SH):
            raise _in_use(folder)
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
        return not _lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _open(folder: Path) -> int:
    try:
        make_folder(folder)
        return os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise FirehoseError(f"Cannot write to {folder}: {error.strerror}.") from None


def _is_at(handle: int, folder: Path) -> bool:
    """Whether what was opened still is what the path leads to."""
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False


def _in_use(folder: Path) -> LockedError:
    return LockedError(f"{folder} is in use: another process is changing it; wait for it.")


def _lock_at_once(handle: int, kind: int) -> bool:
    """Try for a fifth of a second: :func:`is_locked` holds a lock, too, but only for a moment."""
    for _ in range(10):
        if _lock(handle, kind):
            return True
        time.sleep(0.02)
    return False


def _lock(handle: int, kind: int) -> bool:
    """Take a lock if it is free; returns whether it was."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
