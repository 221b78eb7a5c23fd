"""Sums over the processes of one machine, in memory that all of them share.

Gloo sends numbers through sockets, and its threads wake each other: 1,000 numbers take 1.8 ms. Here
every process writes its numbers into a slot of its own, waits until all have, and adds up all slots
in the same order, so that the sum is the same in each, bit by bit.

There are two slots for each process, which take turns. Whoever writes the second message has read
all of the first, so that a slot is free again when its turn comes.
"""

import mmap
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch._C._distributed_c10d import Store

from firehose.parallel.place import LostError, Place

FOLDER = Path("/dev/shm")  # files in memory; one has a name only until all have opened it
SLOT = 1 << 22  # bytes; what is longer is added up piece by piece
LINE = 64  # bytes that a processor fetches at once: each process counts on one of its own
SPIN = 0.0005  # seconds without sleep, as others are mostly as fast as this one
NAP, LOOK = 0.00005, 0.2  # seconds between two looks, and until one looks whether others live


class SharedSums:
    """Memory that the processes of a machine share, for sums of tensors of the CPU."""

    def __init__(self, memory: mmap.mmap, place: Place) -> None:
        self.place, self.turn = place, 0
        numbers = np.frombuffer(memory, np.int64, 2 * place.size * LINE // 8)
        self.written, self.process = numbers.reshape(2, place.size, -1)[:, :, 0]
        self.process[place.rank] = os.getpid()
        slots = torch.frombuffer(memory, dtype=torch.uint8, offset=numbers.nbytes)
        self.slots = slots.view(2, place.size, SLOT)

    @classmethod
    def meet(cls, store: Store, place: Place) -> Self | None:
        """Share memory with all other processes; None where that cannot be.

        The order in which a processor of another kind writes would have to be forced.
        """
        is_here = place.size == int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
        if not (is_here and sys.platform == "linux" and platform.machine() == "x86_64"):
            return None
        if place.rank == 0:
            store.set("shared memory", _make(place.size))
        name = store.get("shared memory").decode()
        memory = _open(name) if name else None
        everybody = store.add("opened", memory is not None), store.add("tried", 1)
        while everybody[1] < place.size:
            time.sleep(NAP)
            everybody = store.add("opened", 0), store.add("tried", 0)
        if place.rank == 0 and name:
            Path(name).unlink()
        return cls(memory, place) if memory and store.add("opened", 0) == place.size else None

    def add_up(self, values: Tensor) -> None:
        """Let a tensor become the sum of those of all processes."""
        flat = values.reshape(-1)
        for part in flat.split(SLOT // values.element_size()):
            self._add_up_part(part)
        if flat.data_ptr() != values.data_ptr():
            values.copy_(flat.view_as(values))

    def _add_up_part(self, part: Tensor) -> None:
        slots = self.slots[self.turn % 2, :, : part.nbytes].view(part.dtype)
        slots[self.place.rank] = part
        self.turn += 1
        self.written[self.place.rank] = self.turn
        self._wait()
        torch.add(slots[0], slots[1], out=part)
        for other in slots[2:]:
            part += other

    def _wait(self) -> None:
        """Wait until all have written; whether they live is seen to, where it takes long."""
        begun = looked = time.perf_counter()
        while self.written.min() < self.turn:
            now = time.perf_counter()
            if now - looked > LOOK:
                looked = now
                self._miss_nobody()
            if now - begun > SPIN:
                time.sleep(NAP)
            else:
                os.sched_yield()

    def _miss_nobody(self) -> None:
        for process in self.process.tolist():
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                raise LostError from None


def _make(processes: int) -> str:
    """Make the memory, all of it; the name of its file, or nothing where there is not enough."""
    size = 2 * processes * (LINE + SLOT)
    try:
        handle, name = tempfile.mkstemp(prefix="firehose-", dir=FOLDER)
    except OSError:
        return ""
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError:
        Path(name).unlink()
        return ""
    finally:
        os.close(handle)
    return name


def _open(name: str) -> mmap.mmap | None:
    try:
        with Path(name).open("r+b") as file:
            return mmap.mmap(file.fileno(), 0)
    except OSError:
        return None
