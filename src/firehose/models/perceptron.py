"""A perceptron that names what is in a picture; a picture is a post, its last token the class."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from firehose.batch import Batch
from firehose.models.model import Paid
from firehose.models.users import NOBODY, Taken, Users

NONE = np.full(1, NOBODY)


class Perceptron(nn.Module):
    """Hidden layers with ReLU, and one head for all tasks; it does not ask whose picture it is."""

    def __init__(self, pixels: int, classes: int, hidden: tuple[int, ...], seed: int = 0) -> None:
        super().__init__()
        self.users = Users(1)
        sizes = [pixels, *hidden, classes]
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(map(nn.Linear, sizes[:-1], sizes[1:]))
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight, generator=generator)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        self.nobody: Taken = self.users.take(NONE, learn=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """``[pictures, pixels]`` to ``[pictures, classes]``."""
        *hidden, head = self.layers
        for layer in hidden:
            pictures = functional.relu(layer(pictures))
        out: Tensor = head(pictures)
        return out

    @torch.no_grad()
    def outputs(self, batch: Batch) -> Tensor:
        """What it makes of each picture, ``[pictures, classes]``."""
        out: Tensor = self(see(batch)[0])
        return out

    def loss(self, batch: Batch) -> tuple[Tensor, Taken]:
        """The mean over pictures of −log p(class)."""
        pictures, classes = see(batch)
        return functional.cross_entropy(self(pictures), classes), self.nobody

    @torch.no_grad()
    def cost(self, batch: Batch) -> float:
        """What ``loss`` is."""
        return float(self.loss(batch)[0])

    @torch.no_grad()
    def pay(self, batch: Batch) -> Paid:
        """−log p(class) of each picture."""
        pictures, classes = see(batch)
        nats = functional.cross_entropy(self(pictures), classes, reduction="none")
        return Paid(nats.double().numpy(), batch.words)


def see(batch: Batch) -> tuple[Tensor, Tensor]:
    """The pixels of each picture, from 0 to 1, and its class."""
    tokens = torch.from_numpy(batch.tokens.reshape(len(batch), -1))
    return tokens[:, :-1].float().div_(255), tokens[:, -1].long()
