"""Checksums of files, and the refusal of what does not match them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from firehose.errors import FirehoseError


class Record(BaseModel):
    """A part of the manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class File(Record):
    """What a file must be."""

    bytes: int
    sha256: str


def refuse_damage(folder: Path, files: Mapping[str, File], contents: bool, remedy: str) -> None:
    """Refuse a folder whose files are missing or cut, or (``contents``) altered."""
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
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
