"""A folder to work in, beside the result, so that the result appears whole or not at all."""

import contextlib
import glob
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from firehose.errors import FirehoseError
from firehose.storage.files import exchange, sync
from firehose.storage.locks import LockedError, locked


@contextlib.contextmanager
def workspace(out: Path, replace: bool = False) -> Iterator[Path]:
    """A new folder; what is put into its ``result`` becomes ``out`` when the block ends well.

    An older ``out`` that is to be replaced is locked from the beginning: what is read from it in
    the block is what is replaced. A run that is killed leaves only its folder behind, hidden beside
    ``out``; the next run for the same ``out`` removes it. A folder that a living run is using is
    locked, and left alone.
    """
    folder = out.parent / f".{out.name}.partial-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as locks:
        try:  # from here on, so that Ctrl-C leaves nothing behind at any moment
            # Until the new folder is locked, another run could take it for a leftover.
            with locked(out.parent, wait=True):
                clear_workspaces(out)
                refuse_existing(out, replace)
                if replaces := out.is_dir():
                    locks.enter_context(locked(out, wait=False))
                locks.enter_context(locked(folder, wait=True))
            yield folder
            _publish(folder, out, replace, replaces)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        sync(out.parent)  # what was replaced does not come back


def refuse_existing(out: Path, replace: bool) -> None:
    """Raise an error where ``out`` exists and is not to be replaced."""
    if out.exists() and not replace:
        raise FirehoseError(f"{out} exists already; choose another --out or add --replace.")


def _publish(folder: Path, out: Path, replace: bool, is_held: bool) -> None:
    """Bring the result to disk, then rename it to ``out``, whose lock is held or there was none."""
    result = folder / "result"
    for path in (result, *result.rglob("*")):
        sync(path)
    refuse_existing(out, replace)  # it may have appeared meanwhile
    with contextlib.ExitStack() as locks:
        if out.is_dir() and not is_held:
            locks.enter_context(locked(out, wait=True))  # before the parent's: as everybody does
        locks.enter_context(locked(out.parent, wait=True))
        refuse_existing(out, replace)
        if not (out.exists() and exchange(result, out)):
            _move(folder, out)
    sync(out.parent)


def _move(folder: Path, out: Path) -> None:
    """Rename the result to ``out``; an older one is moved away, and is there again if that fails.

    In between there is neither; where two folders can be exchanged, that is not needed.
    """
    try:
        if out.exists():
            out.rename(folder / "replaced")
        (folder / "result").rename(out)
    except BaseException:  # Ctrl-C between the two, as well
        _restore(folder, out)
        raise


def _restore(folder: Path, out: Path) -> None:
    """Undo a replacement that ended half-way, with the old folder moved and no new one there."""
    if (folder / "replaced").exists() and not out.exists():
        (folder / "replaced").rename(out)


def clear_workspaces(out: Path) -> None:
    """Remove what killed runs for ``out`` have left beside it, or put back what they moved."""
    hexadecimal = "[0-9a-f]" * 8
    for leftover in out.parent.glob(f".{glob.escape(out.name)}.partial-{hexadecimal}"):
        _clear(leftover, out)


def _clear(folder: Path, out: Path) -> None:
    """Remove a folder that a killed run left behind, unless its run is still alive."""
    with contextlib.suppress(LockedError), locked(folder, wait=False):
        _restore(folder, out)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def unreplaced(folder: Path) -> Iterator[None]:
    """Refuse what was read from a folder in the block if another took its place meanwhile."""
    before = _identity(folder)
    try:
        yield
    finally:
        if _identity(folder) != before:
            raise FirehoseError(f"{folder} was replaced while it was read; try again.") from None


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        told = folder.stat()
    except OSError:
        return None
    return told.st_dev, told.st_ino
