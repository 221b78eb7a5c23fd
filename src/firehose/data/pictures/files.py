"""The published files of MNIST, Fashion-MNIST and CIFAR-10, found in a folder by their checksums.

A folder may hold them as they were published, gzipped or not, at any depth: MNIST's and
Fashion-MNIST's four idx files, CIFAR-10's six binary batches (``data_batch_1.bin`` …
``test_batch.bin``).
"""

import gzip
import hashlib
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.config import read_toml, refuse_unknown
from firehose.errors import FirehoseError

CLASSES = 10  # of each of the data sets

# The MD5 sum of each published file, by data set.
SUMS: dict[str, dict[str, str]] = read_toml(Path(__file__).with_name("sums.toml"))


class Pictures(NamedTuple):
    """Pictures, and the class of each."""

    pixels: NDArray[np.uint8]  # [pictures, pixels]
    classes: NDArray[np.uint8]  # [pictures]


class DataSet(NamedTuple):
    """A data set with the two sets of pictures it was published with."""

    train: Pictures
    test: Pictures


def find_contents(name: str, folder: Path) -> list[bytes]:
    """The contents of the files of a data set, in the order of ``SUMS``, unpacked and checked.

    Raises an error where a file is missing, damaged, or not the published one.
    """
    refuse_unknown("data set", name, list(SUMS))
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise FirehoseError(
            f"{folder} {what}; `firehose classic fetch --out FOLDER` makes one with all data sets."
        )
    return [_content(folder, name, file, total) for file, total in SUMS[name].items()]


def _candidates(folder: Path, name: str, file: str) -> list[Path]:
    """Files of this name; those in a folder named after the data set come first."""
    found = [
        Path(place, each)
        for place, _, files in os.walk(folder, followlinks=True)
        for each in files
        if each in (file, f"{file}.gz")
    ]
    return sorted(found, key=lambda path: (name not in path.parts, str(path)))


def _content(folder: Path, name: str, file: str, total: str) -> bytes:
    """The content of the first file of this name whose MD5 sum is ``total``."""
    others = {sums.get(file) for other, sums in SUMS.items() if other != name}
    problems = []
    for path in _candidates(folder, name, file):
        try:
            content = _unpacked(path)
        except (OSError, EOFError, zlib.error):
            problems.append(f"{path} is damaged: it cannot be unpacked")
            continue
        found = md5(content)
        if found == total:
            return content
        if found not in others:  # Fashion-MNIST's files have the names of MNIST's
            problems.append(
                f"{path} is not the published {file}: its MD5 sum is {found} and not {total}"
            )
    if problems:
        raise FirehoseError(f"{problems[0]}; get it again.")
    raise FirehoseError(
        f"{folder} has no {file} of {name}; "
        f"`firehose classic fetch --out {folder} --data {name}` gets it."
    )


def md5(content: bytes) -> str:
    """The MD5 sum of a file's content, in hexadecimal."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content
