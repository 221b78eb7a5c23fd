"""How much each opinion counts at a place: weights that are learned from what was paid."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from firehose.methods.experts import Evidence

SILENT = -1e9  # the logit of an opinion that has nothing to say
BETAS, TINY = (0.9, 0.999), 1e-8


class Gate:
    """A network with one hidden layer: from the features of a place to a weight for each opinion.

    The weights of a place are positive and sum to 1, so a mixture of distributions is one. They
    depend on the place and on what was paid before, never on the piece that comes. The last
    opinion is one that always speaks.
    """

    def __init__(self, features: int, opinions: int, hidden: int, rate: float, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        first = torch.randn(hidden, features, generator=generator) / max(features, 1) ** 0.5
        self.parameters = [
            first, torch.zeros(hidden), torch.zeros(opinions, hidden), torch.zeros(opinions)
        ]  # fmt: skip
        for parameter in self.parameters:
            parameter.requires_grad_()
        self.moments = [[torch.zeros_like(p) for p in self.parameters] for _ in BETAS]
        self.rate = rate
        self.steps = 0

    def log_weights(self, evidence: Evidence) -> Tensor:
        """The logarithm of each opinion's weight, ``[places, opinions]``."""
        first, first_bias, second, second_bias = self.parameters
        inner = functional.linear(torch.from_numpy(evidence.features.T), first, first_bias)
        logits = functional.linear(inner.relu(), second, second_bias)
        speaks = torch.from_numpy(evidence.speaks.T)
        return logits.masked_fill(~speaks, SILENT).log_softmax(1)

    @torch.no_grad()
    def mix(self, evidence: Evidence) -> np.ndarray:
        """The probability of each piece that was asked for, ``[places, pieces]``, in float64."""
        weights = self.log_weights(evidence).exp().double()
        probability = torch.from_numpy(evidence.probability).double()
        return torch.einsum("po,opm->pm", weights, probability).numpy()

    def learn(self, evidence: Evidence, steps: int) -> None:
        """Take steps that make what came more probable: the first of the pieces asked for."""
        probability = torch.from_numpy(evidence.probability[:, :, 0].T)
        for _ in range(steps if len(probability) else 0):
            weights = self.log_weights(evidence).exp()
            loss = -(weights * probability).sum(1).clamp_min(1e-30).log().mean()
            self._step(torch.autograd.grad(loss, self.parameters))

    @torch.no_grad()
    def _step(self, gradients: tuple[Tensor, ...]) -> None:
        """A step of Adam."""
        self.steps += 1
        fade = [1 - beta**self.steps for beta in BETAS]
        for parameter, gradient, mean, square in zip(
            self.parameters, gradients, *self.moments, strict=True
        ):
            mean.lerp_(gradient, 1 - BETAS[0])
            square.lerp_(gradient.square(), 1 - BETAS[1])
            size = (square / fade[1]).sqrt_().add_(TINY)
            parameter.addcdiv_(mean, size, value=-self.rate / fade[0])

    def state(self) -> dict[str, Any]:
        """Weights and moments."""
        every = {"weights": self.parameters, "mean": self.moments[0], "square": self.moments[1]}
        named = {
            name: {str(number): tensor.detach() for number, tensor in enumerate(tensors)}
            for name, tensors in every.items()
        }
        return named | {"steps": self.steps}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        every = {"weights": self.parameters, "mean": self.moments[0], "square": self.moments[1]}
        for name, tensors in every.items():
            for number, tensor in enumerate(tensors):
                tensor.copy_(state[name][str(number)])
        self.steps = state["steps"]
