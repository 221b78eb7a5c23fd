"""Whole texts of a user, by drawing or by beam search."""

from typing import NamedTuple

from firehose.errors import FirehoseError
from firehose.generation.beam import search
from firehose.generation.prompt import ReadPrompt
from firehose.generation.sampling import Sampling, draw
from firehose.models.store import Trained

PLAIN = Sampling()


class Text(NamedTuple):
    """A prompt and what was written after it."""

    text: str
    nats: float  # −log-probability of what was written, by the model as it is
    finished: bool  # whether it ends with <EOT>; else it was cut at the largest number of tokens
    tokens: tuple[int, ...]  # of all, from <SOT> on


def generate(
    trained: Trained, prompt: str, user: str | None, sampling: Sampling = PLAIN, count: int = 1
) -> list[Text]:
    """Write ``count`` texts that begin with ``prompt``, as ``user`` would go on.

    The same seed gives the same texts, and more of them when ``count`` is larger. A beam search
    gives its best texts, the best first, which is at least as probable as the greedy one. For a
    user whom the model does not know (``Trained.knows``), the vector is the population's mean.
    """
    _refuse_count(count, sampling)
    with trained.in_use(user):
        return _generate(trained, prompt, user, sampling, count)


def _generate(
    trained: Trained, prompt: str, user: str | None, sampling: Sampling, count: int
) -> list[Text]:
    read = ReadPrompt(trained, prompt, user)
    max_tokens = sampling.max_tokens or trained.model.plan.max_tokens
    if len(read.tokens) >= max_tokens:
        raise FirehoseError(
            f"The prompt has {len(read.tokens)} tokens (its <SOT> is one), and a whole text has "
            f"no more than {max_tokens}; shorten the prompt."
        )
    if sampling.beam > 1:
        drafts = search(read, sampling.beam, count, max_tokens)
    else:
        drafts = draw(read, sampling, max_tokens, count)
    return [
        Text(read.vocabulary.decode(tokens), draft.nats, draft.finished, tokens)
        for draft in drafts
        for tokens in [read.tokens + draft.tokens]
    ]


def _refuse_count(count: int, sampling: Sampling) -> None:
    if count < 1:
        raise FirehoseError(f"{count} texts cannot be written; ask for one or more.")
    if 1 < sampling.beam < count:
        raise FirehoseError(
            f"A beam of {sampling.beam} does not give {count} texts; widen it, or ask for fewer."
        )
    if count > 1 and not sampling.temperature:
        raise FirehoseError(
            f"At temperature 0 there is one text, not {count}; ask for one, or raise it."
        )
