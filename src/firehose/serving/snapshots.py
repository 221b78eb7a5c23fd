"""Snapshots: whole models that a learner publishes and a server takes up, never half of one."""

import re
import shutil
from pathlib import Path

from firehose.models.store import Trained, write
from firehose.storage.files import make_folder, sync, writing

KEPT = 2  # the newest, and the one that a server may still be reading
NAME = re.compile(r"snapshot-(\d{9,})")


class Snapshots:
    """The published models of a service, numbered in their order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def numbers(self) -> list[int]:
        """The numbers of the snapshots there are, the oldest first."""
        names = [NAME.fullmatch(path.name) for path in self.folder.glob("snapshot-*")]
        return sorted(int(name[1]) for name in names if name)

    def newest(self) -> int | None:
        """The number of the newest; None: there is none."""
        return max(self.numbers(), default=None)

    def place(self, number: int) -> Path:
        """The folder of a snapshot."""
        return self.folder / f"snapshot-{number:09d}"

    def publish(self, trained: Trained, kept: int = KEPT) -> int:
        """Write a model aside and rename it when it is whole; returns its number.

        All but the newest ``kept`` are removed.
        """
        number, aside = (self.newest() or 0) + 1, self.folder / "partial"
        with writing(self.folder):
            make_folder(self.folder)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            write(trained, aside)
            for path in (*aside.iterdir(), aside):
                sync(path)  # before the rename, which may be on disk earlier than what it names
            aside.rename(self.place(number))
            for old in self.numbers()[:-kept]:
                shutil.rmtree(self.place(old))
            sync(self.folder)
        return number
