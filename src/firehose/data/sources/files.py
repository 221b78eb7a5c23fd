"""Find files, decompress them and divide them into lines, for all sources that read files."""

import bz2
import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from firehose.errors import FirehoseError

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 24  # a file without line ends must not fill the memory


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
        inside = (file for top in tops for file in (_walk(top) if top.is_dir() else [top]))
        files = [file for file in inside if known(file.name)]
        if not files:
            raise FirehoseError(f"There is nothing to read in {name} of {key}: name {wants}.")
        found |= dict.fromkeys(files)
    return list(found)


def holds(path: Path, known: Callable[[str], bool]) -> bool:
    """Whether ``path`` is a known file, or a folder or glob with one among its first 1,000."""
    if path.is_dir():
        return any(known(Path(name).name) for name in islice(_names(path), 1_000))
    entries = [path] if path.exists() else _glob(path.absolute())
    return any(known(entry.name) for entry in islice(entries, 1_000))


def _glob(path: Path) -> Iterator[Path]:
    root = Path(path.anchor)
    return root.glob(str(path.relative_to(root)))


def _walk(folder: Path) -> list[Path]:
    return [Path(name) for name in _names(folder)]


def _names(folder: Path) -> Iterator[str]:
    """The files below a folder, in order, without hidden ones and those of a corpus."""
    for place, folders, files in os.walk(folder):
        if "manifest.json" in files and "vocabulary.model" in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (f"{place}/{name}" for name in sorted(files) if not name.startswith("."))


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
    while chunk := file.read(1 << 12):  # small, as nothing else bounds the decompressed size
        while chunk:
            if frame.eof:
                frame = frames.decompressobj()
            yield frame.decompress(chunk)
            chunk = frame.unused_data
    if not frame.eof:
        raise EOFError


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines in ``chunks``, without line ends; an overlong line is yielded in several parts."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        if len(rest) > _LONGEST_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest
