"""Tables whose rows are dealt out to the processes: each holds a share, and any may ask for all.

Row r is at place r // n of process r % n, where n processes play together. As all of them play the
same game, all ask for the same rows at the same time: one message brings each of them what the
others hold. What changes a row is computed by every process, so that nothing is sent back: the one
that holds it keeps it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.parallel import group

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
        flat = [as_bytes(column) for column in columns]
        sent = np.zeros((counts.max(), sum(each.shape[1] for each in flat)), np.uint8)
        sent[: counts[self.own]] = np.concatenate(flat, axis=1)
        came = group.gather(torch.from_numpy(sent)).numpy()
        packed = np.empty((len(rows), sent.shape[1]), np.uint8)
        is_sent = np.arange(len(sent)) < counts[:, None]
        packed[np.argsort(owner, kind="stable")] = came[is_sent]
        edges = np.cumsum([each.shape[1] for each in flat])[:-1]
        parts = zip(np.split(packed, edges, axis=1), columns, strict=True)
        return tuple(_from_bytes(part, like) for part, like in parts)

    def join(self, own: NDArray[np.int64]) -> tuple[NDArray[np.int64], slice]:
        """The rows that each process has, one after another, and which of them are this one's."""
        if self.parts == 1:
            return own, slice(len(own))
        counts = np.zeros(self.parts, np.int64)
        counts[self.own] = len(own)
        ends = np.cumsum(self.combine(counts))
        joined = np.zeros((ends[-1], *own.shape[1:]), np.int64)
        here = slice(int(ends[self.own]) - len(own), int(ends[self.own]))
        joined[here] = own
        return self.combine(joined), here

    def combine(self, values: NDArray[Any]) -> NDArray[Any]:
        """An array of which each process has some of the numbers, and zeros for all others."""
        if self.parts > 1:
            group.add_up(torch.from_numpy(values))
        return values

    def fetch(self, rows: NDArray[np.integer], *held: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """The entries of rows in tables of which this process holds its share."""
        if self.parts == 1:
            return tuple(each[rows] for each in held)
        places = rows[self.mine(rows)] // self.parts
        return self.gather(rows, *(each[places] for each in held))


def as_bytes(column: NDArray[Any]) -> NDArray[np.uint8]:
    """A column as bytes, ``[rows, bytes of a row]``."""
    width = column.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
    return np.ascontiguousarray(column).reshape(-1).view(np.uint8).reshape(len(column), width)


def _from_bytes(packed: NDArray[np.uint8], like: NDArray[Any]) -> NDArray[Any]:
    """The column that ``as_bytes`` made bytes of."""
    return np.ascontiguousarray(packed).view(like.dtype).reshape(len(packed), *like.shape[1:])
