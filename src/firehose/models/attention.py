"""Relative attention among the tokens of each post of a flat batch (Dai et al. 2019).

A batch is one matrix of tokens without padding. Only here, where the tokens of a post look at
each other, they are laid out on padded grids, and taken back. A score is the sum of a content and
a position term, each with a bias of its own.

Forward and backward are written by hand as one operation: what autograd would record here is a
few dozen passes over the same numbers, for products so small that the passes cost more.
"""

from contextlib import nullcontext
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

    def __init__(
        self, lengths: Tensor, groups: int = 4, device: torch.device | str = "cpu"
    ) -> None:
        posts = len(lengths)
        tokens = int(lengths.sum())
        post = torch.repeat_interleave(torch.arange(posts), lengths, output_size=tokens)
        self.device = device  # of what is laid out; how it is, is worked out on the CPU
        self.post = post.to(device)
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
            rows = Rows(every, back, is_padding.nonzero().flatten())
            self._rows[parts, heads] = Rows(*(row.to(self.device) for row in rows))
        return self._rows[parts, heads]

    def blocks(self, laid: Tensor, parts: int, heads: int) -> list[Tensor]:
        """``[on the grids, d]`` as ``[parts, heads, posts, width, d]`` for each group."""
        sizes = [parts * heads * group.posts * group.width for group in self.groups]
        return [
            block.view(parts, heads, *group, -1)
            for block, group in zip(laid.split(sizes), self.groups, strict=True)
        ]

    def lay(self, vectors: Tensor, parts: int, heads: int) -> Tensor:
        """``[tokens, parts · heads · d]`` to ``[on the grids, d]``."""
        d = vectors.shape[-1] // (parts * heads)
        return vectors.reshape(-1, d).index_select(0, self.rows(parts, heads).into)

    def lay_slopes(self, slopes: Tensor, heads: int) -> Tensor:
        """As ``lay`` with one part, but zero on padding: nothing is to be learned there."""
        return self.lay(slopes, 1, heads).index_fill_(0, self.rows(1, heads).padding, 0)

    def take(self, laid: Tensor, parts: int, heads: int) -> Tensor:
        """The way back; what is on padding is left there."""
        taken = laid.index_select(0, self.rows(parts, heads).back)
        return taken.view(-1, parts * heads * laid.shape[-1])


def attend(
    mixed: Tensor, far: Tensor, biases: Tensor, past: Tensor | None, grid: Grid, drop: Dropout
) -> Tensor:
    """What each token finds, ``[tokens, heads · d]``.

    ``mixed`` [tokens, 3 · heads · d] are queries, keys and values; ``far`` [heads, d, distances]
    stands for distances, the farthest first; ``biases`` [2, heads, d] are those of content and
    position; ``past`` [2, heads, posts, seen, d] are keys and values of an earlier segment.
    """
    biases = biases.to(mixed.dtype)
    is_cast = mixed.dtype == torch.bfloat16  # all of it is, already
    with torch.autocast(mixed.device.type, enabled=False) if is_cast else nullcontext():
        return _Attend.apply(mixed, far, biases, past, grid, drop)  # type: ignore[no-any-return, no-untyped-call]


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
        laid = grid.lay(mixed, 3, heads)
        found = laid.new_empty(len(laid) // 3, laid.shape[1])
        blocks = zip(grid.blocks(laid, 3, heads), grid.blocks(found, 1, heads), strict=True)
        kept = []
        for block, out in blocks:
            looked = _look(block, far, biases, past, drop)
            weights = looked.dropped(looked.weights)
            torch.bmm(weights, looked.value, out=out.view(len(weights), -1, out.shape[-1]))
            kept.append(looked)
        context.save_for_backward(far, biases)
        context.kept, context.grid = kept, grid
        return grid.take(found, 1, heads)

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        far, biases = context.saved_tensors
        grid: Grid = context.grid
        heads = len(far)
        to_far, to_biases = torch.zeros_like(far), torch.zeros_like(biases)
        above = grid.lay_slopes(outer[0], heads)
        below = above.new_empty(3 * len(above), above.shape[1])
        to_past = None
        for looked, slopes, block in zip(
            context.kept, grid.blocks(above, 1, heads), grid.blocks(below, 3, heads), strict=True
        ):
            to_past = looked.differentiate(slopes[0], far, biases, to_far, to_biases, block)
        return grid.take(below, 3, heads), to_far, to_biases, to_past, None, None


class _Look(NamedTuple):
    """One group's attention, with what the way back needs. ``n`` is heads · posts."""

    query: Tensor  # [heads, posts, width, d]
    key: Tensor  # [n, keys, d]
    value: Tensor  # [n, keys, d]
    weights: Tensor  # [n, width, keys]
    mask: Mask | None

    def dropped(self, weights: Tensor) -> Tensor:
        """Weights, or their slopes, after dropout."""
        return weights if self.mask is None else self.mask.of(weights)

    def differentiate(
        self,
        slopes: Tensor,
        far: Tensor,
        biases: Tensor,
        to_far: Tensor,
        to_biases: Tensor,
        block: Tensor,
    ) -> Tensor | None:
        """From the slopes of what was found to those of its block; returns those of its past."""
        heads, posts, width, d = self.query.shape
        n, keys, _ = self.key.shape
        above = slopes.view(n, width, d)
        content, position = (self.query + bias[:, None, None] for bias in biases)
        to_weights = self.dropped(above.bmm(self.value.transpose(1, 2)))
        # [n, width, keys]; zero for keys that come later, because their weights are
        to_scores = torch._softmax_backward_data(to_weights, self.weights, -1, above.dtype)
        to_scores *= d**-0.5
        # Straight into the block, unless there are keys and values of a past as well.
        both = block[1:].view(2, n, width, d) if keys == width else above.new_empty(2, n, keys, d)
        torch.bmm(to_scores.transpose(1, 2), content.view(n, width, d), out=both[0])
        torch.bmm(self.dropped(self.weights).transpose(1, 2), above, out=both[1])
        to_query = torch.bmm(to_scores, self.key, out=block[0].view(n, width, d))
        to_biases[0] += to_query.view(heads, -1, d).sum(1)
        by_distance = _unshift(to_scores).view(heads, posts * width, keys)
        to_position = by_distance.bmm(far[..., -keys:].transpose(1, 2))
        to_biases[1] += to_position.sum(1)
        to_query += to_position.view(n, width, d)
        to_far[..., -keys:] += position.view(heads, -1, d).transpose(1, 2).bmm(by_distance)
        if keys == width:
            return None
        both = both.view(2, heads, posts, keys, d)
        block[1:] = both[..., keys - width :, :]
        return both[..., : keys - width, :]


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
