"""A perceptron that names what is in a picture; a picture is a post, its last token the class.

Its steps are so small that recording them for autograd would take longer than to do them: the
gradient is worked out by hand, and all weights are one vector, so that a step is one operation.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from firehose.batch import Batch
from firehose.config import Section
from firehose.models.model import Paid
from firehose.optim.gradient import Gradient

Start = Literal["xavier", "torch"]  # of the weights; torch: as nn.Linear draws them


class Tone(NamedTuple):
    """What a pixel's byte is to the model: ``scale`` times the byte, and ``shift``."""

    scale: float = 1 / 255
    shift: float = 0.0

    @classmethod
    def standard(cls, pixels: NDArray[np.uint8]) -> Self:
        """With it, these pixels have a mean of 0 and a deviation of 1."""
        shares = sum(np.bincount(row, minlength=256) for row in pixels) / pixels.size
        shades = np.arange(256)
        mean = float(shares @ shades)
        deviation = float(shares @ (shades - mean) ** 2) ** 0.5
        return cls(1 / deviation, -mean / deviation)


class PerceptronPlan(Section):
    """How a perceptron sees pictures, and how it starts."""

    hidden: tuple[int, ...] = (100, 100)  # units of each hidden layer
    pixels: Literal["share", "standard"] = "share"  # of 255; or with mean 0 and deviation 1
    weights: Start = "xavier"


class Perceptron:
    """Hidden layers with ReLU, and one head for all tasks; it does not ask whose picture it is."""

    def __init__(
        self,
        pixels: int,
        classes: int,
        hidden: tuple[int, ...],
        seed: int = 0,
        tone: Tone = Tone(),  # noqa: B008 (it cannot be changed)
        start: Start = "xavier",
    ) -> None:
        self.sizes = [pixels, *hidden, classes]
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        self.parts = [size for below, above in pairs for size in (below * above, above)]
        self.weights = nn.Parameter(torch.zeros(sum(self.parts)))
        self.layers = self._laid(self.weights.detach())  # so autograd takes no notice of them
        generator = torch.Generator().manual_seed(seed)
        for weight, bias in self.layers:
            if start == "xavier":
                nn.init.xavier_uniform_(weight, generator=generator)
            else:
                most = weight.shape[1] ** -0.5
                weight.uniform_(-most, most, generator=generator)
                bias.uniform_(-most, most, generator=generator)
        self.tone = tone
        self.one_hot = torch.eye(classes)
        self.users = None

    def _laid(self, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
        """A vector of all weights as ``[above, below]`` and ``[above]`` for each layer."""
        parts = vector.split_with_sizes(self.parts)
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

    @property
    def max_tokens(self) -> int:
        """The pixels of a picture, and its class."""
        return self.sizes[0] + 1

    def state(self) -> dict[str, Any]:
        """The weights."""
        return {"weights": self.weights.detach()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.weights.detach().copy_(state["weights"])

    def outputs(self, batch: Batch) -> Tensor:
        """What it makes of each picture, ``[pictures, classes]``."""
        return self._through(self.see(batch))[-1]

    def see(self, batch: Batch) -> Tensor:
        """The pixels of each picture."""
        tokens = batch.tokens.reshape(len(batch), -1)
        pixels = np.multiply(tokens[:, :-1], np.float32(self.tone.scale), dtype=np.float32)
        if self.tone.shift:
            pixels += np.float32(self.tone.shift)
        return torch.from_numpy(pixels)

    def _through(self, pictures: Tensor) -> list[Tensor]:
        """What goes into each layer, and what comes out of the last."""
        passing = [pictures]
        for weight, bias in self.layers[:-1]:
            passing.append(torch.addmm(bias, passing[-1], weight.T).relu_())
        weight, bias = self.layers[-1]
        return [*passing, torch.addmm(bias, passing[-1], weight.T)]

    def gradient(self, batch: Batch) -> Gradient:
        """Of the mean over pictures of −log p(class)."""
        return self.toward(self.see(batch), self.one_hot[named(batch)], 1 / len(batch))

    def toward(self, pictures: Tensor, wanted: Tensor, share: Tensor | float) -> Gradient:
        """The gradient of Σ share · cross-entropy, between what is wanted and what is made.

        ``wanted`` [pictures, classes] are probabilities, ``share`` is [pictures, 1], or a number.
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
        return Gradient.of_shared(loss, [slopes], pictures.numel())

    def cost(self, batch: Batch) -> float:
        """The mean over pictures of −log p(class)."""
        return float(functional.cross_entropy(self.outputs(batch), named(batch)))

    def pay(self, batch: Batch) -> Paid:
        """−log p(class) of each picture."""
        nats = functional.cross_entropy(self.outputs(batch), named(batch), reduction="none")
        return Paid(nats.double().numpy(), batch.words)


def named(batch: Batch) -> Tensor:
    """The class of each picture."""
    return torch.from_numpy(batch.tokens[batch.offsets[1:] - 1].astype(np.int64))
