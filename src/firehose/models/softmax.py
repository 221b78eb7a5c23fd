"""The softmax over all pieces, in chunks: no more than one chunk of logits is ever alive."""

from typing import Any

import torch
from torch import Tensor

CHUNK = 256  # tokens: 256 × 32,000 logits are 33 MB


class _Loss(torch.autograd.Function):
    """Σ weight · (−log p(target)). The gradient is made on the way forward, chunk by chunk.

    What it costs is three products with the embedding, as without chunks; what it saves is the
    logits, their softmax and its gradient, three matrices of tokens × pieces.
    """

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        embedding: Tensor,
        bias: Tensor,
        targets: Tensor,
        weights: Tensor,
    ) -> Tensor:
        loss = hidden.new_zeros(())
        to_hidden = torch.empty_like(hidden)
        to_embedding = torch.zeros_like(embedding)
        to_bias = torch.zeros_like(bias)
        for start in range(0, len(hidden), CHUNK):
            rows = slice(start, start + CHUNK)
            logits = torch.addmm(bias, hidden[rows], embedding.T)
            normalizer = logits.logsumexp(1, keepdim=True)
            target, weight = targets[rows, None], weights[rows, None]
            loss += ((normalizer - logits.gather(1, target)) * weight).sum()
            slope = logits.sub_(normalizer).exp_().mul_(weight)
            slope.scatter_add_(1, target, -weight)
            torch.mm(slope, embedding, out=to_hidden[rows])
            to_embedding.addmm_(slope.T, hidden[rows])
            to_bias += slope.sum(0)
        context.save_for_backward(to_hidden, to_embedding, to_bias)
        return loss

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        slopes = context.saved_tensors
        if outer[0] != 1:  # it is, unless the loss is one of several
            slopes = [slope * outer[0] for slope in slopes]
        return (*slopes, None, None)


def weighted_loss(
    hidden: Tensor, embedding: Tensor, bias: Tensor, targets: Tensor, weights: Tensor
) -> Tensor:
    """Σ weight · nats of each target: a number to differentiate."""
    loss: Tensor = _Loss.apply(hidden, embedding, bias, targets, weights)  # type: ignore[no-untyped-call]
    return loss


@torch.no_grad()
def nats(hidden: Tensor, embedding: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """−log p of each target, ``[tokens]``, without a gradient."""
    costs = []
    for start in range(0, len(hidden), CHUNK):
        rows = slice(start, start + CHUNK)
        logits = torch.addmm(bias, hidden[rows], embedding.T)
        costs.append(logits.logsumexp(1) - logits.gather(1, targets[rows, None])[:, 0])
    return torch.cat(costs) if costs else hidden.new_zeros(0)
