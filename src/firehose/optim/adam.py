"""Adam for the shared weights and, row by row, for the users of a step."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam

from firehose.models.model import Model
from firehose.models.users import Users
from firehose.optim.gradient import Gradient

BETAS = (0.9, 0.999)
EPSILON = 1e-8
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class NotFinite(ArithmeticError):  # noqa: N818 (as in "the loss is …")
    """A loss or a gradient that is not a finite number; nothing was changed."""


class Adam:
    """One step for each gradient, clipped over everything it touches."""

    def __init__(
        self,
        model: Model,
        rate: float,
        clip: float = 0.25,
        user_rate: float = 1.0,
        warmup: int = 0,
    ) -> None:
        self.model = model
        self.rate = rate
        self.clip = clip
        self.user_rate = user_rate  # times the rate, for the users: each takes few steps
        self.warmup = warmup  # rounds in which the rate rises to what it is then
        self.rounds = 0
        self.parameters = list(model.parameters())
        self.steps = [torch.zeros((), device=each.device) for each in self.parameters]
        self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second = [torch.zeros_like(parameter) for parameter in self.parameters]

    def new_round(self) -> None:
        """Warm up, a round at a time."""
        self.rounds += 1

    def rate_now(self) -> float:
        """Of this round."""
        return self.rate * (min(1.0, self.rounds / self.warmup) if self.warmup else 1.0)

    @torch.no_grad()
    def step(self, gradient: Gradient, rate: float | None = None) -> float:
        """Move; returns the norm of the gradient before clipping."""
        norm = gradient.norm()
        if not math.isfinite(gradient.loss + norm):
            raise NotFinite(f"a loss of {gradient.loss}, a gradient of norm {norm}")
        rate = self.rate_now() if rate is None else rate
        if norm > self.clip:
            gradient.scale(self.clip / (norm + 1e-6))
        self._step_shared(gradient.shared, rate)
        step_rows(self.model.users, gradient.rows, gradient.users, rate * self.user_rate)
        return norm

    def _step_shared(self, slopes: list[Tensor | None], rate: float) -> None:
        """All weights that have a slope, in one kernel.

        As a function, because the class of the same name takes seconds to import its compiler.
        """
        columns = (self.parameters, slopes, self.first, self.second, self.steps)
        moving = [row for row in zip(*columns, strict=True) if row[1] is not None]
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
        """Those of the shared weights, and how often they moved; the users have their own."""
        rows = zip(self.steps, self.first, self.second, strict=True)
        return [moment for row in rows for moment in row]

    def state(self) -> dict[str, Tensor]:
        """To be saved."""
        names = [f"{name}.{of}" for of, _ in self.model.named_parameters() for name in MOMENTS]
        rounds = {"rounds": torch.tensor(self.rounds)}
        return dict(zip(names, self.moments(), strict=True)) | rounds

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on with the moments that ``state`` holds."""
        self.rounds = int(state["rounds"])
        for name, moment in self.state().items():
            moment.copy_(state[name])


def step_rows(users: Users, rows: Tensor, slopes: Tensor, rate: float) -> None:
    """Adam on these rows alone; each counts its own steps, so a new user starts afresh."""
    steps = users.steps[rows] + 1
    first = users.first[rows].lerp_(slopes, 1 - BETAS[0])
    second = users.second[rows].lerp_(slopes * slopes, 1 - BETAS[1])
    users.steps[rows], users.first[rows], users.second[rows] = steps, first, second
    power = steps[:, None].to(slopes)
    mean = first / (1 - BETAS[0] ** power)
    spread = (second / (1 - BETAS[1] ** power)).sqrt_().add_(EPSILON)
    users.put(rows, users.vectors[rows] - rate * mean / spread)
