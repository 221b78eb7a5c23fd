"""A folder beside the result to work in: the result appears whole, or not at all."""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from firehose.errors import FirehoseError


@contextlib.contextmanager
def workspace(out: Path, replace: bool = False) -> Iterator[Path]:
    """A fresh folder; what is put into its ``result`` becomes ``out`` when the block ends well.

    A run that is killed leaves only its folder behind, hidden beside ``out``; the next run for
    the same ``out`` removes it. A folder that a living run is using is locked, and left alone.
    """
    if out.exists() and not replace:
        raise FirehoseError(f"{out} exists already; choose another --out or add --replace.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for leftover in out.parent.glob(f".{out.name}.partial-*"):
            _remove_unless_used(leftover)
        folder = out.parent / f".{out.name}.partial-{secrets.token_hex(4)}"
        folder.mkdir()
    except OSError as error:
        raise FirehoseError(f"Cannot write to {out.parent}: {error.strerror}.") from None
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
            _publish(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, out: Path) -> None:
    """Everything to disk first, then one rename."""
    for path in (folder / "result").rglob("*"):
        _sync(path)
    if out.exists():
        out.rename(folder / "replaced")
    (folder / "result").rename(out)
    _sync(out.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_unless_used(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    if not (folder / "lock").exists():  # killed before it was locked, or while being removed
        shutil.rmtree(folder, ignore_errors=True)
