"""One way to append to a log, so that what counts on its content can tell whether it is there."""

import hashlib
import os
from pathlib import Path

from firehose.errors import FirehoseError
from firehose.storage.files import make_folder, sync, writing
from firehose.storage.seals import File

EMPTY = File(bytes=0, sha256=hashlib.sha256().hexdigest())
AT_ONCE = 1 << 20  # bytes that are read at once


class AppendLog:
    """A file that only grows, with the length and the checksum of all that was appended to it.

    It is opened at a seal: the file must begin with what the seal tells of, and what comes after
    that (from a process that stopped before it counted on it) is cut off. Nothing is on disk for
    certain before ``seal``.
    """

    def __init__(self, path: Path, seal: File = EMPTY) -> None:
        digest = _digest(path, seal.bytes)
        if digest is None or digest.hexdigest() != seal.sha256:
            raise FirehoseError(f"{path} is damaged: {unlike(path, seal)}.")
        self.path, self._size, self._digest = path, seal.bytes, digest
        with writing(path):
            make_folder(path.parent)
            with path.open("ab") as file:
                file.truncate(seal.bytes)
                os.fsync(file.fileno())
            sync(path.parent)

    def append(self, content: bytes) -> None:
        """Write at the end; where that fails, the end stays where it was."""
        with writing(self.path), self.path.open("r+b") as file:
            file.seek(self._size)
            file.write(content)
        self._size += len(content)
        self._digest.update(content)

    def seal(self) -> File:
        """Bring all that was appended to disk; returns its length and checksum."""
        with writing(self.path):
            sync(self.path)
        return File(bytes=self._size, sha256=self._digest.hexdigest())


def begins_with(path: Path, seal: File) -> bool:
    """Whether a log begins with what a seal tells of; an empty log need not exist."""
    digest = _digest(path, seal.bytes)
    return digest is not None and digest.hexdigest() == seal.sha256


def unlike(path: Path, seal: File) -> str:
    """In which way a log does not begin with what a seal tells of."""
    if not path.is_file():
        return f"{path.name} is missing"
    if (size := path.stat().st_size) < seal.bytes:
        return f"{path.name} has {size:,} bytes instead of {seal.bytes:,}"
    return f"{path.name} does not match its checksum"


def _digest(path: Path, size: int) -> "hashlib._Hash | None":
    """The SHA-256 of the first bytes of a file; None: it does not have so many."""
    digest, left = hashlib.sha256(), size
    if left and not path.is_file():
        return None
    if left:
        with path.open("rb") as file:
            while left and (part := file.read(min(left, AT_ONCE))):
                digest.update(part)
                left -= len(part)
    return None if left else digest
