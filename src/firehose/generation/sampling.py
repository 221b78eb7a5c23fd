"""Texts drawn piece by piece, with temperature, top-k and top-p."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from firehose.config import Section
from firehose.generation.prompt import ROWS, ReadPrompt

NEVER = float("-inf")


class Sampling(Section):
    """How the pieces of a text are chosen."""

    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)  # 0: the most probable
    top_k: int = Field(default=0, ge=0)  # from so many of the most probable; 0: from all
    top_p: float = Field(default=1.0, gt=0, le=1)  # from the fewest that together have this share
    beam: int = Field(default=1, ge=1, le=1_000)  # over 1: the most probable text of a search
    seed: int = Field(default=0, ge=0)
    # Tokens of a whole text, from <SOT> to <EOT>; None: as many as the model was trained on.
    max_tokens: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.beam > 1 and (self.temperature, self.top_k, self.top_p) != (1, 0, 1):
            raise ValueError(
                "a beam search draws nothing, so temperature, top_k and top_p have no meaning; "
                "leave them out, or the beam"
            )
        return self


GREEDY = Sampling(temperature=0)


class Draft(NamedTuple):
    """What was written after a prompt."""

    tokens: tuple[int, ...]
    nats: float  # −log-probability of these tokens, by the model as it is
    finished: bool  # whether it ends with <EOT>; else it was cut


def draw(prompt: ReadPrompt, sampling: Sampling, max_tokens: int, count: int) -> list[Draft]:
    """Draw ``count`` continuations of a prompt, up to ``max_tokens`` with the prompt's own.

    Each has a generator of its own, so a larger ``count`` gives the same ones and more.
    """
    drafts: list[Draft] = []
    for start in range(0, count, ROWS):
        numbers = range(start, min(start + ROWS, count))
        drafts += _draw_together(prompt, sampling, max_tokens, numbers)
    return drafts


def _draw_together(
    prompt: ReadPrompt, sampling: Sampling, max_tokens: int, numbers: Sequence[int]
) -> list[Draft]:
    """Draw the continuations of these numbers, side by side."""
    generators = [np.random.default_rng([sampling.seed, number]) for number in numbers]
    drafts = [Draft((), 0.0, False) for _ in numbers]
    rows = list(range(len(drafts)))  # the draft of each row of the decoder
    log_probs = prompt.restart(len(rows))
    for left in reversed(range(max_tokens - len(prompt.tokens))):
        uniform = torch.tensor([generators[row].random() for row in rows], dtype=torch.float64)
        allowed = log_probs.masked_fill(prompt.pieces.never, NEVER)
        chosen = choose(allowed, sampling, uniform)  # [rows]
        costs = -log_probs.gather(1, chosen[:, None])[:, 0]
        for row, piece, cost in zip(rows, chosen.tolist(), costs.tolist(), strict=True):
            tokens, nats, _ = drafts[row]
            finished = piece == prompt.vocabulary.eot
            drafts[row] = Draft((*tokens, piece), nats + cost, finished)
        going = (chosen != prompt.vocabulary.eot).nonzero()[:, 0]
        if not left or not len(going):
            break
        rows = [rows[row] for row in going.tolist()]
        prompt.decoder.keep(going)
        log_probs = prompt.decoder.advance(chosen[going, None])
    return drafts


def choose(log_probs: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Choose a piece for each row of ``log_probs`` by a number in [0, 1) for each, ``[rows]``.

    First the temperature is applied, then ``top_k``, then ``top_p`` to what is left.
    """
    if not sampling.temperature:
        return log_probs.argmax(1)
    pieces = log_probs.shape[1]
    likely, order = log_probs.double().topk(min(sampling.top_k or pieces, pieces))
    # Less the largest, which is zero then: no temperature is so low that all become −∞.
    weights = ((likely - likely[:, :1]) / sampling.temperature).softmax(1)
    before = weights.cumsum(1) - weights
    shares = weights.masked_fill_(before >= sampling.top_p, 0).cumsum(1)
    places = torch.searchsorted(shares, uniform[:, None] * shares[:, -1:], right=True)
    return order.gather(1, places)[:, 0]
