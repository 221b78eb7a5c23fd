"""A perceptron that classifies pictures; a picture is a post, its last token the class.

Its steps are so small that recording them for autograd would take longer than computing them: the
gradient is written by hand, and all weights are one vector, so that a step is one operation.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from firehose.batch import Batch
from firehose.config import Section
from firehose.models.model import Paid
from firehose.models.sizes import FLOAT, refuse_beyond_memory
from firehose.optim.gradient import Gradient

OUTPUTS = "outputs"  # the column that keeps logits
Start = Literal["xavier", "torch"]  # how weights are drawn; torch: as nn.Linear does


class PixelScale(NamedTuple):
    """A linear map of a pixel's byte: ``scale`` · byte + ``shift``."""

    scale: float = 1 / 255
    shift: float = 0.0

    @classmethod
    def standard(cls, pixels: NDArray[np.uint8]) -> Self:
        """The map that gives these pixels a mean of 0 and a deviation of 1."""
        shares = sum(np.bincount(row, minlength=256) for row in pixels) / pixels.size
        shades = np.arange(256)
        mean = float(shares @ shades)
        deviation = float(shares @ (shades - mean) ** 2) ** 0.5
        return cls(1 / deviation, -mean / deviation)


class PerceptronPlan(Section):
    """How a perceptron sees pictures, and how it starts."""

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (100, 100)  # units of each hidden layer
    pixels: Literal["share", "standard"] = "share"  # of 255; or with mean 0 and deviation 1
    weights: Start = "xavier"


