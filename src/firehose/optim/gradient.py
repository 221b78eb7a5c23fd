"""The gradient of a loss: of every shared weight, and of the vectors of the users in the batch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Self

import torch
from torch import Tensor


@dataclass
class Gradient:
    """The gradients of the shared weights, and of the rows of users that a batch touches."""

    loss: float
    shared: list[Tensor | None]  # as model.parameters(); None: the loss does not depend on it
    rows: Tensor  # [users], their rows in the table of users, each once
    users: Tensor  # [users, d_user]
    tokens: int  # that it was computed from

    @classmethod
    def of_shared(cls, loss: float, shared: list[Tensor | None], tokens: int) -> Self:
        """The gradient of a model without users."""
        return cls(loss, shared, torch.zeros(0, dtype=torch.int64), torch.zeros(0, 1), tokens)

    def moving(self, *columns: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        """The gradients that there are of shared weights, and the same places of each column."""
        every: list[Sequence[Any]] = [self.shared, *columns]
        is_there = [gradient is not None for gradient in self.shared]
        return (list(compress(column, is_there)) for column in every)

    def norm(self) -> float:
        """The Euclidean norm over everything."""
        return math.hypot(*map(_norm, self._by_device()))

    def scale(self, factor: float) -> None:
        """Multiply everything in place."""
        for gradients in self._by_device():
            torch._foreach_mul_(gradients, factor)

    def _by_device(self) -> list[list[Tensor]]:
        """All gradients, each device's together: the users' are on the CPU."""
        (shared,) = self.moving()
        if not len(self.rows):
            return [shared]
        if not shared or shared[0].device == self.users.device:
            return [[*shared, self.users]]
        return [shared, [self.users]]

    def dot(self, other: "Gradient") -> float:
        """The inner product; users who are only in one of the two add nothing."""
        total = 0.0
        for mine, theirs in zip(self.shared, other.shared, strict=True):
            if mine is not None and theirs is not None:
                total += float(mine.flatten() @ theirs.flatten())
        if not len(self.rows) or not len(other.rows):
            return total
        here, there = (self.rows[:, None] == other.rows).nonzero(as_tuple=True)
        return total + float((self.users[here] * other.users[there]).sum())

    def add(self, other: "Gradient", factor: float) -> None:
        """Add a multiple of another gradient, which may concern other users as well."""
        for number, theirs in enumerate(other.shared):
            mine = self.shared[number]
            if theirs is not None:
                part = theirs * factor
                self.shared[number] = part if mine is None else mine.add_(part)
        rows, which = torch.unique(torch.cat([self.rows, other.rows]), return_inverse=True)
        both = torch.cat([self.users, other.users * factor])
        self.users = both.new_zeros(len(rows), both.shape[1]).index_add_(0, which, both)
        self.rows = rows


def _norm(gradients: list[Tensor]) -> float:
    if len(gradients) == 1:
        return float(torch.linalg.vector_norm(gradients[0]))
    return float(torch.stack(torch._foreach_norm(gradients)).norm())
