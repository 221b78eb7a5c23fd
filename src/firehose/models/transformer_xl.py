"""Transformer-XL on flat batches: every token-wise product is done on real tokens only.

A batch of posts is one matrix of tokens, ``[tokens, d_model]``, without padding. Only inside
attention, where tokens of one post look at each other, they are laid out on padded grids,
``[posts, positions, …]``, and taken back. Attention is relative (Dai et al. 2019): a score is the
sum of a content and a position term, each with a bias of its own that all layers share.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from firehose.config import Section
from firehose.models.dropout import Dropout, Random

# What is done to the hidden vectors before the first layer (0) and after each layer (1, 2, …).
Adapt = Callable[[int, Tensor], Tensor]


class Shape(Section):
    """The size of a Transformer-XL; the defaults are the paper's."""

    layers: int = Field(default=12, ge=1)
    d_model: int = Field(default=512, ge=1)
    heads: int = Field(default=8, ge=1)
    d_head: int = Field(default=64, ge=1)
    d_inner: int = Field(default=2048, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    memory: int = Field(default=0, ge=0)  # positions of earlier segments that stay visible


class Group(NamedTuple):
    """Posts of similar length, and where their tokens lie on a padded grid."""

    tokens: slice  # of the batch, once its posts are in order of length
    posts: int
    width: int
    place: Tensor  # [tokens], on the grid

    @property
    def is_full(self) -> bool:
        return len(self.place) == self.posts * self.width

    def lay(self, flat: Tensor) -> Tensor:
        """``[tokens, …]`` to ``[posts, width, …]``, zeros where there is no token."""
        if not self.is_full:
            empty = flat.new_zeros(self.posts * self.width, *flat.shape[1:])
            flat = empty.index_copy(0, self.place, flat)
        return flat.view(self.posts, self.width, *flat.shape[1:])

    def take(self, laid: Tensor) -> Tensor:
        """The way back."""
        flat = laid.reshape(self.posts * self.width, *laid.shape[2:])
        return flat if self.is_full else flat.index_select(0, self.place)


class Grid:
    """How the posts of a flat batch are laid out for attention.

    Attention costs the square of a grid's width, and most posts are far shorter than the
    longest; so there are several grids, each for posts of similar length.
    """

    def __init__(self, lengths: Tensor, groups: int = 6) -> None:
        posts = len(lengths)
        starts = torch.cumsum(lengths, 0) - lengths
        tokens = int(lengths.sum())
        self.post = torch.repeat_interleave(torch.arange(posts), lengths, output_size=tokens)
        order = torch.argsort(lengths, stable=True)
        ordered = lengths[order]
        begins = torch.cumsum(ordered, 0) - ordered
        owner = torch.repeat_interleave(torch.arange(posts), ordered, output_size=tokens)
        step = torch.arange(tokens) - begins[owner]  # position within the post
        self.into = starts[order][owner] + step  # [tokens], from the batch's order to ours
        self.back = torch.empty_like(self.into)
        self.back[self.into] = torch.arange(tokens)
        self.groups = []
        edges = [round(posts * number / groups) for number in range(groups + 1)]
        for first, last in pairwise(edges):
            if first < last:
                start, stop = int(begins[first]), int(begins[last - 1] + ordered[last - 1])
                width = int(ordered[last - 1])
                place = (owner[start:stop] - first) * width + step[start:stop]
                self.groups.append(Group(slice(start, stop), last - first, width, place))
        self.width = max((group.width for group in self.groups), default=0)


class Attention(nn.Module):
    """Relative multi-head attention, then dropout, residual and LayerNorm."""

    def __init__(self, shape: Shape, random: Random) -> None:
        super().__init__()
        self.shape = shape
        inner = shape.heads * shape.d_head
        self.queries_keys_values = nn.Linear(shape.d_model, 3 * inner, bias=False)
        self.positions = nn.Linear(shape.d_model, inner, bias=False)
        self.out = nn.Linear(inner, shape.d_model, bias=False)
        self.norm = nn.LayerNorm(shape.d_model)
        self.drop = Dropout(shape.dropout, random)

    def forward(
        self, hidden: Tensor, grid: Grid, biases: Tensor, distances: Tensor, memory: Tensor | None
    ) -> Tensor:
        """``hidden`` [tokens, d_model]; ``distances`` [keys, d_model], the farthest first."""
        shape = self.shape
        split = (3, shape.heads, shape.d_head)
        mixed = self.queries_keys_values(hidden).view(-1, *split).index_select(0, grid.into)
        far = self.positions(distances).view(-1, shape.heads, shape.d_head).permute(1, 2, 0)
        past = None
        if memory is not None:
            past = self.queries_keys_values(memory).view(*memory.shape[:2], *split)
        found = []
        for group in grid.groups:
            laid = group.lay(mixed[group.tokens])  # [posts, width, 3, heads, d_head]
            if past is not None:
                laid = torch.cat([past, laid], 1)
            found.append(group.take(self._attend(laid, group.width, far, biases)))
        joined = torch.cat(found).index_select(0, grid.back)  # [tokens, heads, d_head]
        return self.norm(hidden + self.drop(self.out(joined.flatten(1))))  # type: ignore[no-any-return]

    def _attend(self, laid: Tensor, width: int, far: Tensor, biases: Tensor) -> Tensor:
        """From [posts, keys, 3, heads, d_head] to [posts, width, heads, d_head]."""
        # Heads first, so that the position term is one product per head for all posts.
        query, key, value = laid.permute(2, 3, 0, 1, 4)  # [heads, posts, keys, d_head] each
        query = query[:, :, -width:]
        heads, posts, keys, d_head = key.shape
        content, position = biases[:, :, None, None, :]
        by_distance = (query + position).reshape(heads, posts * width, d_head) @ far[..., -keys:]
        scores = (query + content) @ key.transpose(-1, -2)
        scores = scores + _shift(by_distance.view(heads, posts, width, keys))
        later = torch.ones(width, keys, dtype=torch.bool).triu(1 + keys - width)
        weights = scores.mul_(d_head**-0.5).masked_fill_(later, float("-inf")).softmax(-1)
        found: Tensor = self.drop(weights) @ value
        return found.permute(1, 2, 0, 3)


def _shift(scores: Tensor) -> Tensor:
    """From scores by distance to scores by key: row i moves left by (width − 1 − i)."""
    *outer, queries, keys = scores.shape
    padded = functional.pad(scores, (1, 0)).view(*outer, keys + 1, queries)
    return padded[..., 1:, :].reshape(*outer, queries, keys)


class FeedForward(nn.Module):
    """Two layers with ReLU between, then residual and LayerNorm."""

    def __init__(self, shape: Shape, random: Random) -> None:
        super().__init__()
        self.rise = nn.Linear(shape.d_model, shape.d_inner)
        self.fall = nn.Linear(shape.d_inner, shape.d_model)
        self.norm = nn.LayerNorm(shape.d_model)
        self.drop = Dropout(shape.dropout, random)

    def forward(self, hidden: Tensor) -> Tensor:
        """[tokens, d_model] to the same."""
        outer = self.drop(self.fall(self.drop(self.rise(hidden).relu_())))
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

    def forward(
        self,
        tokens: Tensor,
        grid: Grid,
        adapt: Adapt | None = None,
        memory: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Hidden vectors [tokens, d_model], and what a next segment may look back at.

        ``memory`` is what an earlier call returned for the same posts, segment after segment;
        with ``shape.memory`` 0 there is none. Segments are of one length, on one grid.
        """
        shape = self.shape
        adapt = adapt or (lambda _, hidden: hidden)
        hidden = functional.embedding(tokens, self.embedding) * shape.d_model**0.5
        hidden = adapt(0, self.drop(hidden))
        seen = memory[0].shape[1] if memory else 0
        distances = self.drop(sinusoids(seen + grid.width, shape.d_model).to(hidden))
        inputs = []
        for layer in range(shape.layers):
            inputs.append(hidden)
            past = memory[layer] if memory else None
            hidden = self.attention[layer](hidden, grid, self.biases, distances, past)
            hidden = adapt(layer + 1, self.feed_forward[layer](hidden))
        return self.drop(hidden), self._remember(inputs, grid, memory)

    def _remember(
        self, inputs: Sequence[Tensor], grid: Grid, memory: Sequence[Tensor] | None
    ) -> list[Tensor]:
        if not self.shape.memory:
            return []
        (group,) = grid.groups
        laid = [group.lay(hidden.detach()) for hidden in inputs]
        if memory:
            laid = [torch.cat(pair, 1) for pair in zip(memory, laid, strict=True)]
        return [hidden[:, -self.shape.memory :] for hidden in laid]


def sinusoids(keys: int, d_model: int) -> Tensor:
    """The vectors of the distances keys − 1 … 0, ``[keys, d_model]``."""
    angle = torch.arange(keys - 1.0, -1.0, -1.0)[:, None] * frequencies(d_model)
    return torch.cat([angle.sin(), angle.cos()], 1)


def frequencies(d_model: int) -> Tensor:
    """Of the sines and cosines that stand for a distance, ``[d_model / 2]``."""
    return 1 / 10_000 ** (torch.arange(0.0, d_model, 2.0) / d_model)
