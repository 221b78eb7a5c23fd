"""The softmax over all pieces, in chunks: never more than one chunk of logits is in memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

CERTAIN = 1e-6  # no more than this is left to pieces that are not named
CHUNK = 1280  # tokens: 1280 × 32,000 logits are 164 MB; smaller products are slower


class _Loss(torch.autograd.Function):
    """Σ weight · cross-entropy; the gradient is computed in the forward pass, chunk by chunk.

    The targets are one piece for each token or, with ``shares``, the probabilities of several.

    It costs three products with the embedding, as without chunks, and saves the memory of the
    logits, their softmax and its gradient, three matrices of tokens × pieces. The weights are
    multiplied into the narrow side of each product, never into a matrix as wide as the pieces.
    """

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        embedding: Tensor,
        bias: Tensor,
        targets: Tensor,
        weights: Tensor,
        shares: Tensor | None,
    ) -> Tensor:
        loss = weights.new_zeros(())
        to_hidden = torch.empty_like(hidden)
        # The first chunk overwrites, so that the memory need not be zero before.
        to_embedding = torch.empty_like(embedding) if len(hidden) else torch.zeros_like(embedding)
        to_bias = torch.zeros_like(bias)
        for number, (rows, logits) in enumerate(_logits(hidden, embedding, bias)):
            near, target, weight = hidden[rows], targets[rows], weights[rows, None]
            costs, to_logits = _costs(logits.to(weights.dtype), target)
            if shares is None:
                to_logits.scatter_add_(1, target, -torch.ones_like(weight))
            else:
                costs = _toward(costs, to_logits, target, shares[rows])
            loss += (costs * weight).sum()
            to_logits = to_logits.to(hidden.dtype)
            weight = weight.to(hidden.dtype)
            torch.mm(to_logits, embedding, out=to_hidden[rows]).mul_(weight)
            to_embedding.addmm_(to_logits.T, near * weight, beta=float(number > 0))
            to_bias.addmv_(to_logits.T, weight[:, 0])
        context.save_for_backward(to_hidden, to_embedding, to_bias)
        return loss

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients = context.saved_tensors
        if outer[0] != 1:  # it is, unless the loss is one of several
            gradients = [gradient * outer[0] for gradient in gradients]
        return (*gradients, None, None, None)


def _costs(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """−log p of each target, and all probabilities, in the memory of the logits where possible."""
    largest, wanted = logits.amax(1, keepdim=True), logits.gather(1, target)
    # Row by row, so it can be done in place; there is a test that it is, on a CPU.
    room = logits if logits.device.type == "cpu" else None
    probability = torch.softmax(logits, 1, out=room)
    # The largest probability is 1 / Σ exp(logit − largest logit), and never too small.
    normalizer = largest - probability.amax(1, keepdim=True).log()
    return normalizer - wanted, probability


def _toward(costs: Tensor, to_logits: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """The cross-entropy of each token to the shares of some pieces and, together, of all others.

    ``costs`` are −log p of these pieces. ``to_logits``, all probabilities, becomes the gradient.
    """
    named = torch.exp(-costs)
    others = (1 - share.sum(1, keepdim=True)).clamp_(min=0)
    left = (1 - named.sum(1, keepdim=True)).clamp_(min=CERTAIN)
    to_logits.mul_(1 - others / left).scatter_(1, target, named - share)
    return (share * costs).sum(1, keepdim=True) - others * left.log()


def _logits(hidden: Tensor, embedding: Tensor, bias: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The logits of a chunk of the tokens after another, each in the memory of the one before.

    Chunks have about the same size, at most ``CHUNK`` tokens each.
    """
    tokens = len(hidden)
    size = -(-tokens // max(-(-tokens // CHUNK), 1))
    room = hidden.new_empty(size, len(embedding))
    for start in range(0, tokens, size or 1):
        rows = slice(start, min(start + size, tokens))
        yield rows, torch.addmm(bias, hidden[rows], embedding.T, out=room[: rows.stop - start])


def weighted_loss(
    hidden: Tensor, embedding: Tensor, bias: Tensor, targets: Tensor, weights: Tensor
) -> Tensor:
    """Σ weight · (−log p(target)), to be differentiated.

    ``hidden``, ``embedding`` and ``bias`` are of one type, which may be ``bfloat16``; probabilities
    and their sums are of the weights' type.
    """
    parts = (hidden, embedding, bias, targets[:, None], weights, None)
    loss: Tensor = _Loss.apply(*parts)  # type: ignore[no-untyped-call]
    return loss


def soft_loss(
    hidden: Tensor, embedding: Tensor, bias: Tensor, pieces: Tensor, shares: Tensor, weights: Tensor
) -> Tensor:
    """Σ weight · cross-entropy to the probabilities ``shares`` of ``pieces``, both [tokens, k].

    What is missing to 1 belongs to all other pieces together, however they share it.
    """
    loss: Tensor = _Loss.apply(hidden, embedding, bias, pieces, weights, shares)  # type: ignore[no-untyped-call]
    return loss


@torch.no_grad()
def most_probable(
    hidden: Tensor, embedding: Tensor, bias: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """The most probable pieces after each token, and their log-probabilities, [tokens, count]."""
    pieces = hidden.new_empty(len(hidden), count, dtype=torch.int64)
    log_probs = hidden.new_empty(len(hidden), count)
    for rows, logits in _logits(hidden, embedding, bias):
        best = logits.topk(count, 1)
        pieces[rows], log_probs[rows] = best.indices, best.values - logits.logsumexp(1, True)
    return pieces, log_probs


@torch.no_grad()
def nats(hidden: Tensor, embedding: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """−log p of each target, ``[tokens]``, without a gradient."""
    costs = hidden.new_empty(len(hidden))
    for rows, logits in _logits(hidden, embedding, bias):
        costs[rows] = _costs(logits, targets[rows, None])[0][:, 0]
    return costs


@torch.no_grad()
def outlook(
    hidden: Tensor, embedding: Tensor, bias: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """log p of each target, log p of the most probable piece, and the entropy, [tokens] each."""
    found = hidden.new_empty(3, len(hidden))
    room = hidden.new_empty(0)
    for rows, logits in _logits(hidden, embedding, bias):
        room = torch.empty_like(logits) if len(room) < len(logits) else room[: len(logits)]
        largest = logits.amax(1)
        probability = torch.softmax(logits, 1, out=room)
        # As in _costs: the largest probability is 1 / Σ exp(logit − largest logit).
        normalizer = largest - probability.amax(1).log()
        found[0, rows] = logits.gather(1, targets[rows, None])[:, 0] - normalizer
        found[1, rows] = largest - normalizer
        found[2, rows] = normalizer - probability.mul_(logits).sum(1)
    return found[0], found[1], found[2]
