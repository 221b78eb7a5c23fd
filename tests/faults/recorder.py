"""Record what happens to the files below a folder, operation by operation.

Calls that order files on disk (``fsync``, renames, removals, new folders) are watched; before and
after each, all files are looked at, so that what libraries in other languages write is seen, too.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Any, NamedTuple, Self

WATCHED = ("rename", "replace", "unlink", "remove", "mkdir", "rmdir", "truncate", "ftruncate")
RECENT = 50_000_000  # nanoseconds within which a clock of files may stand still

Names = Mapping[str, int]  # the number of every file and folder, by its path


class Moment(NamedTuple):
    """The files after one operation, and what of them is on disk for certain.

    Names reach the disk in the order in which they were changed, as in a journal; when a folder is
    synchronised, so is every change of names up to the last one in that folder.
    """

    operation: str
    names: Names
    data: Mapping[int, bytes]  # of every file that there is or was; folders have none
    synced: Mapping[int, bytes]  # of every file that was ever synchronised, as it was then
    certain: int  # the moment whose names are on disk


class Recorder:
    """Within its ``with`` block, all that happens below ``root`` becomes ``moments``.

    What is there at the beginning is on disk.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.moments: list[Moment] = []
        self._numbers: dict[int, int] = {}  # of the inodes that are in use
        self._count = 0
        self._read: dict[int, tuple[int, int, int, bytes]] = {}
        self._changed: dict[int, int] = {}  # the last moment that changed the names in a folder
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        names, data = self._scan()
        self.moments = [Moment("begin", names, data, data, 0)]
        self._real = {name: getattr(os, name) for name in (*WATCHED, "fsync", "fdatasync")}
        for name in WATCHED:
            setattr(os, name, self._watched(name))
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._synchronising(name))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        self.look("end")

    def _watched(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.look("write")
            try:
                return self._real[name](*arguments, **options)
            finally:
                self.look(name)

        return call

    def _synchronising(self, name: str) -> Callable[[int], None]:
        def call(handle: int) -> None:
            self.look("write")
            self._real[name](handle)
            self._note_synced(os.fstat(handle).st_ino)

        return call

    def look(self, operation: str) -> None:
        """Note what has changed since the last look, one name after another where some are new."""
        names, data = self._scan()
        last = self.moments[-1]
        data = {**last.data, **data}
        if names == last.names and data == last.data:
            return
        shown = dict(last.names)
        if all(names.get(path) == number for path, number in shown.items()):
            for path in sorted(names.keys() - shown.keys(), key=names.__getitem__):
                shown[path] = names[path]
                self._add(last._replace(operation=f"{operation} {path}", names=dict(shown)), data)
        if shown != names or names == last.names:
            self._add(last._replace(operation=operation, names=names), data)

    def _add(self, moment: Moment, data: Mapping[int, bytes]) -> None:
        before, after = set(self.moments[-1].names.items()), set(moment.names.items())
        for path, _ in before ^ after:
            parent = str(Path(path).parent)
            for names in (self.moments[-1].names, moment.names):
                if parent in names:
                    self._changed[names[parent]] = len(self.moments)
        self.moments.append(moment._replace(data=data))

    def _note_synced(self, inode: int) -> None:
        number, last = self._numbers.get(inode), self.moments[-1]
        if number is None:  # somewhere else
            return
        if number in last.data:
            synced = {**last.synced, number: last.data[number]}
            moment = last._replace(synced=synced)
        else:
            certain = max(last.certain, self._changed.get(number, 0))
            moment = last._replace(certain=certain)
        path = next((path for path, each in last.names.items() if each == number), "removed")
        self.moments.append(moment._replace(operation=f"sync {path}"))

    def _scan(self) -> tuple[dict[str, int], dict[int, bytes]]:
        """The names of all files and folders, and what is in the files, right now."""
        found = {".": self.root.stat()}
        left = [""]
        while left:
            prefix = left.pop()
            with os.scandir(self.root / prefix) as entries:
                for entry in entries:
                    path = f"{prefix}{entry.name}"
                    found[path] = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        left.append(f"{path}/")
        names = self._number(found)
        files = {path: status for path, status in found.items() if S_ISREG(status.st_mode)}
        return names, {names[path]: self._content(path, names[path], files[path]) for path in files}

    def _number(self, found: Mapping[str, os.stat_result]) -> dict[str, int]:
        """A number for each inode, never used again, as those of the file system are."""
        inodes = {status.st_ino for status in found.values()}
        self._numbers = {inode: n for inode, n in self._numbers.items() if inode in inodes}
        for inode in sorted(inodes - self._numbers.keys()):
            self._numbers[inode] = self._count
            self._count += 1
        return {path: self._numbers[status.st_ino] for path, status in found.items()}

    def _content(self, path: str, number: int, status: os.stat_result) -> bytes:
        """What is in a file; it is read again if it may have changed."""
        seen = (status.st_mtime_ns, status.st_size)
        before = self._read.get(number)
        if before and before[:2] == seen and before[2] - seen[0] > RECENT:
            return before[3]
        self._read[number] = (*seen, time.time_ns(), (self.root / path).read_bytes())
        return self._read[number][3]
