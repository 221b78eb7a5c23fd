"""One way to write a file: aside, brought to disk, then renamed, so that it appears whole."""

import contextlib
import ctypes
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from firehose.errors import FirehoseError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, even if the machine stops in between.

    Folders that are missing are made. The file gets the permissions that the umask leaves. Where
    it cannot be written, FirehoseError says why, and what was there before is there still.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with writing(path):
        make_folder(path.parent)
        try:
            write_through(beside, [content])
            beside.replace(path)
            sync(path.parent)
        finally:
            beside.unlink(missing_ok=True)


def write_through(path: Path, content: Iterable[Any]) -> None:
    """Write a file piece by piece, and bring its content to disk, but not its name."""
    with path.open("wb") as file:
        for piece in content:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def clear_leftovers(folder: Path) -> None:
    """Remove what processes that were killed have left of files that they were about to write.

    Only for a folder whose lock is held: what another process is writing is removed, too.
    """
    for path in folder.glob(f".*.{'[0-9a-f]' * 8}"):
        if path.is_file():
            path.unlink()


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing; their names are on disk afterwards."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        sync(each.parent)


def exchange(first: Path, second: Path) -> bool:
    """Let two folders change places at one moment; returns False where the system cannot do it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if call(here, os.fsencode(first), here, os.fsencode(second), swap) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):  # the file system cannot
        return False
    raise OSError(number, os.strerror(number), str(second))


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a sentence that says what cannot be written."""
    try:
        yield
    except OSError as error:
        raise FirehoseError(f"Cannot write {path}: {error.strerror or error}.") from None
