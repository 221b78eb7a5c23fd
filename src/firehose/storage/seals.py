"""Checksums of files, and errors for files that do not match them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from firehose.errors import FirehoseError


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
