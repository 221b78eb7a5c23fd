"""What each word of a post costs, whatever predicts it."""

from typing import NamedTuple

import numpy as np

from firehose.batch import Batch
from firehose.data.vocabulary import Vocabulary
from firehose.models.model import Payer


class WordCost(NamedTuple):
    """A word of a post, and what it cost."""

    text: str
    nats: float


def word_costs(payer: Payer, post: Batch, vocabulary: Vocabulary) -> list[WordCost]:
    """The cost of each word of a batch of one post, ``<EOT>`` included.

    A predictor only says what whole posts cost. As it never looks ahead, a piece costs what a post
    that ends with it costs more than one that ends before it.
    """
    tokens, lengths = post.tokens, np.arange(1, len(post.tokens) + 1)
    ends = Batch(
        np.concatenate([tokens[:length] for length in lengths]),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.repeat(post.user, len(lengths)),
        np.repeat(post.time, len(lengths)),
        np.repeat(post.words, len(lengths)),
    )
    upto = payer.pay(ends.select(np.arange(1, len(lengths)))).nats
    pieces = np.diff(upto, prepend=0.0)  # of each token but <SOT>
    words = vocabulary.words(tokens.tolist())
    return [
        WordCost(text, float(pieces[place.start - 1 : place.stop - 1].sum()))
        for text, place in words
    ]
