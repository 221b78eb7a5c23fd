"""Find files, decompress them and divide them into lines, for all sources that read files."""

import bz2
import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from firehose.errors import FirehoseError

MAX_RECORD_BYTES = 1 << 22  # a file without line ends must not fill the memory
_CHUNK = 1 << 16


class DamagedError(Exception):
    """A file or archive member ends early or is corrupt, after what could be read of it."""


def find_files(
    paths: Sequence[str], known: Callable[[str], bool], wants: str, key: str = "source.paths"
) -> list[Path]:
    """The files that ``paths`` name, each once: files, folders (recursively, sorted) and globs.

    ``known`` says by its name whether a file can be read; a path without such a file is an error.
    ``wants`` says what can be read, and ``key`` is the name of the setting, both for the error.
    Hidden files in folders and globs are ignored.
    """
    if not paths:
        raise FirehoseError(f"{key} is empty: name {wants}.")
    found: dict[Path, None] = {}
    for name in paths:
        path = Path(name).expanduser().absolute()  # a worker may have another working directory
        if path.exists():
            tops = [path]
        elif any(letter in name for letter in "*?["):
            tops = sorted(top for top in _glob(path) if not top.name.startswith("."))
        else:
            raise FirehoseError(f"{name} in {key} does not exist: name {wants}.")
        files = [file for top in tops for file in _walk(top) if known(file.name)]
        if not files:
            raise FirehoseError(f"There is nothing to read in {name} of {key}: name {wants}.")
        found |= dict.fromkeys(files)
    return list(found)


def holds(path: Path, known: Callable[[str], bool]) -> bool:
    """Whether ``path`` is a known file, or a folder or glob with one among its first 1,000."""
    entries = _walk(path) if path.exists() else _glob(path.absolute())
    return any(known(entry.name) for entry in islice(entries, 1_000))


def _glob(path: Path) -> Iterator[Path]:
    root = Path(path.anchor)
    return root.glob(str(path.relative_to(root)))


def _walk(path: Path) -> Iterator[Path]:
    """A file, or those below a folder, in order, without hidden ones and those of a corpus."""
    if not path.is_dir():
        yield path
    for place, folders, files in os.walk(path):
        if "manifest.json" in files and "vocabulary.model" in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if not name.startswith("."))


def open_file(path: str) -> IO[bytes]:
    """Open a file for reading; raises a one-sentence error where that fails."""
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise FirehoseError(f"Cannot read {path}: {error.strerror}.") from None


def unpack(file: Any, name: str) -> Iterator[bytes]:
    """The content of an open file in chunks, decompressed according to the ending of ``name``.

    All compressed streams in a file are read. What comes before damage is yielded before the
    :class:`DamagedError`.
    """
    packing = Path(name).suffix.lower()
    try:
        if packing in (".gz", ".bz2", ".zst") and not file.peek(1):
            raise EOFError  # to gzip, an empty file would be a whole one
        if packing == ".zst":
            yield from _unpack_zstd(file)
            return
        if packing == ".gz":
            file = gzip.GzipFile(fileobj=file)
        elif packing == ".bz2":
            file = bz2.BZ2File(file)
        while chunk := file.read1(_CHUNK):  # read() would lose what came before an error
            yield chunk
    except Exception as error:  # EOFError, OSError, zlib.error …, by library
        raise DamagedError from error


def _unpack_zstd(file: IO[bytes]) -> Iterator[bytes]:
    """Decompress frame by frame, as zstandard's own reader does not notice a file that is cut."""
    import zstandard

    frames = zstandard.ZstdDecompressor(max_window_size=1 << 31)  # as Reddit's dumps need
    frame = frames.decompressobj()
    while chunk := file.read(1 << 10):  # small, as it may stand for 32 MiB, and nothing bounds that
        while chunk:
            if frame.eof:
                frame = frames.decompressobj()
            yield frame.decompress(chunk)
            chunk = frame.unused_data
    if not frame.eof:
        raise EOFError


class Overlong:
    """Stands for a line that is too long to be kept; ``len`` tells how long it was."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


Line = bytes | Overlong


def lines(
    chunks: Iterable[bytes], max_bytes: int = MAX_RECORD_BYTES, end: bytes = b"\n"
) -> Iterator[Line]:
    """The lines in ``chunks``, without line ends; one over ``max_bytes`` is an Overlong.

    The time is linear in the bytes, and no more than ``max_bytes`` and a chunk are held.
    """
    begun = bytearray()  # what is there of a line whose end has not come yet
    size = 0  # of that line, of which an overlong one is not kept
    for chunk in chunks:
        *whole, rest = chunk.split(end)
        if whole:
            if size:
                size += len(whole[0])
                if size <= max_bytes:
                    whole[0] = bytes(begun + whole[0])
                else:
                    yield Overlong(size)
                    del whole[0]
                begun.clear()
            if len(chunk) <= max_bytes:
                yield from whole
            else:
                yield from (x if len(x) <= max_bytes else Overlong(len(x)) for x in whole)
            size = 0
        size += len(rest)
        if size <= max_bytes:
            begun += rest
        else:
            begun.clear()
    if size:
        yield bytes(begun) if size <= max_bytes else Overlong(size)
