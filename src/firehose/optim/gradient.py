"""The gradient of a loss: of every shared weight, and of the vectors of the users in the batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from firehose.models.users import Taken


@dataclass
class Gradient:
    """Slopes of the shared weights, and of the rows of users that a batch touches."""

    loss: float
    shared: list[Tensor | None]  # as model.parameters(); None: does not matter for this loss
    rows: Tensor  # [users], in the table, each once
    users: Tensor  # [users, d_user]
    tokens: int  # that it was computed from

    @classmethod
    def of_loss(cls, loss: Tensor, parameters: Sequence[Tensor], taken: Taken, tokens: int) -> Self:
        """Differentiate any loss of the shared weights and of some users' vectors."""
        vectors = [taken.vectors] if taken.vectors.requires_grad else []
        slopes = torch.autograd.grad(loss, [*parameters, *vectors], allow_unused=True)
        shared: list[Tensor | None] = list(slopes[: len(parameters)])
        rows = taken.rows[:0]
        users = taken.vectors.detach()[:0]
        if vectors and slopes[-1] is not None:
            known = taken.rows >= 0
            rows, users = taken.rows[known], slopes[-1][known]
        return cls(float(loss.detach()), shared, rows, users, tokens)

    def norm(self) -> float:
        """Over everything."""
        return math.hypot(*map(_norm, self._slopes()))

    def scale(self, factor: float) -> None:
        """Multiply everything."""
        for slopes in self._slopes():
            torch._foreach_mul_(slopes, factor)

    def _slopes(self) -> list[list[Tensor]]:
        """All of them, each device's together: the users' are on the CPU."""
        shared = [slope for slope in self.shared if slope is not None]
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


def _norm(slopes: list[Tensor]) -> float:
    if len(slopes) == 1:
        return float(torch.linalg.vector_norm(slopes[0]))
    return float(torch.stack(torch._foreach_norm(slopes)).norm())
