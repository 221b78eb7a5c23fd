"""Download a file over HTTPS from one of several places, and go on where it was cut.

What arrives is kept in ``FILE.partial``. It is renamed to ``FILE`` only when its size and its MD5
sum are right, so that a file with that name is always the published one.
"""

import contextlib
import hashlib
import http.client
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from firehose.errors import FirehoseError, visible
from firehose.storage.files import sync, writing

PATIENCE = 20.0  # seconds without an answer, or without another byte
BLOCK = 2**18  # bytes read at a time

Arrived = Callable[[str, int], None]  # told a host, and how many bytes of the file are here


class Published(NamedTuple):
    """A file as it was published."""

    name: str
    size: int  # in bytes
    md5: str


class DownloadError(FirehoseError):
    """A file could not be had from any place; the sentence says why, place by place."""


class _PlaceError(Exception):
    """A place does not have the file, or has another one: there is no use in asking it again."""


class _CutError(Exception):
    """The connection ended before the file did: what has arrived is kept."""


def download(file: Published, places: Sequence[str], folder: Path, arrived: Arrived) -> Path:
    """Get ``folder/FILE`` from the first of the places that has it, and return its path.

    A partial file in the folder is continued, wherever it came from. Raises DownloadError where no
    place has the file; what has arrived stays in the folder.
    """
    whole, begun = folder / file.name, folder / f"{file.name}.partial"
    if whole.exists():
        return whole
    problems = []
    for place in places:
        host = urlsplit(place).hostname or place
        try:
            _get(place + file.name, begun, file, partial(arrived, host))
        except (_PlaceError, _CutError) as error:
            problems.append(f"{host} {error}")
            continue
        sync(begun)
        begun.rename(whole)
        sync(folder)
        return whole
    raise DownloadError(f"{file.name}: {', '.join(problems)}")


def _get(address: str, begun: Path, file: Published, arrived: Callable[[int], None]) -> None:
    """Complete a partial file from one address; raises an error unless it is the published one.

    A connection that is cut is opened again as long as it brings something. A file that was begun
    elsewhere and comes out wrong is fetched again from its beginning.
    """
    if _is_right(begun, file):
        return
    begun_elsewhere = begun.exists()
    while True:
        before = _size(begun)
        try:
            _receive(address, begun, file.size, arrived)
        except _CutError:
            if _size(begun) > before:
                continue
            raise
        if _is_right(begun, file):
            return
        begun.unlink()
        if not begun_elsewhere:
            raise _PlaceError("has another file of that name: its MD5 sum is not the published one")
        begun_elsewhere = False


def _receive(address: str, begun: Path, size: int, arrived: Callable[[int], None]) -> None:
    """Ask for what a partial file lacks, and append it; from the beginning, if that is sent."""
    there = _size(begun)
    if there >= size:  # all is there, and it is not the published file
        there = 0
    asked = Request(address, headers={"Range": f"bytes={there}-"} if there else {})
    with _problems():
        answer = urlopen(asked, timeout=PATIENCE)
    with answer:
        start = _start(answer.status, answer.headers.get("Content-Range", ""), there)
        told = answer.headers.get("Content-Length", "")
        if told.isdigit() and int(told) != size - start:
            raise _PlaceError(f"has another file of that name, of {start + int(told):,} bytes")
        _append(begun, start, size, _blocks(answer), arrived)


def _start(status: int, content_range: str, asked: int) -> int:
    """The place in the file at which an answer begins; 0 where the server knows no ranges."""
    if status != http.client.PARTIAL_CONTENT:
        return 0
    found = re.match(r"bytes (\d+)-", content_range)
    if not found or int(found[1]) != asked:
        raise _PlaceError("sent another part of the file than it was asked for")
    return asked


def _blocks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """What a server sends, block by block."""
    while True:
        with _problems():
            block = answer.read(BLOCK)
        if not block:
            return
        yield block


def _append(
    begun: Path, start: int, size: int, blocks: Iterator[bytes], arrived: Callable[[int], None]
) -> None:
    """Write blocks from ``start`` on, and nothing beyond ``size``, whatever is sent."""
    count = start
    with writing(begun), begun.open("r+b" if start else "wb") as file:
        file.seek(start)
        for block in blocks:
            file.write(block[: size - count])
            count = min(count + len(block), size)
            arrived(count)
            if count == size:
                return
    raise _CutError(f"ended the connection after {count:,} of {size:,} bytes")


@contextlib.contextmanager
def _problems() -> Iterator[None]:
    """Tell in a few words what is wrong with a connection."""
    try:
        yield
    except HTTPError as error:
        raise _PlaceError(f"answered with status {error.code}") from None
    except http.client.HTTPException as error:
        raise _CutError(f"did not speak HTTP ({visible(str(error)) or 'no answer'})") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        why = "no answer in time" if isinstance(reason, TimeoutError) else str(reason)
        raise _CutError(f"could not be reached ({visible(why)})") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_right(path: Path, file: Published) -> bool:
    """Whether a file has the published size and MD5 sum."""
    if _size(path) != file.size:
        return False
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False))
    return found.hexdigest() == file.md5
