"""Decoding token by token: what was read is cached, and a new token costs one token's work.

Attention is that of :class:`firehose.models.transformer_xl.Attention`, with the keys and values of
earlier tokens taken from the cache instead of being made again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from firehose.models.personal import Personal
from firehose.models.transformer_xl import Attention, sinusoids
from firehose.models.users import NOBODY

CAPACITY = 16  # tokens that the first cache has room for


class Decoder:
    """Reads several texts of one user side by side, all of one length: the rows.

    The model is not changed: no dropout, no gradient, no new user. It must not learn meanwhile, or
    the cache is of another model.
    """

    def __init__(self, model: Personal, user: int = NOBODY, rows: int = 1) -> None:
        shape = model.plan.shape
        self.model = model
        self.length = 0  # tokens that each row has
        layers, heads, d_head = shape.layers, shape.heads, shape.d_head
        new = model.shared.embedding.new_empty
        # Keys and values, [layers, 2, heads, rows, capacity, d_head]; heads before rows, so that
        # the position term of attention is one product per head for all rows.
        self._cache = new(layers, 2, heads, rows, 0, d_head)
        # The projected vector of each distance, [layers, heads, capacity, d_head], 0 first.
        self._far = new(layers, heads, 0, d_head)
        with torch.no_grad():
            self._user = self._take(user)

    @property
    def rows(self) -> int:
        """How many texts are read."""
        return self._cache.shape[3]

    @torch.no_grad()
    def advance(self, tokens: Tensor) -> Tensor:
        """Read ``tokens`` [rows, n]; the log-probabilities of what comes next, [rows, pieces]."""
        rows, width = tokens.shape
        if rows != self.rows or not width:
            raise ValueError(f"{self.rows} rows of tokens are needed, not {rows} × {width}.")
        self._make_room(self.length + width)
        shared = self.model.shared
        keys = self.length + width
        # [width, keys]: how far back each key lies; negative for what is not read yet.
        distance = torch.arange(self.length, keys)[:, None] - torch.arange(keys)
        with _evaluating(self.model):
            hidden = functional.embedding(tokens.flatten(), shared.embedding)  # [tokens, d_model]
            hidden = self._adapt(0, hidden * self.model.plan.shape.d_model**0.5)
            for layer in range(self.model.plan.shape.layers):
                hidden = self._attend(layer, hidden, distance)
                hidden = self._adapt(layer + 1, shared.feed_forward[layer](hidden))
        self.length = keys
        last = hidden.view(rows, width, -1)[:, -1]  # [rows, d_model]
        return torch.addmm(shared.output_bias, last, shared.embedding.T).log_softmax(-1)

    def keep(self, rows: Sequence[int] | Tensor) -> None:
        """Go on with these rows, in this order; one that is named twice becomes two."""
        self._cache = self._cache.index_select(3, torch.as_tensor(rows, dtype=torch.int64))

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` tokens of each row."""
        if not 0 <= length <= self.length:
            raise ValueError(f"Cannot go back to {length} tokens: {self.length} were read.")
        self.length = length

    def _take(self, user: int) -> Tensor | None:
        """What the residual MLPs are told of a user; somebody unknown is the mean of all."""
        if not self.model.is_personal:
            return None
        taken = self.model.users.take(np.array([user]), learn=False)
        projected: Tensor = self.model.projection(taken.vectors)  # [1, d_model]
        return projected.mul_(self.model.plan.shape.d_model**0.5)

    def _adapt(self, place: int, hidden: Tensor) -> Tensor:
        """What the user adds at a place, if anything: [tokens, d_model] to the same."""
        if str(place) not in self.model.mlps:
            return hidden
        owner = torch.zeros(len(hidden), dtype=torch.int64)
        adapted: Tensor = self.model.mlps[str(place)](hidden, self._user, owner)
        return adapted

    def _attend(self, layer: int, hidden: Tensor, distance: Tensor) -> Tensor:
        """One layer's attention from the new tokens to all: [tokens, d_model] to the same."""
        attention = cast(Attention, self.model.shared.attention[layer])
        width, keys = distance.shape
        heads, rows, _, d_head = self._cache.shape[2:]
        mixed = attention.queries_keys_values(hidden).view(rows, width, 3, heads, d_head)
        mixed = mixed.permute(2, 3, 0, 1, 4)  # [3, heads, rows, width, d_head]
        self._cache[layer, :, :, :, keys - width : keys] = mixed[1:]
        query = mixed[0]
        key, value = self._cache[layer, :, :, :, :keys]  # [heads, rows, keys, d_head] each
        content, position = self.model.shared.biases[:, :, None, None, :]
        by_distance = (query + position).reshape(heads, rows * width, d_head)
        by_distance = by_distance @ self._far[layer, :, :keys].transpose(-1, -2)
        by_distance = by_distance.view(heads, rows, width, keys)
        scores = (query + content) @ key.transpose(-1, -2)  # [heads, rows, width, keys]
        scores += by_distance.gather(-1, distance.clamp(min=0).expand_as(scores))
        scores = scores.mul_(d_head**-0.5).masked_fill_(distance < 0, float("-inf"))
        found = (scores.softmax(-1) @ value).permute(1, 2, 0, 3).reshape(rows * width, -1)
        normalized: Tensor = attention.norm(hidden + attention.out(found))
        return normalized

    def _make_room(self, needed: int) -> None:
        """For ``needed`` tokens a row; capacity doubles, so the cost per token is constant."""
        had = self._cache.shape[4]
        if needed <= had:
            return
        capacity = max(needed, 2 * had, CAPACITY)
        room = self._cache.new_empty(*self._cache.shape[:4], capacity - had, self._cache.shape[5])
        self._cache = torch.cat([self._cache, room], 4)
        vectors = sinusoids(capacity, self.model.plan.shape.d_model)  # the farthest first
        vectors = vectors[: capacity - had].flip(0).to(room)
        far = torch.stack(
            [
                cast(Attention, attention).positions(vectors)
                for attention in self.model.shared.attention
            ]
        )  # [layers, capacity − had, heads · d_head]
        far = far.unflatten(2, (self._far.shape[1], -1)).transpose(1, 2)
        self._far = torch.cat([self._far, far], 2)


@contextmanager
def _evaluating(model: Personal) -> Iterator[None]:
    """Without dropout inside, and as it was afterwards."""
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()
