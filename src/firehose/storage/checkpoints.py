"""The state of a run on disk: a checkpoint is there whole or not at all."""

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from firehose.errors import FirehoseError
from firehose.storage import tensors
from firehose.storage.files import sync
from firehose.storage.locks import is_locked, locked
from firehose.storage.seals import sha256

SCHEMA = 2
MARK = "kept beside, as a"  # in place of a tensor or an array among the values of a state
KEPT = 2  # the newest, and the one before it


State = dict[str, Any]  # tensors, arrays and plain values, in tables of any depth


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
        return sorted(int(path.name[6:]) for path in self.folder.glob("state-*"))

    def write(self, number: int, state: State) -> None:
        """Write a checkpoint aside and rename it when it is whole; remove all but the newest."""
        aside, place = self.folder / "partial", self._place(number)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        arrays, values = pack(state)
        tensors.write(aside / "tensors.safetensors", arrays)
        seal = {"schema": SCHEMA, "sha256": sha256(aside / "tensors.safetensors")}
        (aside / "values.json").write_text(json.dumps(seal | {"values": values}))
        for path in (*aside.iterdir(), aside):
            sync(path)
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)
        sync(self.folder)
        self._drop(self.numbers()[:-KEPT])

    def read(self, number: int) -> State:
        """Read a checkpoint; raises an error where it is damaged or has another schema."""
        place = self._place(number)
        try:
            body = json.loads((place / "values.json").read_text())
            schema, seal, values = body["schema"], body["sha256"], body["values"]
        except (OSError, ValueError, KeyError, TypeError):
            raise self._damaged(place, "values.json cannot be read") from None
        if schema != SCHEMA:
            raise FirehoseError(
                f"{place} has checkpoint schema {schema}, this Firehose reads {SCHEMA}; "
                "begin again with --replace."
            )
        file = place / "tensors.safetensors"
        if not file.is_file() or sha256(file) != seal:
            raise self._damaged(place, "tensors.safetensors does not match its checksum")
        return unpack(tensors.read(file), values)

    def latest(self) -> State | None:
        """Read the newest checkpoint, if there is any."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def drop_after(self, number: int) -> None:
        """Remove the checkpoints that are newer than ``number``."""
        self._drop(each for each in self.numbers() if each > number)

    def drop_before(self, number: int) -> None:
        """Remove the checkpoints that are older than ``number``."""
        self._drop(each for each in self.numbers() if each < number)

    def drop_newest(self) -> None:
        """Remove the newest checkpoint; raises an error where there is none before it."""
        numbers = self.numbers()
        if len(numbers) < 2:
            raise FirehoseError(f"{self.folder} has no checkpoint before the newest.")
        self._drop(numbers[-1:])

    def _drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            shutil.rmtree(self._place(number))

    def _place(self, number: int) -> Path:
        return self.folder / f"state-{number:09d}"

    def _damaged(self, place: Path, how: str) -> FirehoseError:
        return FirehoseError(
            f"{place} is damaged: {how}; go on from the one before it with --previous, "
            "or begin again with --replace."
        )


def pack(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and arrays of a state by their paths, and all else as values of JSON.

    Where a tensor or an array was, the values say which of the two, in a table of its own.
    """
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for name, value in state.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            inner, values[name] = pack(value, f"{path}/")
            tensors |= inner
        elif isinstance(value, Tensor):
            tensors[path], values[name] = value, {MARK: "tensor"}
        elif isinstance(value, np.ndarray):
            tensors[path], values[name] = torch.from_numpy(np.array(value)), {MARK: "array"}
        else:
            values[name] = value
    return tensors, values


def unpack(tensors: Mapping[str, Tensor], values: Mapping[str, Any], prefix: str = "") -> State:
    """The state that ``pack`` took apart."""
    state: State = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if not isinstance(value, Mapping):
            state[name] = value
        elif MARK in value:
            state[name] = tensors[path] if value[MARK] == "tensor" else tensors[path].numpy()
        else:
            state[name] = unpack(tensors, value, f"{path}/")
    return state
