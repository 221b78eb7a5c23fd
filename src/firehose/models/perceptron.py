"""A perceptron that names what is in a picture; a picture is a post, its last token the class.

Its steps are so small that recording them for autograd would take longer than to do them: the
gradient is worked out by hand, and all weights are one vector, so that a step is one operation.
"""

from collections.abc import Iterator
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from firehose.batch import Batch
from firehose.models.gradient import Gradient
from firehose.models.model import Paid
from firehose.models.users import Users


class Perceptron:
    """Hidden layers with ReLU, and one head for all tasks; it does not ask whose picture it is."""

    def __init__(self, pixels: int, classes: int, hidden: tuple[int, ...], seed: int = 0) -> None:
        self.sizes = [pixels, *hidden, classes]
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        self.parts = [size for below, above in pairs for size in (below * above, above)]
        self.weights = nn.Parameter(torch.zeros(sum(self.parts)))
        self.layers = self._laid(self.weights.detach())
        generator = torch.Generator().manual_seed(seed)
        for weight, _ in self.layers:
            nn.init.xavier_uniform_(weight, generator=generator)
        self.one_hot = torch.eye(classes)
        self.users = Users(1)
        self.nobody = self.users.take(np.zeros(0, np.int64), learn=False)

    def _laid(self, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
        """A vector of all weights as ``[above, below]`` and ``[above]`` for each layer."""
        parts = vector.split(self.parts)
        return [
            (weight.view(above, -1), bias)
            for weight, bias, above in zip(parts[::2], parts[1::2], self.sizes[1:], strict=True)
        ]

    def parameters(self) -> Iterator[nn.Parameter]:
        """All in one."""
        yield self.weights

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The same, with its name."""
        yield "weights", self.weights

    def train(self) -> Self:
        """It always does the same."""
        return self

    @torch.no_grad()
    def outputs(self, batch: Batch) -> Tensor:
        """What it makes of each picture, ``[pictures, classes]``."""
        return self._through(see(batch)[0])[-1]

    def _through(self, pictures: Tensor) -> list[Tensor]:
        """What goes into each layer, and what comes out of the last."""
        passing = [pictures]
        for weight, bias in self.layers[:-1]:
            passing.append(torch.addmm(bias, passing[-1], weight.T).relu_())
        weight, bias = self.layers[-1]
        return [*passing, torch.addmm(bias, passing[-1], weight.T)]

    def gradient(self, batch: Batch) -> Gradient:
        """Of the mean over pictures of −log p(class)."""
        pictures, classes = see(batch)
        return self.toward(
            pictures, self.one_hot[classes], pictures.new_full((1, 1), 1 / len(batch))
        )

    @torch.no_grad()
    def toward(self, pictures: Tensor, wanted: Tensor, share: Tensor) -> Gradient:
        """The gradient of Σ share · cross-entropy, between what is wanted and what is made.

        ``wanted`` [pictures, classes] are probabilities, ``share`` is [pictures, 1], or 1 × 1.
        """
        *inputs, outputs = self._through(pictures)
        logs = outputs.log_softmax(1)
        loss = -float((wanted * logs).mul_(share).sum())
        above = logs.exp_().sub_(wanted).mul_(share)
        slopes = torch.empty_like(self.weights)
        laid = self._laid(slopes)
        for number in reversed(range(len(laid))):
            torch.mm(above.T, inputs[number], out=laid[number][0])
            torch.sum(above, 0, out=laid[number][1])
            if number:
                through = above @ self.layers[number][0]
                above = torch.ops.aten.threshold_backward(through, inputs[number], 0)
        rows, vectors, _ = self.nobody
        return Gradient(loss, [slopes], rows, vectors, pictures.numel())

    @torch.no_grad()
    def cost(self, batch: Batch) -> float:
        """The mean over pictures of −log p(class)."""
        pictures, classes = see(batch)
        return float(functional.cross_entropy(self._through(pictures)[-1], classes))

    @torch.no_grad()
    def pay(self, batch: Batch) -> Paid:
        """−log p(class) of each picture."""
        pictures, classes = see(batch)
        outputs = self._through(pictures)[-1]
        nats = functional.cross_entropy(outputs, classes, reduction="none")
        return Paid(nats.double().numpy(), batch.words)


def see(batch: Batch) -> tuple[Tensor, Tensor]:
    """The pixels of each picture, from 0 to 1, and its class."""
    tokens = batch.tokens.reshape(len(batch), -1)
    pixels = np.multiply(tokens[:, :-1], np.float32(1 / 255), dtype=np.float32)
    return torch.from_numpy(pixels), torch.from_numpy(tokens[:, -1].astype(np.int64))
