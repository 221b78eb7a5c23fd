"""Plain gradient descent."""

import torch
from pydantic import Field

from firehose.optim.clipping import clip
from firehose.optim.gradient import Gradient
from firehose.optim.rule import UpdateRule
from firehose.plugins import Choice


class SGD(UpdateRule):
    """A step against the gradient, as long as the rate says."""

    class Settings(Choice):
        """The rate is the same in every round."""

        kind: str = "sgd"
        rate: float = Field(default=0.05, gt=0)
        user_rate: float = Field(default=1.0, gt=0)  # times the rate, for the users' vectors
        clip: float | None = Field(default=None, gt=0)  # the largest norm of a gradient

    settings: Settings

    @torch.no_grad()
    def step(self, gradient: Gradient) -> float:
        """Move; returns the norm of the gradient before clipping."""
        norm = clip(gradient, self.settings.clip)
        rate, users = self.settings.rate, self.model.users
        gradients, weights = gradient.moving(self.parameters)
        if gradients:
            torch._foreach_add_(weights, gradients, alpha=-rate)
        if users is not None:
            rows, slopes = users.own(gradient.rows, gradient.users)
            users.put(rows, users.vectors[rows] - rate * self.settings.user_rate * slopes)
        return norm
