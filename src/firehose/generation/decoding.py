"""Decoding token by token: keys and values are cached, so a token costs one token's work."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from firehose.models.attention import attend_rows
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

    @torch.no_grad()
    def advance(self, tokens: Tensor) -> Tensor:
        """Read ``tokens`` [rows, n]; return log-probabilities of the next piece, [rows, pieces]."""
        rows, width = tokens.shape
        if rows != self.rows or not width:
            raise ValueError(f"{self.rows} rows of tokens are needed, not {rows} × {width}.")
        self._make_room(self.length + width)
        shared, shape = self.model.shared, self.model.plan.shape
        device = self.model.device.device
        owner = torch.zeros(rows * width, dtype=torch.int64, device=device)
        with evaluating(self.model):
            hidden = functional.embedding(tokens.flatten().to(device), shared.embedding)
            hidden = hidden * shape.d_model**0.5  # [tokens, d_model]
            hidden = self.model.adapt(0, hidden, self._user, owner)
            for layer in range(shape.layers):
                hidden = self._attend(layer, hidden, width)
                hidden = shared.feed_forward[layer](hidden)
                hidden = self.model.adapt(layer + 1, hidden, self._user, owner)
        self.length += width
        last = hidden.view(rows, width, -1)[:, -1]  # [rows, d_model]
        return torch.addmm(shared.output_bias, last, shared.embedding.T).log_softmax(-1).cpu()

    def keep(self, rows: Sequence[int] | Tensor) -> None:
        """Keep these rows, in this order; one that is named twice is copied."""
        kept = torch.as_tensor(rows, dtype=torch.int64).to(self._cache.device)
        self._cache = self._cache.index_select(3, kept)

    def rewind(self, length: int) -> None:
        """Drop all but the first ``length`` tokens of each row."""
        if not 0 <= length <= self.length:
            raise ValueError(f"Cannot go back to {length} tokens: {self.length} were read.")
        self.length = length

    def _attend(self, layer: int, hidden: Tensor, width: int) -> Tensor:
        """One layer's attention of the new tokens to all: [tokens, d_model] to the same."""
        shared, cache = self.model.shared, self._cache[layer]
        attention = cast(Attention, shared.attention[layer])
        qkv = attention.queries_keys_values(hidden).view(self.rows, width, -1)
        past = cache[..., : self.length, :]  # [2, heads, rows, seen, d_head]
        found, new = attend_rows(qkv, self._relative_keys[layer], shared.biases, past)
        cache[..., self.length : self.length + width, :] = new
        return attention.norm(hidden + attention.out(found))  # type: ignore[no-any-return]

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
