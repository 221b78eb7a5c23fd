"""A copy of a model's weights to go back to: of all shared weights, and of the users who move."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from firehose.methods.step import Step
from firehose.optim.gradient import Gradient
from firehose.optim.rule import UpdateRule


class Snapshot:
    """One state of a model to come back to, at a cost that does not grow with the users.

    With ``with_moments`` the moments of the update rule are part of it.
    """

    def __init__(self, rule: UpdateRule, with_moments: bool) -> None:
        self.users = rule.model.users
        self.row_states = rule.row_states() if with_moments else []
        self.moving = [*rule.parameters, *(rule.moments() if with_moments else [])]
        self.copies = [torch.empty_like(value) for value in self.moving]
        self.saved_rows: list[tuple[Tensor, ...]] = []  # places, and what was there

    @torch.no_grad()
    def save(self) -> None:
        """Copy the shared weights as they are now."""
        torch._foreach_copy_(self.copies, self.moving)
        self.saved_rows = []

    def save_rows(self, rows: Tensor) -> None:
        """Copy the rows of these users; to be called before each step that moves them."""
        if self.users is not None:
            (places,) = self.users.own(rows)
            others = (state[places] for state in self.row_states)
            self.saved_rows.append((places, self.users.vectors[places], *others))

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to what was saved; a row that moved several times goes back the same way."""
        torch._foreach_copy_(self.moving, self.copies)
        for places, vectors, *others in reversed(self.saved_rows):
            assert self.users is not None
            self.users.put(places, vectors)
            for state, values in zip(self.row_states, others, strict=True):
                state[places] = values


@contextlib.contextmanager
def virtual_step(step: Step, gradient: Gradient) -> Iterator[None]:
    """Take a step along a gradient; when the block ends, all is as it was before."""
    snapshot = Snapshot(step.rule, with_moments=True)
    snapshot.save()
    snapshot.save_rows(gradient.rows)
    step.rule.step(gradient)
    try:
        yield
    finally:
        snapshot.restore()
