"""The state of a run on disk: a checkpoint is there whole or not at all.

A checkpoint counts on the logs of its run, which lie beside the folder of the checkpoints: it
states their lengths and checksums, and is of use only as long as they begin with just that.
"""

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from firehose.errors import FirehoseError
from firehose.progress import say
from firehose.storage import tensors
from firehose.storage.files import sync, write_whole, writing
from firehose.storage.locks import is_locked, locked
from firehose.storage.logs import begins_with, unlike
from firehose.storage.seals import File, refuse_damage, sealed, unsealed

SCHEMA = 3
MARK = "kept beside, as a"  # in place of a tensor or an array among the values of a state
KEPT = 2  # the newest, and the one before it
TENSORS, VALUES = "tensors.safetensors", "values.json"
NAME = re.compile(r"state-(\d{9,})(?:-(\d+))?")  # of a folder: number, and version if not the first
REMEDY = "begin again with --replace"

State = dict[str, Any]  # tensors, arrays and plain values, in tables of any depth
Logs = dict[str, File]  # what logs must begin with, by name


class Checkpoint(NamedTuple):
    """A state that was read, and the logs that belong to it."""

    place: Path
    state: State
    logs: Logs


class Checkpoints:
    """The checkpoints of one run, in a folder of their own that lasts as long as the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def held(self) -> AbstractContextManager[None]:
        """Make the folder, and lock it against other processes that would go on with the run."""
        return locked(self.folder, wait=False)

    def are_held(self) -> bool:
        """Whether a process is going on with the run right now."""
        return is_locked(self.folder)

    def numbers(self) -> list[int]:
        """The numbers of the checkpoints there are, the oldest first."""
        return sorted({_key(place)[0] for place in self.places()})

    def places(self) -> list[Path]:
        """The folders of the checkpoints there are, the oldest first."""
        found = [path for path in self.folder.glob("state-*") if NAME.fullmatch(path.name)]
        return sorted(found, key=_key)

    def write(
        self,
        number: int,
        state: State,
        logs: Mapping[str, File | Sequence[File]],
        kept: int = KEPT,
    ) -> None:
        """Write a checkpoint aside and rename it when it is whole; remove all but the newest.

        ``logs`` tells what the logs begin with, which must be on disk already; where it gives
        several seals, any of them will do. One of the same number is there until this one is.
        """
        aside, place = self.folder / "partial", self._free(number)
        arrays, values = pack(state)
        with writing(place):
            try:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir()
                tensors.write(aside / TENSORS, arrays)
                body = {
                    "schema": SCHEMA,
                    "tensors": File.of(aside / TENSORS).model_dump(),
                    "logs": {name: _dumped(seals) for name, seals in logs.items()},
                    "values": values,
                }
                write_whole(aside / VALUES, sealed(body))  # synchronises the folder, too
                aside.rename(place)
                sync(self.folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        self._drop(self.places()[:-kept])

    def read(self, place: Path) -> Checkpoint:
        """Read a checkpoint; raises an error where it, or a log that it counts on, is damaged."""
        file = place / VALUES
        body = unsealed(file.read_bytes()) if file.is_file() else None
        if body is None:
            raise FirehoseError(f"{place} is damaged: {VALUES} does not match its checksum.")
        if body["schema"] != SCHEMA:
            raise FirehoseError(
                f"{place} has checkpoint schema {body['schema']}, this Firehose reads {SCHEMA}."
            )
        whole = {TENSORS: File.model_validate(body["tensors"])}
        refuse_damage(place, whole, contents=True, remedy="it cannot be used")
        logs = {
            name: self._covered(place, name, [File.model_validate(seal) for seal in seals])
            for name, seals in body["logs"].items()
        }
        return Checkpoint(place, unpack(tensors.read(place / TENSORS), body["values"]), logs)

    def latest(self) -> Checkpoint | None:
        """Read the newest checkpoint that can be used; None: there are none at all.

        Says so where that is not the newest; raises an error where none can be used.
        """
        problems: list[str] = []
        for place in reversed(self.places()):
            try:
                found = self.read(place)
            except FirehoseError as error:
                problems.append(str(error))
                continue
            if problems:
                say(f"{problems[0]} The one before it, {place.name}, is taken instead.")
            return found
        if problems:
            raise FirehoseError(f"{problems[0]} There is no other to go on from; {REMEDY}.")
        return None

    def drop_newer(self, found: Checkpoint) -> None:
        """Remove the checkpoints that are newer than one that was read."""
        self._drop(place for place in self.places() if _key(place) > _key(found.place))

    def drop_after(self, number: int) -> None:
        """Remove the checkpoints whose number is higher than ``number``."""
        self._drop(place for place in self.places() if _key(place)[0] > number)

    def drop_newest(self) -> None:
        """Remove the newest checkpoint; raises an error where there is none before it."""
        places = self.places()
        if len(places) < 2:
            raise FirehoseError(f"{self.folder} has no checkpoint before the newest.")
        self._drop(places[-1:])

    def _drop(self, places: Iterable[Path]) -> None:
        for place in places:
            shutil.rmtree(place)
        sync(self.folder)

    def _free(self, number: int) -> Path:
        """A place for a checkpoint that comes after all others of the same number."""
        versions = [_key(place)[1] for place in self.places() if _key(place)[0] == number]
        version = f"-{max(versions) + 1}" if versions else ""
        return self.folder / f"state-{number:09d}{version}"

    def _covered(self, place: Path, name: str, seals: Sequence[File]) -> File:
        """The seal that a log begins with; raises an error where there is none."""
        log = self.folder.parent / name
        for seal in seals:
            if begins_with(log, seal):
                return seal
        raise FirehoseError(f"{place} counts on a log that is damaged: {unlike(log, seals[0])}.")


def _key(place: Path) -> tuple[int, int]:
    """The number of a checkpoint, and its version."""
    found = NAME.fullmatch(place.name)
    assert found is not None
    return int(found[1]), int(found[2] or 0)


def _dumped(seals: File | Sequence[File]) -> list[dict[str, Any]]:
    return [seal.model_dump() for seal in ([seals] if isinstance(seals, File) else seals)]


def pack(
    state: Mapping[str, Any], prefix: str = ""
) -> tuple[dict[str, Tensor | tensors.Blocks], dict[str, Any]]:
    """The tensors and arrays of a state by their paths, and all else as values of JSON.

    Where a tensor or an array was, the values say which of the two, in a table of its own.
    """
    found: dict[str, Tensor | tensors.Blocks] = {}
    values: dict[str, Any] = {}
    for name, value in state.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            inner, values[name] = pack(value, f"{path}/")
            found |= inner
        elif isinstance(value, Tensor):
            found[path], values[name] = value, {MARK: "tensor"}
        elif isinstance(value, np.ndarray):
            # torch takes it as it is, if it may be written to; a copy would take as much memory.
            is_fit = value.flags.writeable and value.flags.c_contiguous
            array = value if is_fit else np.array(value)
            found[path], values[name] = torch.from_numpy(array), {MARK: "array"}
        elif isinstance(value, tensors.Blocks):
            found[path], values[name] = value, {MARK: value.mark}
        else:
            values[name] = value
    return found, values


def unpack(found: Mapping[str, Tensor], values: Mapping[str, Any], prefix: str = "") -> State:
    """The state that ``pack`` took apart."""
    state: State = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if not isinstance(value, Mapping):
            state[name] = value
        elif MARK in value:
            state[name] = found[path] if value[MARK] == "tensor" else found[path].numpy()
        else:
            state[name] = unpack(found, value, f"{path}/")
    return state
