"""Adam for the shared weights and, row by row, for the users of a step."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from firehose.models.personal import Personal
from firehose.models.users import Taken, Users

BETAS = (0.9, 0.999)
EPSILON = 1e-8
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Adam:
    """One step after each ``backward``, with the gradient clipped over everything it touches."""

    def __init__(
        self, model: Personal, rate: float, clip: float = 0.25, user_rate: float = 1.0
    ) -> None:
        self.model = model
        self.clip = clip
        self.user_rate = user_rate  # times the rate, for the users: each takes few steps
        self.dense = torch.optim.Adam(
            model.parameters(), lr=rate, betas=BETAS, eps=EPSILON, fused=True
        )

    def zero(self) -> None:
        """Forget the gradients."""
        self.dense.zero_grad(set_to_none=True)

    @torch.no_grad()
    def step(self, taken: Sequence[Taken], rate: float | None = None) -> float:
        """Move; returns the norm of the gradient before clipping.

        ``taken`` are the users of the losses that were differentiated, one entry for each.
        """
        if rate is not None:
            self.dense.param_groups[0]["lr"] = rate
        rate = self.dense.param_groups[0]["lr"]
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        rows, slopes = _merge(taken, self.model.users)
        norms = torch.stack([*torch._foreach_norm(grads), slopes.norm()])
        norm = float(norms.norm())
        if norm > self.clip:
            torch._foreach_mul_([*grads, slopes], self.clip / (norm + 1e-6))
        self.dense.step()
        step_rows(self.model.users, rows, slopes, rate * self.user_rate)
        return norm

    def state(self) -> dict[str, Tensor]:
        """The moments of the shared weights, to be saved; those of the users are theirs."""
        saved = {}
        for name, parameter in self.model.named_parameters():
            for moment, value in self.dense.state.get(parameter, {}).items():
                saved[f"{moment}.{name}"] = value
        return saved

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on with the moments that ``state`` holds."""
        for name, parameter in self.model.named_parameters():
            moments = {moment: state.get(f"{moment}.{name}") for moment in MOMENTS}
            self.dense.state.pop(parameter, None)
            if all(value is not None for value in moments.values()):
                self.dense.state[parameter] = {
                    moment: value.clone() for moment, value in moments.items() if value is not None
                }


def _merge(taken: Sequence[Taken], users: Users) -> tuple[Tensor, Tensor]:
    """The rows that have a gradient, each once, and the sum of their gradients."""
    own = [part for part in taken if part.vectors.grad is not None]
    rows = torch.cat([part.rows for part in own]) if own else torch.zeros(0, dtype=torch.int64)
    slopes = [part.vectors.grad for part in own if part.vectors.grad is not None]
    known = rows >= 0
    unique, which = torch.unique(rows[known], return_inverse=True)
    summed = torch.zeros(len(unique), users.d_user)
    if own:
        summed.index_add_(0, which, torch.cat(slopes)[known])
    return unique, summed


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
