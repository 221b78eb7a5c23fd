"""Checksums of files, and errors for files that do not match them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from firehose.errors import FirehoseError


class Record(BaseModel):
    """A part of a manifest: immutable, and without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class File(Record):
    """The size and the checksum that a file must have."""

    bytes: int
    sha256: str


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
