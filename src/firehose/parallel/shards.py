"""Tables whose rows are dealt out to the processes: each holds a share, and any may ask for all.

Row r is at place r // n of process r % n, where n processes play together. As all of them play the
same game, all ask for the same rows at the same time: one message brings each of them what the
others hold. What changes a row is computed by every process, so that nothing is sent back: the one
that holds it keeps it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.parallel import group
from firehose.storage.tensors import Blocks

AT_ONCE = 1 << 24  # bytes that the first process asks for at once, when all is to be written
_is_wanted = False


@contextmanager
def sharding(wanted: bool = True) -> Iterator[None]:
    """Inside, tables that are made are dealt out to the processes, if that is wanted."""
    global _is_wanted  # noqa: PLW0603 (as there is one group of processes)
    before, _is_wanted = _is_wanted, wanted
    try:
        yield
    finally:
        _is_wanted = before


class Shards(NamedTuple):
    """How the rows of a table are divided: here all of them, or a share."""

    parts: int = 1  # shares
    own: int = 0  # the number of this one

    @classmethod
    def here(cls) -> Self:
        """As it is wanted now; a process that is alone has all rows."""
        return cls(group.size(), group.rank()) if _is_wanted else cls()

    def room(self, rows: int) -> int:
        """How many of the rows from 0 to ``rows`` − 1 are here."""
        return (rows + self.parts - 1 - self.own) // self.parts

    def mine(self, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of some rows are here."""
        here: NDArray[np.bool_] = rows % self.parts == self.own
        return here

    def part(self, whole: Any) -> Any:
        """The rows of a whole table, an array or a tensor, that are to be here."""
        return whole[self.own :: self.parts]

    def once(self, total: Tensor) -> Tensor:
        """A sum over all rows as the shares are to have it, which add up to it."""
        return torch.zeros_like(total) if self.own else total.clone()

    def gather(self, rows: NDArray[np.integer], *columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Entries of rows from where they are; each column has those of the rows that are here."""
        if self.parts == 1 or not len(rows):
            return columns
        owner = rows % self.parts
        counts = np.bincount(owner, minlength=self.parts)
        flat = [_bytes(column) for column in columns]
        sent = np.zeros((counts.max(), sum(each.shape[1] for each in flat)), np.uint8)
        sent[: counts[self.own]] = np.concatenate(flat, axis=1)
        came = group.gather(torch.from_numpy(sent)).numpy()
        packed = np.empty((len(rows), sent.shape[1]), np.uint8)
        is_sent = np.arange(len(sent)) < counts[:, None]
        packed[np.argsort(owner, kind="stable")] = came[is_sent]
        edges = np.cumsum([each.shape[1] for each in flat])[:-1]
        parts = zip(np.split(packed, edges, axis=1), columns, strict=True)
        return tuple(_from_bytes(part, like) for part, like in parts)

    def fetch(self, rows: NDArray[np.integer], *held: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """The entries of rows in tables of which this process holds its share."""
        if self.parts == 1:
            return tuple(each[rows] for each in held)
        places = rows[self.mine(rows)] // self.parts
        return self.gather(rows, *(each[places] for each in held))


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
        return torch.from_numpy(_bytes(part).reshape(-1))


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


def _bytes(column: NDArray[Any]) -> NDArray[np.uint8]:
    """A column as bytes, ``[rows, bytes of a row]``."""
    width = column.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
    return np.ascontiguousarray(column).reshape(-1).view(np.uint8).reshape(len(column), width)


def _from_bytes(packed: NDArray[np.uint8], like: NDArray[Any]) -> NDArray[Any]:
    """The column that ``_bytes`` made bytes of."""
    return np.ascontiguousarray(packed).view(like.dtype).reshape(len(packed), *like.shape[1:])
