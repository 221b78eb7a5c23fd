"""Relative attention among the tokens of each post of a flat batch (Dai et al. 2019).

A batch is one matrix of tokens without padding. Only here, where the tokens of a post look at
each other, they are laid out on padded grids, and taken back. A score is the sum of a content and
a position term, each with a bias of its own.

Forward and backward are written by hand as one operation: what autograd would record here is a
few dozen passes over the same numbers, for products so small that the passes cost more.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from firehose.models.dropout import Dropout, Mask


class Group(NamedTuple):
    """Posts of similar length, on one padded grid."""

    posts: int
    width: int


class Rows(NamedTuple):
    """Where the vectors of tokens go on the grids, where they are found there, what is padding."""

    into: Tensor  # [on the grids], from flat rows; padding repeats a row of its post
    back: Tensor  # [flat rows], from the grids
    padding: Tensor  # on the grids


class Grid:
    """How the posts of a flat batch are laid out for attention.

    Attention costs the square of a grid's width, and most posts are far shorter than the
    longest; so there are several grids, each for posts of similar length.
    """

    def __init__(self, lengths: Tensor, groups: int = 6) -> None:
        posts = len(lengths)
        tokens = int(lengths.sum())
        self.post = torch.repeat_interleave(torch.arange(posts), lengths, output_size=tokens)
        order = torch.argsort(lengths, stable=True)
        edges = [round(posts * number / groups) for number in range(groups + 1)]
        starts = torch.cumsum(lengths, 0) - lengths
        self.groups = []
        sources, paddings = [], []
        for first, last in pairwise(edges):
            if first == last:
                continue
            members = order[first:last]
            width = int(lengths[members[-1]])
            step = torch.arange(width)
            padding = step >= lengths[members, None]  # [posts, width]
            sources.append((starts[members, None] + step.masked_fill(padding, 0)).flatten())
            paddings.append(padding.flatten())
            self.groups.append(Group(last - first, width))
        self.source = torch.cat(sources) if sources else torch.zeros(0, dtype=torch.int64)
        self.padding = torch.cat(paddings) if paddings else torch.zeros(0, dtype=torch.bool)
        self.width = max((group.width for group in self.groups), default=0)
        self._rows: dict[tuple[int, int], Rows] = {}

    def rows(self, parts: int, heads: int) -> Rows:
        """For ``[tokens, parts, heads]`` vectors, laid out as ``[parts, heads, posts, width]``."""
        if (parts, heads) not in self._rows:
            per_token = parts * heads
            lane = torch.arange(per_token)[:, None]
            into, padding = [], []
            sizes = [group.posts * group.width for group in self.groups]
            split = zip(self.source.split(sizes), self.padding.split(sizes), strict=True)
            for source, empty in split:
                into.append((source * per_token + lane).flatten())
                padding.append(empty.expand(per_token, -1).flatten())
            every = torch.cat(into) if into else self.source
            is_padding = torch.cat(padding) if padding else self.padding
            real = (~is_padding).nonzero().flatten()
            back = torch.empty(len(self.post) * per_token, dtype=torch.int64)
            back[every[real]] = real
            self._rows[parts, heads] = Rows(every, back, is_padding.nonzero().flatten())
        return self._rows[parts, heads]

    def lay(self, vectors: Tensor, parts: int, heads: int) -> list[Tensor]:
        """``[tokens, parts · heads · d]`` to ``[parts, heads, posts, width, d]`` for each group."""
        d = vectors.shape[-1] // (parts * heads)
        laid = vectors.reshape(-1, d).index_select(0, self.rows(parts, heads).into)
        sizes = [parts * heads * group.posts * group.width for group in self.groups]
        return [
            block.view(parts, heads, *group, d)
            for block, group in zip(laid.split(sizes), self.groups, strict=True)
        ]

    def take(self, blocks: Sequence[Tensor], parts: int, heads: int) -> Tensor:
        """The way back; what is on padding is left there."""
        d = blocks[0].shape[-1]
        laid = torch.cat([block.reshape(-1, d) for block in blocks])
        taken = laid.index_select(0, self.rows(parts, heads).back)
        return taken.view(-1, parts * heads * d)

    def lay_slopes(self, slopes: Tensor, heads: int) -> list[Tensor]:
        """As ``lay`` with one part, but zero on padding: nothing is to be learned there."""
        d = slopes.shape[-1] // heads
        rows = self.rows(1, heads)
        laid = slopes.reshape(-1, d).index_select(0, rows.into).index_fill_(0, rows.padding, 0)
        sizes = [heads * group.posts * group.width for group in self.groups]
        return [
            block.view(heads, *group, d)
            for block, group in zip(laid.split(sizes), self.groups, strict=True)
        ]


def attend(
    mixed: Tensor, far: Tensor, biases: Tensor, past: Tensor | None, grid: Grid, drop: Dropout
) -> Tensor:
    """What each token finds, ``[tokens, heads · d]``.

    ``mixed`` [tokens, 3 · heads · d] are queries, keys and values; ``far`` [heads, d, distances]
    stands for distances, the farthest first; ``biases`` [2, heads, d] are those of content and
    position; ``past`` [2, heads, posts, seen, d] are keys and values of an earlier segment.
    """
    found: Tensor = _Attend.apply(mixed, far, biases, past, grid, drop)  # type: ignore[no-untyped-call]
    return found


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        mixed: Tensor,
        far: Tensor,
        biases: Tensor,
        past: Tensor | None,
        grid: Grid,
        drop: Dropout,
    ) -> Tensor:
        heads = len(far)
        found, kept = [], []
        for block in grid.lay(mixed, 3, heads):
            looked = _look(block, far, biases, past, drop)
            found.append(
                looked.weights_after(looked.weights).bmm(looked.value).view(block[0].shape)
            )
            kept.append(looked)
        context.save_for_backward(far, biases)
        context.kept, context.grid, context.has_past = kept, grid, past is not None
        return grid.take(found, 1, heads)

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        far, biases = context.saved_tensors
        grid: Grid = context.grid
        to_far, to_biases = torch.zeros_like(far), torch.zeros_like(biases)
        blocks, to_past = [], None
        for looked, slopes in zip(context.kept, grid.lay_slopes(outer[0], len(far)), strict=True):
            block, to_past = looked.slopes(slopes, far, biases, to_far, to_biases)
            blocks.append(block)
        to_mixed = grid.take(blocks, 3, len(far))
        return to_mixed, to_far, to_biases, to_past if context.has_past else None, None, None


class _Look(NamedTuple):
    """One group's attention, with what the way back needs. ``n`` is heads · posts."""

    query: Tensor  # [heads, posts, width, d]
    key: Tensor  # [n, keys, d]
    value: Tensor  # [n, keys, d]
    weights: Tensor  # [n, width, keys]
    mask: Mask | None

    def weights_after(self, weights: Tensor) -> Tensor:
        """Weights, or their slopes, after dropout."""
        return weights if self.mask is None else self.mask.of(weights)

    def slopes(
        self, slopes: Tensor, far: Tensor, biases: Tensor, to_far: Tensor, to_biases: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """From the slopes of what was found to those of the block and of its past."""
        heads, posts, width, d = self.query.shape
        keys = self.key.shape[1]
        above = slopes.reshape(-1, width, d)
        content, position = (self.query + bias[:, None, None] for bias in biases)
        to_value = self.weights_after(self.weights).transpose(1, 2).bmm(above)  # [n, keys, d]
        to_weights = self.weights_after(above.bmm(self.value.transpose(1, 2)))
        # [n, width, keys]; zero for keys that come later, because their weights are
        to_scores = torch._softmax_backward_data(to_weights, self.weights, -1, above.dtype)
        to_scores *= d**-0.5
        to_content = to_scores.bmm(self.key).view_as(self.query)
        to_key = to_scores.transpose(1, 2).bmm(content.view(-1, width, d))
        by_distance = _unshift(to_scores).view(heads, posts * width, keys)
        to_position = by_distance.bmm(far[..., -keys:].transpose(1, 2)).view_as(self.query)
        to_far[..., -keys:] += position.view(heads, -1, d).transpose(1, 2).bmm(by_distance)
        to_biases[0] += to_content.sum((1, 2))
        to_biases[1] += to_position.sum((1, 2))
        both = torch.stack([to_key, to_value]).view(2, heads, posts, keys, d)
        block = torch.cat([to_content.add_(to_position)[None], both[:, :, :, keys - width :]])
        return block, both[:, :, :, : keys - width] if keys > width else None


def _look(block: Tensor, far: Tensor, biases: Tensor, past: Tensor | None, drop: Dropout) -> _Look:
    """The weights with which tokens look at those before them."""
    query = block[0]  # [heads, posts, width, d]
    heads, posts, width, d = query.shape
    seen = block[1:] if past is None else torch.cat([past, block[1:]], 3)
    key, value = seen.reshape(2, heads * posts, -1, d)
    keys = key.shape[1]
    content, position = (query + bias[:, None, None] for bias in biases)
    by_distance = position.view(heads, posts * width, d).bmm(far[..., -keys:])
    scores = content.view(-1, width, d).bmm(key.transpose(1, 2))  # [n, width, keys]
    scores += _shift(by_distance.view(-1, width, keys))
    later = scores.new_full((width, keys), float("-inf")).triu_(1 + keys - width)
    weights = torch.add(later, scores, alpha=d**-0.5).softmax(-1)
    return _Look(query, key, value, weights, drop.mask(weights))


def _shift(scores: Tensor) -> Tensor:
    """From scores by distance to scores by key: row i moves left by (width − 1 − i).

    Nothing is copied: that is what going one less from row to row does. Keys that come later see
    what belongs to the next row; they are masked.
    """
    n, width, keys = scores.shape
    return scores.as_strided((n, width, keys), (width * keys, keys - 1, 1), width - 1)


def _unshift(slopes: Tensor) -> Tensor:
    """The way back, for slopes that are zero for keys that come later."""
    n, width, keys = slopes.shape
    by_distance = slopes.new_zeros(n, width * keys)
    by_distance[:, width - 1 : -1] = slopes[..., :-1].reshape(n, -1)
    by_distance[:, -1] = slopes[:, -1, -1]
    return by_distance
