"""Adam for the shared weights and, row by row, for the users of a step."""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.optim.adam import adam

from firehose.optim.clipping import clip
from firehose.optim.gradient import Gradient
from firehose.optim.rows import RowState, UserRows
from firehose.optim.rule import Trainable, UpdateRule
from firehose.optim.schedules import warmup
from firehose.plugins import Choice

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Adam(UpdateRule):
    """One step for each gradient, clipped over everything it touches.

    The row of a user has moments of its own and counts its own steps: only rows with a gradient
    move, and a new user starts afresh.
    """

    class Settings(Choice):
        """The defaults are the paper's."""

        kind: str = "adam"
        rate: float = Field(default=2.5e-4, gt=0)
        user_rate: float = Field(default=1.0, gt=0)  # times the rate, for the users' vectors
        warmup: int = Field(default=2000, ge=0)  # rounds in which the rate rises
        clip: float = Field(default=0.25, gt=0)  # the largest norm of a gradient

    def __init__(self, settings: Settings, model: Trainable) -> None:
        self.settings = settings
        self.model = model
        self.rounds = 0
        self.names = [name for name, _ in model.named_parameters()]
        self.parameters = list(model.parameters())
        self.steps = [torch.zeros((), device=each.device) for each in self.parameters]
        self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.rows = None if model.users is None else RowMoments(model.users)

    def begin_round(self) -> None:
        """Count the rounds of the warm-up."""
        self.rounds += 1

    @torch.no_grad()
    def step(self, gradient: Gradient, rate: float | None = None) -> float:
        """Move, at this rate or that of the round; returns the norm before clipping."""
        settings = self.settings
        norm = clip(gradient, settings.clip)
        if rate is None:
            rate = settings.rate * warmup(self.rounds, settings.warmup)
        self._step_shared(gradient.shared, rate)
        if self.rows is not None:
            self.rows.step(gradient.rows, gradient.users, rate * settings.user_rate)
        return norm

    def _step_shared(self, gradients: list[Tensor | None], rate: float) -> None:
        """Move all weights that have a gradient, in one kernel.

        As a function, because the class of the same name takes seconds to import its compiler.
        """
        columns = (self.parameters, gradients, self.first, self.second, self.steps)
        moving = [row for row in zip(*columns, strict=True) if row[1] is not None]
        if not moving:
            return
        weights, grads, first, second, steps = map(list, zip(*moving, strict=True))
        adam(
            weights,
            grads,
            first,
            second,
            [],
            steps,
            fused=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=rate,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )

    def moments(self) -> list[Tensor]:
        """Number of steps, first and second moment of each shared weight."""
        rows = zip(self.steps, self.first, self.second, strict=True)
        return [moment for row in rows for moment in row]

    def row_states(self) -> list[RowState]:
        """The same for the rows of users."""
        return [] if self.rows is None else list(self.rows.states().values())

    def state(self) -> dict[str, Any]:
        """The moments of shared weights and of users, and the rounds of the warm-up."""
        rows = {} if self.rows is None else self.rows.states()
        return {
            "rounds": self.rounds,
            "steps": dict(zip(self.names, self.steps, strict=True)),
            "first": dict(zip(self.names, self.first, strict=True)),
            "second": dict(zip(self.names, self.second, strict=True)),
            "rows": {name: states.state() for name, states in rows.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the moments that ``state`` holds."""
        self.rounds = state["rounds"]
        for own, name in ((self.steps, "steps"), (self.first, "first"), (self.second, "second")):
            for moment, parameter in zip(own, self.names, strict=True):
                moment.copy_(state[name][parameter])
        for name, states in ({} if self.rows is None else self.rows.states()).items():
            states.restore(state["rows"][name])


class RowMoments:
    """Adam on rows of a table of users."""

    def __init__(self, users: UserRows) -> None:
        width = (users.vectors.shape[1],)
        self.users = users
        self.steps = RowState(users, dtype=torch.int64)
        self.first = RowState(users, width)
        self.second = RowState(users, width)

    def states(self) -> dict[str, RowState]:
        """Number of steps, first and second moment of each row, by name."""
        return {"steps": self.steps, "first": self.first, "second": self.second}

    def step(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """Move these rows, each named once, along their gradients."""
        steps = self.steps[rows] + 1
        first = self.first[rows].lerp_(gradients, 1 - BETAS[0])
        second = self.second[rows].lerp_(gradients * gradients, 1 - BETAS[1])
        self.steps[rows], self.first[rows], self.second[rows] = steps, first, second
        power = steps[:, None].to(gradients)
        mean = first / (1 - BETAS[0] ** power)
        spread = (second / (1 - BETAS[1] ** power)).sqrt_().add_(EPSILON)
        self.users.put(rows, self.users.vectors[rows] - rate * mean / spread)
