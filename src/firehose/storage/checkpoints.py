"""The state of a run on disk: a checkpoint is there whole or not at all."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from firehose.errors import FirehoseError
from firehose.storage import tensors
from firehose.storage.files import sync
from firehose.storage.locks import is_locked, locked
from firehose.storage.seals import sha256

SCHEMA = 1
KEPT = 2  # the newest, and the one before it


class State(NamedTuple):
    """All that a run needs to go on from a checkpoint."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]  # what JSON can hold


class Checkpoints:
    """The checkpoints of one run, in a folder of their own that lasts as long as the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder, and lock it against other processes that would go on with the run."""
        with contextlib.ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.folder, wait=False))
            except OSError as error:
                raise FirehoseError(f"Cannot write to {self.folder}: {error.strerror}.") from None
            yield

    def are_held(self) -> bool:
        """Whether a process is going on with the run right now."""
        return is_locked(self.folder)

    def numbers(self) -> list[int]:
        """The numbers of the checkpoints there are, the oldest first."""
        return sorted(int(path.name[6:]) for path in self.folder.glob("state-*"))

    def write(self, number: int, state: State) -> None:
        """Write a checkpoint aside and rename it when it is whole; remove all but the newest."""
        aside, place = self.folder / "partial", self._place(number)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        tensors.write(aside / "tensors.safetensors", state.tensors)
        seal = {"schema": SCHEMA, "sha256": sha256(aside / "tensors.safetensors")}
        (aside / "facts.json").write_text(json.dumps(seal | {"facts": state.facts}))
        for path in (*aside.iterdir(), aside):
            sync(path)
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)
        sync(self.folder)
        for old in self.numbers()[:-KEPT]:
            shutil.rmtree(self._place(old))

    def read(self, number: int) -> State:
        """Read a checkpoint; raises an error where it is damaged or has another schema."""
        place = self._place(number)
        try:
            body = json.loads((place / "facts.json").read_text())
            schema, seal, facts = body["schema"], body["sha256"], body["facts"]
        except (OSError, ValueError, KeyError, TypeError):
            raise self._damaged(place, "facts.json cannot be read") from None
        if schema != SCHEMA:
            raise FirehoseError(
                f"{place} has checkpoint schema {schema}, this Firehose reads {SCHEMA}; "
                "begin again with --replace."
            )
        file = place / "tensors.safetensors"
        if not file.is_file() or sha256(file) != seal:
            raise self._damaged(place, "tensors.safetensors does not match its checksum")
        return State(tensors.read(file), facts)

    def latest(self) -> State | None:
        """Read the newest checkpoint, if there is any."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def drop_after(self, number: int) -> None:
        """Remove the checkpoints that are newer than ``number``."""
        for newer in [each for each in self.numbers() if each > number]:
            shutil.rmtree(self._place(newer))

    def drop_newest(self) -> None:
        """Remove the newest checkpoint; raises an error where there is none before it."""
        *earlier, newest = self.numbers() or [-1]
        if not earlier:
            raise FirehoseError(f"{self.folder} has no checkpoint before the newest.")
        shutil.rmtree(self._place(newest))

    def remove(self) -> None:
        """Remove the folder with all checkpoints."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _place(self, number: int) -> Path:
        return self.folder / f"state-{number:09d}"

    def _damaged(self, place: Path, how: str) -> FirehoseError:
        return FirehoseError(
            f"{place} is damaged: {how}; go on from the one before it with --previous, "
            "or begin again with --replace."
        )


def prefixed(prefix: str, part: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a part of the state, each under the name ``prefix/name``."""
    return {f"{prefix}/{name}": value for name, value in part.items()}


def part(prefix: str, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the part that :func:`prefixed` gave this prefix, under their own names."""
    start = f"{prefix}/"
    return {name.removeprefix(start): t for name, t in whole.items() if name.startswith(start)}
