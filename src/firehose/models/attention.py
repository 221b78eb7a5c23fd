"""Relative attention among the tokens of each post of a flat batch (Dai et al. 2019).

A batch is one matrix of tokens without padding. Only here, where the tokens of a post look at
each other, they are laid out on padded grids, and taken back. A score is the sum of a content and
a position term, each with a bias of its own.

Forward and backward are written by hand as one operation: autograd would record a few dozen
passes over the same numbers, which cost more than the small products themselves.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.batch import Part, gather
from firehose.models.dropout import Dropout, Mask, Share


class Rows(NamedTuple):
    """Indices that move the vectors of tokens onto the grids and back."""

    into: Tensor  # [grid rows], the flat row of each; padding repeats a row of its post
    back: Tensor  # [flat rows], the grid row of each
    padding: Tensor  # the grid rows that are padding


class Grid:
    """How the posts of a flat batch are laid out for attention.

    Attention costs the square of a grid's width, and most posts are much shorter than the
    longest one; so there are several grids, each for posts of similar length.

    ``lengths`` are those of a whole batch. With ``part``, only these of its posts are laid out,
    on the grids that the whole batch has.
    """

    def __init__(
        self,
        lengths: Tensor,
        groups: int = 4,
        device: torch.device | str = "cpu",
        part: Part | None = None,
    ) -> None:
        posts, own = len(lengths), lengths if part is None else lengths[part]
        tokens = int(own.sum())
        post = torch.repeat_interleave(torch.arange(len(own)), own, output_size=tokens)
        self.device = device  # where the indices go; they are computed on the CPU
        self.lengths, self.post = own.to(device), post.to(device)
        self.width = int(lengths.max()) if posts else 0
        self.tokens = None if part is None else _tokens_of(lengths.numpy(), part)
        # Of each group, [posts, width]: the flat rows that go there, and what is padding.
        self.sources: list[Tensor] = []
        self.paddings: list[Tensor] = []
        self.shares: list[Share | None] = []  # which of a group's posts are laid out; None: all
        starts = torch.cumsum(own, 0) - own
        edges = [round(posts * number / groups) for number in range(1, groups)]
        place = None if part is None else _places_in(part, posts)
        for members in torch.argsort(lengths, stable=True).tensor_split(edges):
            if len(members):
                step = torch.arange(int(lengths[members[-1]]))
                laid, share = _laid_out(members, place)
                padding = step >= own[laid, None]
                self.sources.append(starts[laid, None] + step.masked_fill(padding, 0))
                self.paddings.append(padding)
                self.shares.append(share)
        self._rows: dict[tuple[int, int], Rows] = {}

    def rows(self, parts: int, heads: int) -> Rows:
        """Indices from ``[tokens, parts, heads]`` vectors to ``[parts, heads, posts, width]``."""
        if (parts, heads) not in self._rows:
            per_token = parts * heads
            lane = torch.arange(per_token)[:, None]
            sources = [(each.flatten() * per_token + lane).flatten() for each in self.sources]
            paddings = [each.flatten().repeat(per_token) for each in self.paddings]
            into = torch.cat([torch.zeros(0, dtype=torch.int64), *sources])
            is_padding = torch.cat([torch.zeros(0, dtype=torch.bool), *paddings])
            real = (~is_padding).nonzero().flatten()
            back = torch.empty(len(self.post) * per_token, dtype=torch.int64)
            back[into[real]] = real
            rows = Rows(into, back, is_padding.nonzero().flatten())
            self._rows[parts, heads] = Rows(*(row.to(self.device) for row in rows))
        return self._rows[parts, heads]

    def blocks(self, laid: Tensor, parts: int, heads: int) -> list[Tensor]:
        """View ``[grid rows, d]`` as ``[parts, heads, posts, width, d]`` for each group."""
        blocks = laid.split([parts * heads * source.numel() for source in self.sources])
        pairs, d = zip(blocks, self.sources, strict=True), laid.shape[1]
        return [block.view(parts, heads, *source.shape, d) for block, source in pairs]

    def lay(self, vectors: Tensor, parts: int, heads: int) -> Tensor:
        """Copy ``[tokens, parts · heads · d]`` onto the grids, ``[grid rows, d]``."""
        d = vectors.shape[-1] // (parts * heads)
        return vectors.reshape(-1, d).index_select(0, self.rows(parts, heads).into)

    def lay_gradients(self, gradients: Tensor, heads: int) -> Tensor:
        """As ``lay`` with one part, but with zeros on padding, where no gradient may arise."""
        return self.lay(gradients, 1, heads).index_fill_(0, self.rows(1, heads).padding, 0)

    def take(self, laid: Tensor, parts: int, heads: int) -> Tensor:
        """Copy ``[grid rows, d]`` back to ``[tokens, parts · heads · d]``, without the padding."""
        taken = laid.index_select(0, self.rows(parts, heads).back)
        return taken.view(-1, parts * heads * laid.shape[-1])


def _tokens_of(lengths: NDArray[np.int64], part: Part) -> Share:
    """The tokens of some posts among those of all."""
    ends = np.cumsum(lengths)
    places, _ = gather((ends - lengths)[part], lengths[part])
    return Share(int(lengths.sum()), places)


def _places_in(part: Part, posts: int) -> Tensor:
    """Where in a part each post of a batch is; −1: in another part."""
    place = np.full(posts, -1)
    place[part] = np.arange(len(part))
    return torch.from_numpy(place)


def _laid_out(members: Tensor, place: Tensor | None) -> tuple[Tensor, Share | None]:
    """The posts of a group that are in a part, by their places there; and which these are."""
    if place is None:
        return members, None
    laid = place[members]
    chosen = (laid >= 0).nonzero().flatten()
    return laid[chosen], Share(len(members), chosen.numpy(), axis=1)


def attend(qkv: Tensor, relative_keys: Tensor, biases: Tensor, grid: Grid, drop: Dropout) -> Tensor:
    """Attention of each token to itself and the tokens before it, ``[tokens, heads · d]``.

    ``qkv`` [tokens, 3 · heads · d] are queries, keys and values; ``relative_keys`` [heads, d,
    distances] are the keys of distances, the farthest first; ``biases`` [2, heads, d] are those of
    content and position.
    """
    biases = biases.to(qkv.dtype)
    is_cast = qkv.dtype == torch.bfloat16  # all of it is, already
    with torch.autocast(qkv.device.type, enabled=False) if is_cast else nullcontext():
        return _Attend.apply(qkv, relative_keys, biases, grid, drop)  # type: ignore[no-any-return, no-untyped-call]


def attend_rows(
    qkv: Tensor, relative_keys: Tensor, biases: Tensor, past: Tensor, gaps: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As ``attend``, for texts of one length that go on: without padding, dropout and gradients.

    ``qkv`` is [texts, width, 3 · heads · d]; ``past`` [2, heads, texts, seen, d] are keys and
    values of the tokens that were read before these. Where a text has read less than others, its
    ``gaps`` [texts, seen] are −∞ before its first token, and 0 from there on. Returns the outputs,
    [texts · width, heads · d], and the keys and values of these, [2, heads, texts, width, d].
    """
    _, heads, texts, _, d = past.shape
    block = qkv.view(texts, -1, 3, heads, d).permute(2, 3, 0, 1, 4).contiguous()
    group = _attend_group(block, relative_keys, biases, past, gaps=gaps)
    found = group.weights.bmm(group.value).view(heads, texts, -1, d)
    return found.permute(1, 2, 0, 3).reshape(-1, heads * d), block[1:]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        qkv: Tensor,
        relative_keys: Tensor,
        biases: Tensor,
        grid: Grid,
        drop: Dropout,
    ) -> Tensor:
        heads = len(relative_keys)
        laid = grid.lay(qkv, 3, heads)
        outputs = laid.new_empty(len(laid) // 3, laid.shape[1])
        context.save_for_backward(relative_keys, biases)
        context.groups, context.grid = [], grid
        blocks = (grid.blocks(laid, 3, heads), grid.blocks(outputs, 1, heads))
        for block, out, share in zip(*blocks, grid.shares, strict=True):
            group = _attend_group(block, relative_keys, biases, None, drop, share)
            weights = group.dropped(group.weights)
            torch.bmm(weights, group.value, out=out.view(*weights.shape[:2], out.shape[-1]))
            context.groups.append(group)
        return grid.take(outputs, 1, heads)

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        relative_keys, biases = context.saved_tensors
        grid: Grid = context.grid
        heads = len(relative_keys)
        to_relative_keys, to_biases = torch.zeros_like(relative_keys), torch.zeros_like(biases)
        above = grid.lay_gradients(outer[0], heads)
        below = above.new_empty(3 * len(above), above.shape[1])
        for group, gradients, block in zip(
            context.groups, grid.blocks(above, 1, heads), grid.blocks(below, 3, heads), strict=True
        ):
            to_keys, to_bias = group.differentiate(gradients, relative_keys, biases, block)
            to_relative_keys[..., -to_keys.shape[-1] :] += to_keys
            to_biases += to_bias
        return grid.take(below, 3, heads), to_relative_keys, to_biases, None, None


class _GroupAttention(NamedTuple):
    """The attention of one group, with what its backward pass needs. ``n`` is heads · posts."""

    query: Tensor  # [heads, posts, width, d]
    key: Tensor  # [n, keys, d]
    value: Tensor  # [n, keys, d]
    weights: Tensor  # [n, width, keys]
    mask: Mask | None

    def dropped(self, weights: Tensor) -> Tensor:
        """Apply dropout's mask to weights, or to their gradients."""
        return weights if self.mask is None else self.mask.of(weights)

    def differentiate(
        self, gradients: Tensor, relative_keys: Tensor, biases: Tensor, block: Tensor
    ) -> tuple[Tensor, Tensor]:
        """From the gradients of the outputs, write those of the queries, keys and values.

        They go into ``block`` [3, heads, posts, width, d]. Those of the nearest relative keys and
        of the biases are returned. There is no past: every key is one of the block.
        """
        heads, posts, width, d = self.query.shape
        n = heads * posts
        above = gradients.view(n, width, d)
        content, position = (self.query + bias[:, None, None] for bias in biases)
        to_weights = self.dropped(above.bmm(self.value.transpose(1, 2)))
        # [n, width, width]; zero for keys that come later, because their weights are
        to_scores = torch._softmax_backward_data(to_weights, self.weights, -1, above.dtype)
        to_scores *= d**-0.5
        both = block[1:].view(2, n, width, d)
        torch.bmm(to_scores.transpose(1, 2), content.view(n, width, d), out=both[0])
        torch.bmm(self.dropped(self.weights).transpose(1, 2), above, out=both[1])
        to_query = torch.bmm(to_scores, self.key, out=block[0].view(n, width, d))
        to_content_bias = to_query.view(heads, posts * width, d).sum(1)
        by_distance = _unshift(to_scores).view(heads, posts * width, width)
        to_position = by_distance.bmm(relative_keys[..., -width:].transpose(1, 2))
        to_query += to_position.view(n, width, d)
        to_biases = torch.stack([to_content_bias, to_position.sum(1)])
        to_keys = position.view(heads, posts * width, d).transpose(1, 2).bmm(by_distance)
        return to_keys, to_biases


def _attend_group(
    block: Tensor,
    relative_keys: Tensor,
    biases: Tensor,
    past: Tensor | None,
    drop: Dropout | None = None,
    share: Share | None = None,
    gaps: Tensor | None = None,
) -> _GroupAttention:
    """The attention weights of a group, from ``block`` [3, heads, posts, width, d] and a past."""
    query = block[0]  # [heads, posts, width, d]
    heads, posts, width, d = query.shape
    seen = block[1:] if past is None else torch.cat([past, block[1:]], 3)
    n, keys = heads * posts, seen.shape[3]
    key, value = seen.reshape(2, n, keys, d)
    content, position = (query + bias[:, None, None] for bias in biases)
    by_distance = position.view(heads, posts * width, d).bmm(relative_keys[..., -keys:])
    scores = content.view(n, width, d).bmm(key.transpose(1, 2))  # [n, width, keys]
    scores += _shift(by_distance.view(n, width, keys))
    if gaps is not None:
        scores.view(heads, posts, width, keys)[..., : gaps.shape[1]] += gaps[:, None]
    later = scores.new_full((width, keys), float("-inf")).triu_(1 + keys - width)
    weights = torch.add(later, scores, alpha=d**-0.5).softmax(-1)
    mask = None
    if drop is not None:
        mask = drop.mask(weights.view(heads, posts, width, keys), share)
    if mask is not None:
        mask = mask._replace(kept=mask.kept.reshape(n, width, keys))
    return _GroupAttention(query, key, value, weights, mask)


def _shift(scores: Tensor) -> Tensor:
    """Turn scores by distance into scores by key: row i moves left by (width − 1 − i).

    Nothing is copied: a row stride that is smaller by one does it. Keys that come later get
    numbers of the next row; they are masked.
    """
    n, width, keys = scores.shape
    return scores.as_strided((n, width, keys), (width * keys, keys - 1, 1), width - 1)


def _unshift(gradients: Tensor) -> Tensor:
    """Turn gradients by key, zero for keys that come later, into gradients by distance."""
    n, width, keys = gradients.shape
    by_distance = gradients.new_zeros(n, width * keys)
    by_distance[:, width - 1 : -1] = gradients[..., :-1].reshape(n, width * (keys - 1))
    by_distance[:, -1] = gradients[:, -1, -1]
    return by_distance
