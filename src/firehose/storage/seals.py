"""Checksums of files and of plain values, and errors for what does not match them."""

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from firehose.errors import FirehoseError
from firehose.progress import announce
from firehose.storage.remembered import is_remembered, remember

# Files of up to so many bytes together are compared with their checksums whenever they are opened,
# which takes a fraction of a second; larger ones when they are opened for the first time.
SMALL = 256 * 2**20
SETTLED = 2 * 10**9  # nanoseconds after which another change to a file has another time

Content = bytes  # by another name, for File has a field of that one


class Record(BaseModel):
    """A part of a manifest: immutable, and without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class File(Record):
    """The size and the checksum that a file must have."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Those that a file has now."""
        return cls(bytes=path.stat().st_size, sha256=sha256(path))

    @classmethod
    def of_content(cls, content: Content) -> Self:
        """Those of a file with this content."""
        return cls(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def refuse_damage(
    folder: Path, files: Mapping[str, File], remedy: str, contents: bool | None = None
) -> None:
    """Raise an error where a file of a folder is missing, cut or altered.

    ``contents`` says whether contents are compared, not only sizes. By default those of a small
    folder are every time, and those of a large one once: that a file was whole is remembered for
    as long as it is not touched. ``remedy`` tells the user what to do.
    """
    for name, file in files.items():
        path = folder / name
        if not path.is_file():
            raise _damaged(folder, f"{name} is missing", remedy)
        if (size := path.stat().st_size) != file.bytes:
            how = f"{name} has {size:,} bytes instead of {file.bytes:,}"
            raise _damaged(folder, how, remedy)
    large = sum(file.bytes for file in files.values()) > SMALL
    if contents is False or (large and contents is None and _are_verified(folder, files)):
        return
    with announce(f"reading {folder} whole") if large else contextlib.nullcontext():
        for name, file in files.items():
            key = _key(folder / name, file)  # as it is before it is read
            if sha256(folder / name) != file.sha256:
                raise _damaged(folder, f"{name} does not match its checksum", remedy)
            if large and key:
                remember("verified", key, str(folder / name))


def _damaged(folder: Path, how: str, remedy: str) -> FirehoseError:
    return FirehoseError(f"{folder} is damaged: {how}; {remedy}.")


def _are_verified(folder: Path, files: Mapping[str, File]) -> bool:
    """Whether all files were once read whole, and nobody has touched them since."""
    keys = [_key(folder / name, file) for name, file in files.items()]
    return all(key and is_remembered("verified", key) for key in keys)


def _key(path: Path, file: File) -> str | None:
    """What is remembered of a file that matches its checksum.

    None where it was changed a moment ago: the next change might have the same time.
    """
    told = path.stat()
    if time.time_ns() - max(told.st_mtime_ns, told.st_ctime_ns) < SETTLED:
        return None
    untouched = [told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino]
    return seal_of([str(path.resolve()), *untouched, file.sha256])


def sha256(path: Path) -> str:
    """The SHA-256 checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal_of(values: Any) -> str:
    """The SHA-256 checksum of plain values; the order of the keys in tables does not matter."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def sealed(values: Mapping[str, Any]) -> bytes:
    """Plain values as JSON, with a checksum of them as the last entry, ``seal``."""
    seal = hashlib.sha256(json.dumps(values).encode()).hexdigest()
    return f"{json.dumps({**values, 'seal': seal}, indent=1)}\n".encode()


def unsealed(content: bytes) -> dict[str, Any] | None:
    """The values that ``sealed`` was given; None where a single byte is not as it was."""
    try:
        values = json.loads(content)
        del values["seal"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return values if sealed(values) == content else None
