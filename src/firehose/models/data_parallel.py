"""A model whose batches are divided among processes; all else is the model's own.

Every process has the whole model. Of a batch it computes a share of the posts, with about as many
tokens as any other; then what all have found is joined, so that each process has the result of the
whole batch, to the bit the same in each. Whoever asks does not know.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firehose.batch import Batch, Part, gather
from firehose.models.model import Outlook, Paid
from firehose.models.personal import LOG_PROBS, PIECES, Personal
from firehose.models.users import Users
from firehose.optim.gradient import Gradient
from firehose.parallel import group


class DataParallel:
    """The same as a model, computed by all processes together."""

    users: Users
    max_tokens: int
    train: Callable[[], Any]
    parameters: Callable[[], Iterator[nn.Parameter]]
    named_parameters: Callable[[], Iterator[tuple[str, nn.Parameter]]]
    state: Callable[[], dict[str, Any]]
    restore: Callable[[Mapping[str, Any]], None]

    def __init__(self, model: Personal) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def gradient(self, batch: Batch) -> Gradient:
        """The gradient of the loss on a batch; users who are new in it get a row."""
        return add_up(self.model.gradient(batch, self.part(batch, self.max_tokens)))

    def gradient_toward_outputs(self, batch: Batch) -> Gradient:
        """The gradient of the cross-entropy to what ``with_outputs`` has put beside the posts."""
        part = self.part(batch, self.max_tokens)
        return add_up(self.model.gradient_toward_outputs(batch, part))

    def cost(self, batch: Batch) -> float:
        """The loss on a batch, without changing anything."""
        part = self.part(batch, self.max_tokens)
        return float(_joined(np.array([self.model.cost(batch, part)]))[0])

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""
        part, nats = self.part(batch), np.zeros(len(batch))
        nats[part] = self.model.pay(batch, part).nats
        return Paid(_joined(nats), batch.words)

    def outlook(self, batch: Batch) -> Outlook:
        """What it says of each piece of a batch but the first of a post, and how sure it was."""
        part = self.part(batch)
        return Outlook(*joined_places(batch, part, np.array(self.model.outlook(batch, part))))

    def with_outputs(self, batch: Batch, count: int) -> Batch:
        """The posts, and beside each token the most probable pieces in its place when it came."""
        part = self.part(batch, self.max_tokens)
        found = self.model.with_outputs(batch, count, part).per_token
        columns = np.stack([found[PIECES], found[LOG_PROBS]]).astype(np.float64)
        pieces, log_probs = _joined(columns)
        per_token = {
            PIECES: pieces.astype(batch.tokens.dtype),
            LOG_PROBS: log_probs.astype(np.float16),
        }
        return batch.with_columns(per_token=per_token)

    def part(self, batch: Batch, max_tokens: int | None = None) -> Part:
        """The posts of a batch that are this process's."""
        lengths = batch.lengths if max_tokens is None else np.minimum(batch.lengths, max_tokens)
        return divided(lengths - 1, group.size())[group.rank()]


def spread(model: Personal) -> Personal | DataParallel:
    """The model as all processes together compute it; alone, the model itself."""
    return DataParallel(model) if group.size() > 1 else model


def plain(model: Any) -> Any:
    """The model of this process alone."""
    return model.model if isinstance(model, DataParallel) else model


def divided(tokens: NDArray[np.int64], parts: int) -> list[Part]:
    """Deal posts with so many tokens each out to parts that have about as many tokens each.

    The longest post is dealt first, and each goes to the part that has the fewest tokens so far.
    """
    sizes, sums = tokens.tolist(), [0] * parts
    dealt: list[list[int]] = [[] for _ in range(parts)]
    for post in np.argsort(-tokens, kind="stable").tolist():
        least = sums.index(min(sums))
        dealt[least].append(post)
        sums[least] += sizes[post]
    return [np.sort(np.array(part, np.int64)) for part in dealt]


def add_up(gradient: Gradient) -> Gradient:
    """The gradient of a whole batch from that of each process's part of it.

    Every process has the users of the whole batch, and zeros for those who are in other parts.
    """
    (shared,) = gradient.moving()
    like = shared[0]
    loss = torch.tensor([gradient.loss])
    *parts, users, found = group.added_up([e.to(like) for e in (*shared, gradient.users, loss)])
    moved = iter(parts)
    gradient.shared = [None if each is None else next(moved) for each in gradient.shared]
    gradient.users = users.to(gradient.users)
    gradient.loss = float(found)
    return gradient


def places_of(batch: Batch, part: Part) -> NDArray[np.int64]:
    """Which of the predicted places of a batch are those of some of its posts."""
    lengths = batch.lengths - 1
    places, _ = gather((np.cumsum(lengths) - lengths)[part], lengths[part])
    return places


def joined_places(batch: Batch, part: Part, found: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each process has found at the places of its posts, ``[rows, places]``, put together."""
    whole = np.zeros((len(found), len(batch.tokens) - len(batch)))
    whole[:, places_of(batch, part)] = found
    return _joined(whole)


def _joined(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each process has found of its part, with zeros for all others, put together."""
    group.add_up(torch.from_numpy(values))
    return values
