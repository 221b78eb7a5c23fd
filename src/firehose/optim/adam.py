"""Adam for the shared weights and, row by row, for the users of a step."""

from collections.abc import Mapping
from itertools import chain
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
CONSTANTS: dict[str, Any] = {  # of torch's function
    "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPSILON, "weight_decay": 0.0,
    "amsgrad": False, "maximize": False, "fused": True,
}  # fmt: skip


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

    settings: Settings

    def __init__(self, settings: Settings, model: Trainable) -> None:
        super().__init__(settings, model)
        self.rounds = 0
        self.names = [name for name, _ in model.named_parameters()]
        self.shared = {
            "steps": [torch.zeros((), device=each.device) for each in self.parameters],
            "first": [torch.zeros_like(each) for each in self.parameters],
            "second": [torch.zeros_like(each) for each in self.parameters],
        }
        self.rows: dict[str, RowState] = {}  # the same for users
        if model.users is not None:
            width = (model.users.vectors.shape[1],)
            self.rows["steps"] = RowState(model.users, dtype=torch.int64)
            self.rows |= {name: RowState(model.users, width) for name in ("first", "second")}

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
        # As a function, because the class of the same name takes seconds to import its compiler.
        columns = gradient.moving(self.parameters, *self.shared.values())
        gradients, weights, steps, first, second = columns
        adam(weights, gradients, first, second, [], steps, lr=rate, **CONSTANTS)
        if self.model.users is not None:
            self._step_rows(self.model.users, gradient, rate * settings.user_rate)
        return norm

    def _step_rows(self, users: UserRows, gradient: Gradient, rate: float) -> None:
        """Move the rows of users along their gradients, each where it is held."""
        rows, gradients = users.own(gradient.rows, gradient.users)
        steps, first, second = (state[rows] for state in self.rows.values())
        steps += 1
        first.lerp_(gradients, 1 - BETAS[0])
        second.lerp_(gradients * gradients, 1 - BETAS[1])
        for state, values in zip(self.rows.values(), (steps, first, second), strict=True):
            state[rows] = values
        power = steps[:, None].to(gradients)
        mean = first / (1 - BETAS[0] ** power)
        spread = (second / (1 - BETAS[1] ** power)).sqrt_().add_(EPSILON)
        users.put(rows, users.vectors[rows] - rate * mean / spread)

    def moments(self) -> list[Tensor]:
        """Number of steps, first and second moment of each shared weight."""
        return list(chain.from_iterable(self.shared.values()))

    def row_states(self) -> list[RowState]:
        """The same for the rows of users."""
        return list(self.rows.values())

    def state(self) -> dict[str, Any]:
        """The moments of shared weights and of users, and the rounds of the warm-up."""
        shared = {
            name: dict(zip(self.names, moments, strict=True))
            for name, moments in self.shared.items()
        }
        rows = {name: states.state() for name, states in self.rows.items()}
        return {"rounds": self.rounds, "shared": shared, "rows": rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the moments that ``state`` holds."""
        self.rounds = state["rounds"]
        for kind, moments in self.shared.items():
            for moment, name in zip(moments, self.names, strict=True):
                moment.copy_(state["shared"][kind][name])
        for kind, states in self.rows.items():
            states.restore(state["rows"][kind])
