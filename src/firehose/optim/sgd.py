"""Plain gradient descent."""

import math

import torch
from torch import Tensor

from firehose.models.model import Model
from firehose.optim.adam import NotFinite
from firehose.optim.gradient import Gradient


class SGD:
    """A step against the gradient, as long as the rate says; users do not move."""

    def __init__(self, model: Model, rate: float) -> None:
        self.model = model
        self.rate = rate
        self.parameters = list(model.parameters())

    def new_round(self) -> None:
        """All rounds are alike."""

    @torch.no_grad()
    def step(self, gradient: Gradient) -> float:
        """Move; returns the norm of the gradient."""
        norm = gradient.norm()
        if not math.isfinite(gradient.loss + norm):
            raise NotFinite(f"a loss of {gradient.loss}, a gradient of norm {norm}")
        pairs = zip(self.parameters, gradient.shared, strict=True)
        moving = [(weight, slope) for weight, slope in pairs if slope is not None]
        weights, slopes = zip(*moving, strict=True)
        torch._foreach_add_(weights, slopes, alpha=-self.rate)
        return norm

    def moments(self) -> list[Tensor]:
        """It remembers nothing."""
        return []
