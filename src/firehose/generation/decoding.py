"""Decoding token by token: keys and values are cached, so a token costs one token's work."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from firehose.models.attention import attend_rows
from firehose.models.linear import linear
from firehose.models.personal import Personal, evaluating
from firehose.models.transformer_xl import Attention, sinusoids
from firehose.models.users import NOBODY

CAPACITY = 16  # tokens that a first cache has room for


class Decoder:
    """Reads several texts of one user side by side, all of one length: its rows.

    The model is not changed: no dropout, no gradient, no new user. It must not learn between two
    calls, or the cache would be that of another model.
    """

    @torch.no_grad()
    def __init__(self, model: Personal, user: int = NOBODY, rows: int = 1) -> None:
        shape = model.plan.shape
        self.model = model
        self.length = 0  # tokens that each row has
        new = model.shared.embedding.new_empty
        # Keys and values, [layers, 2, heads, rows, capacity, d_head].
        self._cache = new(shape.layers, 2, shape.heads, rows, 0, shape.d_head)
        # [layers, heads, d_head, capacity], the farthest first.
        self._relative_keys = new(shape.layers, shape.heads, shape.d_head, 0)
        self._user = model.project(model.users.take(np.array([user]), learn=False))

    @property
    def rows(self) -> int:
        """The number of texts."""
        return self._cache.shape[3]

    def advance(self, tokens: Tensor) -> Tensor:
        """Read ``tokens`` [rows, n]; return log-probabilities of the next piece, [rows, pieces]."""
        rows, width = tokens.shape
        if rows != self.rows or not width:
            raise ValueError(f"{self.rows} rows of tokens are needed, not {rows} × {width}.")
        self._make_room(self.length + width)
        owner = torch.zeros(rows, dtype=torch.int64)
        past = self._cache[..., : self.length, :]
        found, new = _read(self.model, tokens, past, self._relative_keys, self._user, owner)
        for cache, both in zip(self._cache, new, strict=True):
            cache[..., self.length : self.length + width, :] = both
        self.length += width
        return found

    @staticmethod
    def peek(decoders: Sequence["Decoder"], tokens: Sequence[Tensor]) -> list[Tensor]:
        """Log-probabilities after further ``tokens`` of each, ``[rows, n]`` with one n for all.

        The decoders are of one model, have a row each, and stay as they are. All is read as one
        batch: a large model takes little longer for many rows than for one.
        """
        counts = [len(each) for each in tokens]
        width, longest = tokens[0].shape[1], max(decoder.length for decoder in decoders)
        for decoder in decoders:
            decoder._make_room(decoder.length + width)
        owner = torch.arange(len(decoders)).repeat_interleave(torch.tensor(counts))
        pairs = zip(decoders, counts, strict=True)
        past = [decoder._past(rows, longest - decoder.length) for decoder, rows in pairs]
        lengths = torch.tensor([decoder.length for decoder in decoders])
        gaps = None
        if lengths.min() < longest:
            is_gap = torch.arange(longest) < (longest - lengths)[:, None]
            gaps = torch.zeros(is_gap.shape).masked_fill(is_gap, float("-inf"))[owner]
        roomiest = max(decoders, key=lambda decoder: decoder._cache.shape[4])
        found, _ = _read(
            roomiest.model,
            torch.cat(list(tokens)),
            torch.cat(past, 3) if len(past) > 1 else past[0],
            roomiest._relative_keys,
            torch.cat([decoder._user for decoder in decoders]),
            owner,
            gaps,
        )
        return list(found.split(counts))

    def _past(self, rows: int, gap: int) -> Tensor:
        """The cache of its one row, so many times, after a gap."""
        cache = self._cache[..., : self.length, :]
        cache = functional.pad(cache, (0, 0, gap, 0)) if gap else cache
        return cache.expand(*cache.shape[:3], rows, *cache.shape[4:])

    def keep(self, rows: Sequence[int] | Tensor) -> None:
        """Keep these rows, in this order; one that is named twice is copied."""
        kept = torch.as_tensor(rows, dtype=torch.int64).to(self._cache.device)
        self._cache = self._cache.index_select(3, kept)

    def rewind(self, length: int) -> None:
        """Drop all but the first ``length`` tokens of each row."""
        if not 0 <= length <= self.length:
            raise ValueError(f"Cannot go back to {length} tokens: {self.length} were read.")
        self.length = length

    def _make_room(self, needed: int) -> None:
        """Make room for ``needed`` tokens a row; capacity doubles, so a token costs the same."""
        had = self._cache.shape[4]
        if needed <= had:
            return
        more = max(needed, 2 * had, CAPACITY) - had
        empty = self._cache.new_empty(*self._cache.shape[:4], more, self._cache.shape[5])
        self._cache = torch.cat([self._cache, empty], 4)
        vectors = sinusoids(had + more, self.model.plan.shape.d_model)[:more].to(empty)
        layers = (cast(Attention, layer) for layer in self.model.shared.attention)
        keys = torch.stack([layer.positions(vectors) for layer in layers])  # [layers, more, …]
        known = self._relative_keys
        self._relative_keys = torch.cat([keys.mT.reshape(*known.shape[:3], more), known], 3)


@torch.no_grad()
def _read(
    model: Personal,
    tokens: Tensor,
    past: Tensor,
    relative_keys: Tensor,
    users: Tensor,
    owner: Tensor,
    gaps: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Log-probabilities after ``tokens`` [rows, n], and these tokens' keys and values, by layer.

    ``past`` are the keys and values of what each row has read, ``[layers, 2, heads, rows, seen,
    d_head]``, and ``relative_keys`` those of distances, ``[layers, heads, d_head, seen + n]`` or
    more. ``users`` are the vectors of who writes, and ``owner`` says who writes each row. For
    ``gaps`` see ``attend_rows``.
    """
    (rows, width), shared, shape = tokens.shape, model.shared, model.plan.shape
    device = model.device.device
    owner = owner.repeat_interleave(width).to(device)
    gaps = None if gaps is None else gaps.to(past)
    new = []
    with evaluating(model):
        hidden = functional.embedding(tokens.flatten().to(device), shared.embedding)
        hidden = hidden * shape.d_model**0.5  # [tokens, d_model]
        hidden = model.adapt(0, hidden, users, owner)
        for layer in range(shape.layers):
            attention = cast(Attention, shared.attention[layer])
            qkv = attention.queries_keys_values(hidden).view(rows, width, -1)
            keys = relative_keys[layer]
            found, both = attend_rows(qkv, keys, shared.biases, past[layer], gaps)
            new.append(both)
            hidden = attention.norm(hidden + attention.out(found))
            hidden = shared.feed_forward[layer](hidden)
            hidden = model.adapt(layer + 1, hidden, users, owner)
    last = hidden.view(rows, width, -1)[:, -1]  # [rows, d_model]
    logits = linear(last, shared.embedding, shared.output_bias)
    return logits.log_softmax(-1).cpu(), new
