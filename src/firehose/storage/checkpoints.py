"""The state of a run on disk: each checkpoint is whole, or not there."""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from firehose.errors import FirehoseError
from firehose.storage import tensors
from firehose.storage.files import sync
from firehose.storage.seals import sha256

SCHEMA = 2
MARK = "kept beside, as a"  # in place of a tensor or an array among the values of a state
KEPT = 2  # the newest, and the one before it


State = dict[str, Any]  # tensors, arrays and plain values, in tables of any depth


class Checkpoints:
    """The checkpoints of one run in a folder that is its own as long as the run lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep others out."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise FirehoseError(f"Cannot write to {self.folder}: {error.strerror}.") from None
        try:
            if not _lock(handle):
                raise FirehoseError(
                    f"{self.folder} is in use: the same run goes on elsewhere; wait for it."
                )
            yield
        finally:
            os.close(handle)

    def are_held(self) -> bool:
        """Whether a run is going on with them right now."""
        try:
            handle = os.open(self.folder, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    def numbers(self) -> list[int]:
        """The checkpoints there are, the oldest first."""
        return sorted(int(path.name[6:]) for path in self.folder.glob("state-*"))

    def write(self, number: int, state: State) -> None:
        """Add one, aside and then renamed; forget all but the newest ones."""
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
        for old in self.numbers()[:-KEPT]:
            shutil.rmtree(self._place(old))

    def read(self, number: int) -> State:
        """One of them; a damaged one, or one of another schema, is refused with a sentence."""
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
        """The newest one, if there is any."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def drop_after(self, number: int) -> None:
        """Forget those that are newer."""
        for newer in [each for each in self.numbers() if each > number]:
            shutil.rmtree(self._place(newer))

    def drop_before(self, number: int) -> None:
        """Remove those that are older."""
        for older in [each for each in self.numbers() if each < number]:
            shutil.rmtree(self._place(older))

    def drop_newest(self) -> None:
        """Forget the newest one, if there is one before it."""
        *earlier, newest = self.numbers() or [-1]
        if not earlier:
            raise FirehoseError(f"{self.folder} has no checkpoint before the newest.")
        shutil.rmtree(self._place(newest))

    def remove(self) -> None:
        """The run is over, or to be begun again."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _place(self, number: int) -> Path:
        return self.folder / f"state-{number:09d}"

    def _damaged(self, place: Path, how: str) -> FirehoseError:
        return FirehoseError(
            f"{place} is damaged: {how}; go on from the one before it with --previous, "
            "or begin again with --replace."
        )


def _lock(handle: int) -> bool:
    """Keep others out; who only looks whether it is locked is gone in a moment."""
    for _ in range(10):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False


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
