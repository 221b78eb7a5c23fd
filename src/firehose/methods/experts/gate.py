"""How much each opinion counts at a place: weights that are learned from what was paid."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from firehose.methods.experts import Evidence, Portion
from firehose.parallel import group

SILENT = -1e9  # the logit of an opinion that has nothing to say
BETAS, TINY = (0.9, 0.999), 1e-8


class Gate:
    """A network with one hidden layer: from the features of a place to a weight for each opinion.

    The weights of a place are positive and sum to 1, so a mixture of distributions is one. They
    depend on the place and on what was paid before, never on the piece that comes. The last
    opinion is one that always speaks.
    """

    def __init__(
        self, features: int, opinions: int, hidden: int, rate: float, seed: int, steps: int = 4
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        kind = torch.float32  # as that of features
        drawn = torch.randn(hidden, features, generator=generator, dtype=kind)
        others = [
            torch.zeros(shape, dtype=kind) for shape in (hidden, (opinions, hidden), opinions)
        ]
        self.parameters = [drawn / max(features, 1) ** 0.5, *others]
        self.moments = [[torch.zeros_like(p) for p in self.parameters] for _ in BETAS]
        self.rate, self.steps_a_round = rate, steps
        self.steps = 0

    def weights(self, evidence: Evidence) -> Tensor:
        """Each opinion's weight, ``[places, opinions]``; 0 where it does not speak."""
        features, silent = (torch.from_numpy(e.T) for e in (evidence.features, ~evidence.speaks))
        return self._forward(features, silent)[1]

    def _forward(self, features: Tensor, silent: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden units of each place, and the weights."""
        first, first_bias, second, second_bias = self.parameters
        inner = functional.linear(features, first, first_bias).relu_()
        logits = functional.linear(inner, second, second_bias)
        return inner, logits.masked_fill_(silent, SILENT).softmax(1)

    def mix(self, evidence: Evidence, post: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """The probability of each piece that was asked for, ``[places, pieces]``.

        It is the same whether or not it is said which ``post`` a place is in.
        """
        weights, probability = self.weights(evidence), torch.from_numpy(evidence.probability)
        said = torch.bmm(weights[:, None], probability.transpose(0, 1))[:, 0]
        mixed: NDArray[np.float64] = said.double().numpy()
        return mixed

    def learn(
        self, evidence: Evidence, post: NDArray[np.int64], portion: Portion | None = None
    ) -> None:
        """Take steps that make what came more probable: the first of the pieces asked for.

        Each step is on a share of the places, one of every few, so that each is learned from once.
        With a ``portion`` of the places here, all processes take each step together.
        """
        total = portion.total if portion else len(post)
        steps = min(self.steps_a_round, total)
        for step in range(steps):
            chosen: Any = slice(step, None, steps)  # of the places of the round
            if portion:
                chosen = np.flatnonzero(portion.places % steps == step)
            count = len(range(step, total, steps))
            features, silent, probability = (
                torch.from_numpy(np.ascontiguousarray(column[:, chosen].T))
                for column in (evidence.features, ~evidence.speaks, evidence.probability[:, :, 0])
            )
            inner, weights = self._forward(features, silent)
            # Of −log Σ w p by the logits: w, less the share of each opinion in what was predicted.
            shares = weights * probability
            shares /= shares.sum(1, keepdim=True).clamp_min_(1e-30)
            by_logit = weights.sub_(shares).div_(count)
            by_inner = (by_logit @ self.parameters[2]).mul_(inner > 0)
            found = [
                by_inner.T @ features, by_inner.sum(0), by_logit.T @ inner, by_logit.sum(0)
            ]  # fmt: skip
            self._step(group.added_up(found) if portion else found)

    def _step(self, gradients: Sequence[Tensor]) -> None:
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
            name: {str(number): tensor.clone() for number, tensor in enumerate(tensors)}
            for name, tensors in every.items()
        }
        return named | {"steps": self.steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        every = {"weights": self.parameters, "mean": self.moments[0], "square": self.moments[1]}
        for name, tensors in every.items():
            for number, tensor in enumerate(tensors):
                tensor.copy_(state[name][str(number)])
        self.steps = state["steps"]
