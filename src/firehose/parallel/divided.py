"""Arrays that are divided among processes, as the first one writes them: a block at a time.

It asks the others inside ``group.first``; no process ever has all of such an array.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.parallel import group
from firehose.parallel.shards import Shards, as_bytes
from firehose.storage.tensors import Blocks

AT_ONCE = 1 << 24  # bytes that are asked for at once
ROWS_AT_ONCE = 1 << 17  # rows of each process, where these have no fixed places


class Share:
    """What this process holds of an array; the first one can write all of it.

    ``held`` gives the array as it is now.
    """

    def __init__(self, shards: Shards, held: Callable[[], NDArray[Any] | Tensor]) -> None:
        self.shards, self._held = shards, held
        self.number = group.enroll(self) if shards.parts > 1 else 0

    def held(self) -> NDArray[Any]:
        """The rows that are here."""
        return np.asarray(self._held())

    def whole(self, rows: int) -> Any:
        """The first rows of all processes; in pieces, where these are several.

        Pieces can be had by the first process inside ``group.first``.
        """
        return self.held()[:rows] if self.shards.parts == 1 else Whole(self, rows)

    def sum(self) -> NDArray[Any]:
        """The sum over all processes of an array of one row, as ``whole`` has it."""
        found: NDArray[Any] = np.asarray(self.whole(self.shards.parts)).sum(0)
        return found

    def bytes_of(self, start: int, stop: int) -> Tensor:
        """The bytes of the rows here among those from ``start`` to ``stop`` − 1."""
        part = self.held()[self.shards.room(start) : self.shards.room(stop)]
        return torch.from_numpy(as_bytes(part).reshape(-1))


class Whole(Blocks):
    """All rows of an array that is divided, asked for a block at a time."""

    def __init__(self, share: Share, rows: int) -> None:
        self.share, like = share, share.held()
        super().__init__((rows, *like.shape[1:]), like.dtype)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        rows, shards = self.shape[0], self.share.shards
        width = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        step = max(AT_ONCE // max(width, 1), 1) * shards.parts
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            each = [Shards(shards.parts, own) for own in range(shards.parts)]
            sizes = [width * (one.room(stop) - one.room(start)) for one in each]
            parts = group.ask(self.share.number, start, stop, sizes)
            block = np.empty((stop - start, *self.shape[1:]), self.dtype)
            for one, part in zip(each, parts, strict=True):
                taken = block[one.own :: shards.parts]
                taken[:] = part.numpy().view(self.dtype).reshape(taken.shape)
            yield block


class Sections:
    """Rows of which each process holds as many as it happens to have; the first can write them."""

    def __init__(self, shards: Shards, held: Callable[[], NDArray[Any]]) -> None:
        self.held, self.parts = held, shards.parts
        self._count = Share(shards, lambda: np.array([len(held())]))
        self.number = group.enroll(self) if shards.parts > 1 else 0

    def whole(self) -> Any:
        """The rows of all processes, some of each in turn."""
        if self.parts == 1:
            return self.held()
        return InTurn(self)

    def counts(self) -> NDArray[np.int64]:
        """How many rows each process has, for the first one inside ``group.first``."""
        return np.asarray(self._count.whole(self.parts))

    def bytes_of(self, start: int, stop: int) -> Tensor:
        """The bytes of the rows from ``start`` to ``stop`` − 1 that are here."""
        return torch.from_numpy(as_bytes(self.held()[start:stop]).reshape(-1))


class InTurn(Blocks):
    """The rows of sections, asked for so many of each process at a time."""

    def __init__(self, sections: Sections) -> None:
        self.sections, like = sections, sections.held()
        super().__init__(like.shape[1:], like.dtype)  # how many rows there are is yet to be asked

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the whole array."""
        return int(self.sections.counts().sum()), *self._shape

    def __iter__(self) -> Iterator[NDArray[Any]]:
        width = self.dtype.itemsize * int(np.prod(self._shape, dtype=np.int64))
        counts = self.sections.counts()
        for start in range(0, int(counts.max()), ROWS_AT_ONCE):
            rows = np.clip(counts - start, 0, ROWS_AT_ONCE)
            sizes = (rows * width).tolist()
            parts = group.ask(self.sections.number, start, start + ROWS_AT_ONCE, sizes)
            for part, count in zip(parts, rows.tolist(), strict=True):
                yield part.numpy().view(self.dtype).reshape(count, *self._shape)


class Overlay:
    """Rows that are here or there, zeros elsewhere; the first process can write all of them.

    ``held`` gives the rows from a first to before a last one.
    """

    def __init__(self, shards: Shards, held: Callable[[int, int], NDArray[Any]]) -> None:
        self.held, self.parts = held, shards.parts
        self.number = group.enroll(self) if shards.parts > 1 else 0

    def whole(self, rows: int) -> Any:
        """The first rows of all processes."""
        return self.held(0, rows) if self.parts == 1 else Laid(self, rows)

    def bytes_of(self, start: int, stop: int) -> Tensor:
        """The bytes of some rows."""
        return torch.from_numpy(as_bytes(self.held(start, stop)).reshape(-1))


class Laid(Blocks):
    """All rows of an overlay, asked for a block at a time."""

    def __init__(self, overlay: Overlay, rows: int) -> None:
        self.overlay, like = overlay, overlay.held(0, 0)
        super().__init__((rows,), like.dtype)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        rows = self.shape[0]
        for start in range(0, rows, ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, rows)
            sizes = [(stop - start) * self.dtype.itemsize] * self.overlay.parts
            parts = group.ask(self.overlay.number, start, stop, sizes)
            yield np.sum([part.numpy().view(self.dtype) for part in parts], 0, self.dtype)
