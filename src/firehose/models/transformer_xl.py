"""Transformer-XL on flat batches: token-wise products are computed on real tokens only.

A batch of posts is one matrix of tokens, ``[tokens, d_model]``, without padding; only inside
attention the tokens of a post are laid out on a grid.
"""

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from firehose.config import Section
from firehose.models.attention import Grid, attend
from firehose.models.dropout import Dropout, Random
from firehose.models.linear import Linear

# Changes hidden vectors [tokens, d_model] before the first layer (0) and after each (1, 2, …).
Adapt = Callable[[int, Tensor], Tensor]


class Shape(Section):
    """The size of a Transformer-XL; the defaults are the paper's."""

    layers: int = Field(default=12, ge=1)
    d_model: int = Field(default=512, ge=1)
    heads: int = Field(default=8, ge=1)
    d_head: int = Field(default=64, ge=1)
    d_inner: int = Field(default=2048, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)


class Attention(nn.Module):
    """Relative multi-head attention, then dropout, the residual and LayerNorm."""

    def __init__(self, shape: Shape, random: Random) -> None:
        super().__init__()
        self.shape = shape
        inner = shape.heads * shape.d_head
        self.queries_keys_values = Linear(shape.d_model, 3 * inner, bias=False)
        self.positions = Linear(shape.d_model, inner, bias=False)
        self.out = Linear(inner, shape.d_model, bias=False)
        self.norm = nn.LayerNorm(shape.d_model)
        self.drop = Dropout(shape.dropout, random)

    def forward(self, hidden: Tensor, grid: Grid, biases: Tensor, distances: Tensor) -> Tensor:
        """``hidden`` [tokens, d_model]; ``distances`` [keys, d_model], the farthest first."""
        shape = self.shape
        relative_keys = self.positions(distances).view(-1, shape.heads, shape.d_head)
        relative_keys = relative_keys.permute(1, 2, 0).contiguous()  # [heads, d_head, keys]
        qkv = self.queries_keys_values(hidden)
        found = attend(qkv, relative_keys, biases, grid, self.drop)
        return self.norm(hidden + self.drop(self.out(found)))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Two linear layers with ReLU between, then the residual and LayerNorm."""

    def __init__(self, shape: Shape, random: Random) -> None:
        super().__init__()
        self.up = Linear(shape.d_model, shape.d_inner)
        self.down = Linear(shape.d_inner, shape.d_model)
        self.norm = nn.LayerNorm(shape.d_model)
        self.drop = Dropout(shape.dropout, random)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map ``[tokens, d_model]`` to the same shape."""
        outer = self.drop(self.down(self.drop.after_relu(self.up(hidden))))
        return self.norm(hidden + outer)  # type: ignore[no-any-return]


class TransformerXL(nn.Module):
    """The shared model: pieces in, hidden vectors out; the embedding is the softmax's matrix."""

    def __init__(self, shape: Shape, pieces: int, random: Random) -> None:
        super().__init__()
        self.shape = shape
        self.pieces = pieces
        self.embedding = nn.Parameter(torch.empty(pieces, shape.d_model))
        self.output_bias = nn.Parameter(torch.zeros(pieces))
        self.biases = nn.Parameter(torch.empty(2, shape.heads, shape.d_head))
        self.attention = nn.ModuleList(Attention(shape, random) for _ in range(shape.layers))
        self.feed_forward = nn.ModuleList(FeedForward(shape, random) for _ in range(shape.layers))
        self.drop = Dropout(shape.dropout, random)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, grid: Grid, adapt: Adapt) -> Tensor:
        """Hidden vectors, ``[tokens, d_model]``, of ``tokens`` [tokens]."""
        shape = self.shape
        hidden = functional.embedding(tokens, self.embedding) * shape.d_model**0.5
        hidden = adapt(0, self.drop(hidden))
        distances = self.drop.of_all(sinusoids(grid.width, shape.d_model).to(hidden))
        for layer in range(shape.layers):
            hidden = self.attention[layer](hidden, grid, self.biases, distances)
            hidden = adapt(layer + 1, self.feed_forward[layer](hidden))
        return self.drop(hidden)  # type: ignore[no-any-return]


def sinusoids(keys: int, d_model: int) -> Tensor:
    """The vectors of the distances keys − 1 … 0, ``[keys, d_model]``."""
    angle = torch.arange(keys - 1.0, -1.0, -1.0)[:, None] * frequencies(d_model)
    return torch.cat([angle.sin(), angle.cos()], 1)


def frequencies(d_model: int) -> Tensor:
    """The frequencies of the sines and cosines that encode a distance, ``[d_model / 2]``."""
    return 1 / 10_000 ** (torch.arange(0.0, d_model, 2.0) / d_model)