class Perceptron(nn.Module):
    """Hidden layers with ReLU and one head for all tasks; users make no difference to it."""

    def __init__(
        self,
        pixels: int,
        classes: int,
        hidden: tuple[int, ...],
        seed: int = 0,
        pixel_scale: PixelScale = PixelScale(),  # noqa: B008 (it cannot be changed)
        start: Start = "xavier",
    ) -> None:
        super().__init__()
        self.max_tokens = pixels + 1  # the pixels of a picture, and its class
        self.sizes = [pixels, *hidden, classes]
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        self.parts = [size for below, above in pairs for size in (below * above, above)]
        needed = {"A perceptron of this size": FLOAT * sum(self.parts)}
        refuse_beyond_memory(needed, "choose smaller layers in perceptron.hidden")
        self.weights = nn.Parameter(torch.zeros(sum(self.parts)))
        self._views: tuple[int, list[tuple[Tensor, Tensor]]] = (0, [])
        generator = torch.Generator().manual_seed(seed)
        for weight, bias in self.layers:
            if start == "xavier":
                nn.init.xavier_uniform_(weight, generator=generator)
            else:
                most = weight.shape[1] ** -0.5
                weight.uniform_(-most, most, generator=generator)
                bias.uniform_(-most, most, generator=generator)
        self.pixel_scale = pixel_scale
        self.one_hot = torch.eye(classes)
        self.users = None

    @classmethod
    def of_plan(
        cls, plan: PerceptronPlan, pixels: int, classes: int, shades: NDArray[np.uint8], seed: int
    ) -> Self:
        """A fresh one for pictures of so many pixels; ``shades`` are pixels to standardize by."""
        scale = PixelScale.standard(shades) if plan.pixels == "standard" else PixelScale()
        return cls(pixels, classes, plan.hidden, seed, scale, plan.weights)

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer, as views that autograd does not record.

        They are made anew where other weights, as their averages, took the place of these.
        """
        place = self.weights.data_ptr()
        if place != self._views[0]:
            self._views = (place, self._by_layer(self.weights.detach()))
        return self._views[1]

    def _by_layer(self, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
        """View a vector of all weights as ``[above, below]`` and ``[above]`` for each layer."""
        parts = vector.split_with_sizes(self.parts)
        return [
            (weight.view(above, -1), bias)
            for weight, bias, above in zip(parts[::2], parts[1::2], self.sizes[1:], strict=True)
        ]

    def state(self) -> dict[str, Any]:
        """The weights."""
        return {"weights": self.weights.detach()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.weights.detach().copy_(state["weights"])

    def outputs(self, batch: Batch) -> Tensor:
        """The logits of each picture, ``[pictures, classes]``."""
        return self._activations(self.pixels_of(batch))[-1]

    def classify(self, batch: Batch) -> NDArray[np.int64]:
        """The most probable class of each picture."""
        return np.asarray(self.outputs(batch).argmax(1))

    def pixels_of(self, batch: Batch) -> Tensor:
        """The scaled pixels of each picture, ``[pictures, pixels]``."""
        tokens = batch.tokens.reshape(len(batch), self.max_tokens)
        pixels = np.multiply(tokens[:, :-1], np.float32(self.pixel_scale.scale), dtype=np.float32)
        if self.pixel_scale.shift:
            pixels += np.float32(self.pixel_scale.shift)
        return torch.from_numpy(pixels)

    def _activations(self, pixels: Tensor) -> list[Tensor]:
        """The input of each layer, and last the logits."""
        inputs = [pixels]
        for weight, bias in self.layers[:-1]:
            inputs.append(torch.addmm(bias, inputs[-1], weight.T).relu_())
        weight, bias = self.layers[-1]
        return [*inputs, torch.addmm(bias, inputs[-1], weight.T)]

    def gradient(self, batch: Batch) -> Gradient:
        """The gradient of the mean over pictures of −log p(class)."""
        targets = self.one_hot[labels(batch)]
        return self.gradient_toward(self.pixels_of(batch), targets, 1 / len(batch))

    def gradient_toward(
        self, pixels: Tensor, soft_targets: Tensor, weights: Tensor | float
    ) -> Gradient:
        """The gradient of Σ weight · cross-entropy between targets and predictions.

        ``soft_targets`` [pictures, classes] are probabilities; ``weights`` of the pictures are
        [pictures, 1], or one number.
        """
        *inputs, logits = self._activations(pixels)
        logs = logits.log_softmax(1)
        loss = -float((soft_targets * logs).mul_(weights).sum())
        above = logs.exp_().sub_(soft_targets).mul_(weights)
        gradients = torch.empty_like(self.weights)
        layers = self._by_layer(gradients)
        for number in reversed(range(len(layers))):
            torch.mm(above.T, inputs[number], out=layers[number][0])
            torch.sum(above, 0, out=layers[number][1])
            if number:
                through = above @ self.layers[number][0]
                above = torch.ops.aten.threshold_backward(through, inputs[number], 0)
        return Gradient.of_shared(loss, [gradients], pixels.numel())

    def with_outputs(self, batch: Batch, count: int) -> Batch:  # noqa: ARG002 (classes are few)
        """The pictures, and the logits of all classes beside each."""
        return batch.with_columns({OUTPUTS: self.outputs(batch).numpy().astype(np.float16)})

    def gradient_toward_outputs(self, batch: Batch) -> Gradient:
        """The gradient of the cross-entropy to the probabilities that the logits beside say."""
        logits = torch.from_numpy(batch.per_post[OUTPUTS]).float()
        return self.gradient_toward(self.pixels_of(batch), logits.softmax(1), 1 / len(batch))

    def cost(self, batch: Batch) -> float:
        """The mean over pictures of −log p(class)."""
        return float(functional.cross_entropy(self.outputs(batch), labels(batch)))

    def pay(self, batch: Batch) -> Paid:
        """−log p(class) of each picture."""
        nats = functional.cross_entropy(self.outputs(batch), labels(batch), reduction="none")
        return Paid(nats.double().numpy(), batch.words)


def labels(batch: Batch) -> Tensor:
    """The class of each picture, ``[pictures]``."""
    return torch.from_numpy(batch.tokens[batch.offsets[1:] - 1].astype(np.int64))
