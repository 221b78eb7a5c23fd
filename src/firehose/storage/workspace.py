"""A folder beside the result to work in: the result appears whole, or not at all."""

import contextlib
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from firehose.errors import FirehoseError
from firehose.storage.files import sync


@contextlib.contextmanager
def workspace(out: Path, replace: bool = False) -> Iterator[Path]:
    """A fresh folder; what is put into its ``result`` becomes ``out`` when the block ends well.

    A run that is killed leaves only its folder behind, hidden beside ``out``; the next run for
    the same ``out`` removes it. A folder that a living run is using is locked, and left alone.
    """
    folder = out.parent / f".{out.name}.partial-{secrets.token_hex(4)}"
    lock = None
    try:  # from here on, so that Ctrl-C leaves nothing behind at any moment
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with _locked(out.parent):  # or another run could take a new folder for a leftover
                hexadecimal = "[0-9a-f]" * 8
                for leftover in out.parent.glob(f".{glob.escape(out.name)}.partial-{hexadecimal}"):
                    _clear(leftover, out)
                refuse_existing(out, replace)
                folder.mkdir()
                lock = os.open(folder, os.O_RDONLY)
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise FirehoseError(f"Cannot write to {out.parent}: {error.strerror}.") from None
        yield folder
        _publish(folder, out, replace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def refuse_existing(out: Path, replace: bool) -> None:
    """Overwrite nothing unasked."""
    if out.exists() and not replace:
        raise FirehoseError(f"{out} exists already; choose another --out or add --replace.")


def _publish(folder: Path, out: Path, replace: bool) -> None:
    """Everything to disk first, then a rename."""
    result, replaced = folder / "result", folder / "replaced"
    for path in (result, *result.rglob("*")):
        sync(path)
    with _locked(out.parent):
        refuse_existing(out, replace)  # it may have appeared meanwhile
        if out.exists():
            out.rename(replaced)
        try:
            result.rename(out)
        except OSError:
            _restore(folder, out)
            raise
    sync(out.parent)


def _restore(folder: Path, out: Path) -> None:
    """Undo a replacement that ended half-way: the old corpus was moved, the new one was not."""
    if (folder / "replaced").exists() and not out.exists():
        (folder / "replaced").rename(out)


def _clear(folder: Path, out: Path) -> None:
    """Remove the folder of a run that is dead."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # it lives
    else:
        _restore(folder, out)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
