"""What each word of a post costs, so that people can see where a model was surprised."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from firehose.batch import Batch
from firehose.data.vocabulary import Vocabulary
from firehose.generation.prompt import classify
from firehose.models.model import Payer

SHOWN = 6  # posts of a round whose words are shown
MOST_TOKENS = 64  # of a post, from its start on

WordCost = tuple[str, float]  # a word, and its nats; the last of a whole post is its end, ""


def word_costs(payer: Payer, vocabulary: Vocabulary, batch: Batch) -> list[list[WordCost]]:
    """What the words of each post cost; of a long post, those at its start.

    Nothing is asked of whoever pays but to pay: a word costs what a post costs that ends with it,
    without what it costs to end, less what a post costs that ends before it.
    """
    begins = classify(vocabulary).begins.numpy()
    posts = [batch.tokens[a:b] for a, b in pairwise(batch.offsets.tolist())]
    cuts = [_cuts(tokens, begins, vocabulary.eot) for tokens in posts]
    totals = iter(payer.pay(_beginnings(batch, posts, cuts)).nats.tolist())
    found = []
    for tokens, ends in zip(posts, cuts, strict=True):
        words = [vocabulary.decode(tokens[a:b]) for a, b in pairwise([1, *ends])]
        nats = np.diff([0.0, *(next(totals) for _ in ends)]).tolist()
        found.append(list(zip(words, nats, strict=True)))
    return found


def _cuts(tokens: np.ndarray, begins: np.ndarray, eot: int) -> list[int]:
    """Where the words of a post end: at the next word's first piece, and before and after <EOT>."""
    inside = tokens[:MOST_TOKENS]
    starts = np.flatnonzero(begins[inside] | (inside == eot))
    ends = [int(start) for start in starts if start > 1]
    is_whole = len(tokens) <= MOST_TOKENS
    return [*ends, len(tokens)] if is_whole else ends or [len(inside)]


def _beginnings(batch: Batch, posts: Sequence[np.ndarray], cuts: Sequence[Sequence[int]]) -> Batch:
    """A post for each cut of each post: what is before it."""
    tokens = [post[:end] for post, ends in zip(posts, cuts, strict=True) for end in ends]
    which = np.repeat(np.arange(len(posts)), [len(ends) for ends in cuts])
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in tokens])]).astype(np.int64)
    rest = (batch.user[which], batch.time[which], batch.words[which])
    return Batch(np.concatenate(tokens), offsets, *rest)
