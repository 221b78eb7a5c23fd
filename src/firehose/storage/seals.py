"""Checksums of files and of plain values, and errors for what does not match them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from firehose.errors import FirehoseError

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


def refuse_damage(folder: Path, files: Mapping[str, File], contents: bool, remedy: str) -> None:
    """Raise an error where a file of a folder is missing or cut, or, with ``contents``, altered.

    ``remedy`` tells the user what to do.
    """
    for name, file in files.items():
        path = folder / name
        how = ""
        if not path.is_file():
            how = f"{name} is missing"
        elif (size := path.stat().st_size) != file.bytes:
            how = f"{name} has {size:,} bytes instead of {file.bytes:,}"
        elif contents and sha256(path) != file.sha256:
            how = f"{name} does not match its checksum"
        if how:
            raise FirehoseError(f"{folder} is damaged: {how}; {remedy}.")


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
