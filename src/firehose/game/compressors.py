"""Compressors as predictors: how many bits they need for a text that comes a block at a time."""

import bz2
import importlib
import importlib.util
import lzma
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

import zstandard

from firehose.errors import FirehoseError

ORDER, MEMORY = 12, 512 << 20  # of PPMd: how far back it looks, and the bytes of its tables
WINDOW = 27  # of zstd: the logarithm of how many bytes it looks back


class Coder(Protocol):
    """A text in blocks goes in, a shorter one comes out."""

    def compress(self, data: bytes, /) -> bytes:
        """What can be written after one more block."""

    def flush(self) -> bytes:
        """The rest."""


class Compressor(NamedTuple):
    """A compressor by its name."""

    name: str
    program: str = ""  # one to be run; otherwise it is a library
    module: str = ""  # a library that may be missing
    is_simple: bool = False  # one that only finds repetitions: for tables, not for figures

    def is_installed(self) -> bool:
        """Whether it can be used on this machine."""
        if self.program:
            return shutil.which(self.program) is not None
        return not self.module or importlib.util.find_spec(self.module) is not None

    def bits(self, text: Iterable[bytes]) -> int:
        """The size of a text when it is compressed; memory does not grow with the text."""
        if self.program:
            return 8 * _zpaq(text)
        coder = _coder(self.name)
        return 8 * (sum(len(coder.compress(block)) for block in text) + len(coder.flush()))


COMPRESSORS = (
    Compressor("xz", is_simple=True),
    Compressor("zstd", is_simple=True),
    Compressor("bzip2", is_simple=True),
    Compressor(f"PPMd, order {ORDER}", module="pyppmd"),
    Compressor("zpaq -m5", program="zpaq"),
)


def _coder(name: str) -> Coder:
    match name.partition(",")[0]:
        case "xz":
            return lzma.LZMACompressor(preset=9 | lzma.PRESET_EXTREME)
        case "bzip2":
            return bz2.BZ2Compressor(9)
        case "zstd":
            chosen = zstandard.ZstdCompressionParameters.from_level(19, window_log=WINDOW)
            return zstandard.ZstdCompressor(compression_params=chosen).compressobj()
        case _:
            return _PPMd()


class _PPMd:
    """PPMd, variant H, which looks for the longest context that was seen before."""

    def __init__(self) -> None:
        encoder = importlib.import_module("pyppmd").Ppmd7Encoder(ORDER, MEMORY)
        self.compress, self.flush = encoder.encode, encoder.flush


def _zpaq(text: Iterable[bytes]) -> int:
    """The bytes of an archive with a text in it; zpaq reads files only, so one is written."""
    with tempfile.TemporaryDirectory(prefix="firehose-") as folder:
        place = Path(folder)
        with (place / "text").open("wb") as file:
            file.writelines(text)
        command = ["zpaq", "add", "archive.zpaq", "text", "-m5", "-t1"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise FirehoseError(f"zpaq failed: {why}.")
        return (place / "archive.zpaq").stat().st_size
