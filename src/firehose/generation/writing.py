"""Text and suggestions for one user: how they would go on from a prompt."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from heapq import nlargest, nsmallest
from typing import NamedTuple, Self

import numpy as np
import sentencepiece
import torch
from pydantic import Field, model_validator
from torch import Tensor

from firehose.config import Section
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError
from firehose.generation.decoding import Decoder
from firehose.models.store import Trained
from firehose.models.users import NOBODY

END = "<EOT>"  # how the end of the post is shown among suggestions
ROWS = 64  # texts, or beginnings of words, that are read side by side
LEAST = 1e-7  # a beginning of a word that is less probable is let go
MOST = 512  # beginnings of words that are looked into for one suggestion
NEVER = float("-inf")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")  # a terminal would obey them


class Sampling(Section):
    """How a next piece is chosen."""

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


PLAIN = Sampling()
GREEDY = Sampling(temperature=0)


class Text(NamedTuple):
    """A prompt and what was written after it."""

    text: str
    nats: float  # −log-probability of what was written, by the model as it is
    finished: bool  # whether it came to its end, <EOT>, or was cut at the max_tokens
    tokens: tuple[int, ...]  # of all, from <SOT> on


class Suggestion(NamedTuple):
    """A word that may come next; ``<EOT>`` is the end of the post."""

    word: str
    probability: float


def knows(trained: Trained, user: str | None) -> bool:
    """Whether the model knows this user; who is unknown gets the text of the population."""
    return user is not None and trained.number(user) is not None


def generate(
    trained: Trained, prompt: str, user: str | None, sampling: Sampling = PLAIN, count: int = 1
) -> list[Text]:
    """``count`` texts that begin with ``prompt``, as ``user`` would go on.

    The same seed gives the same texts, and more of them when ``count`` is larger. A beam search
    gives its best texts, the best first, which is at least as probable as the greedy one. Where
    the model knows no such user (see ``knows``), the population goes on.
    """
    _refuse_count(count, sampling)
    page = _Page(trained, prompt, user)
    max_tokens = sampling.max_tokens or trained.model.plan.max_tokens
    if len(page.prompt) >= max_tokens:
        raise FirehoseError(
            f"The prompt has {len(page.prompt)} tokens (its <SOT> is one), and a whole text has "
            f"no more than {max_tokens}; shorten the prompt."
        )
    if sampling.beam > 1:
        written = _search(page, sampling.beam, count, max_tokens)
    else:
        starts = range(0, count, ROWS)
        parts = [range(start, min(start + ROWS, count)) for start in starts]
        written = [draft for part in parts for draft in _draw(page, sampling, max_tokens, part)]
    return [
        Text(page.vocabulary.decode(tokens), draft.nats, draft.finished, tokens)
        for draft in written
        for tokens in [page.prompt + draft.tokens]
    ]


def suggest(trained: Trained, prompt: str, user: str | None, k: int = 5) -> list[Suggestion]:
    """The ``k`` most probable next words, with their exact probabilities; the best first.

    A word's probability is that of its pieces, times that of a new word or the end after them,
    summed over all ways to spell it with pieces. What is missing to 1 belongs to other words, and
    to pieces that would go on with the prompt's last word.

    Beginnings of words are looked into, the most probable first, until nothing that is left could
    change the answer: a beginning is at least as probable as all words that begin so. Two limits
    make an end where that would take for ever: beginnings under 1e-7 are let go, and after 512
    the best words so far are the answer; a model that finds all words alike comes to that.
    """
    if k < 1:
        raise FirehoseError(f"k = {k} words cannot be suggested; ask for one or more.")
    page = _Page(trained, prompt, user)
    first = page.ahead[0].double().exp()  # [pieces]
    # The probabilities of whole words by their spelling; without one, that of the end.
    found = {b"": float(first[page.vocabulary.eot])}
    opened = set(page.pieces.after(_Beginning(1.0, (), b""), first, page.pieces.begins))
    left = MOST
    while left and (wanted := _wanted(opened, found, k)):
        length = len(max(wanted).tokens)  # the decoder's rows are of one length
        alike = (beginning for beginning in wanted if len(beginning.tokens) == length)
        chosen = nlargest(min(ROWS, left), alike)
        for beginning, probability, longer in page.look_into(chosen):
            if _is_word(beginning.spelling):
                found[beginning.spelling] = found.get(beginning.spelling, 0.0) + probability
            opened.update(longer)
        opened.difference_update(chosen)
        left -= len(chosen)
    best = nlargest(k, found.items(), key=lambda word: word[1])
    return [Suggestion(spelling[1:].decode() or END, probability) for spelling, probability in best]


def choose(ahead: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """A piece for each row of log-probabilities, ``[rows]``, by a uniform number for each.

    First the temperature, then the ``top_k``, then the ``top_p`` of what is left.
    """
    if not sampling.temperature:
        return ahead.argmax(1)
    likely, pieces = ahead.double().topk(min(sampling.top_k or ahead.shape[1], ahead.shape[1]))
    # Less the largest, which is zero then: no temperature is so low that all become −∞.
    weights = ((likely - likely[:, :1]) / sampling.temperature).softmax(1)
    before = weights.cumsum(1) - weights
    shares = weights.masked_fill_(before >= sampling.top_p, 0).cumsum(1)
    places = torch.searchsorted(shares, uniform[:, None] * shares[:, -1:], right=True)
    return pieces.gather(1, places)[:, 0]


class _Beginning(NamedTuple):
    """The first pieces of a word, or all."""

    probability: float
    tokens: tuple[int, ...]
    spelling: bytes  # with the space before the word; bytes, as a piece may be half a character


class _Pieces(NamedTuple):
    """What the pieces of a vocabulary are, each ``[pieces]``."""

    never: Tensor  # not for writing: <SOT>, unknown, control pieces, control characters
    begins: Tensor  # the first of a word
    continues: Tensor  # a later one of a word
    spelling: tuple[bytes, ...]

    def after(self, beginning: _Beginning, ahead: Tensor, which: Tensor) -> Iterator[_Beginning]:
        """What is longer by one of the pieces ``which``, if probable enough."""
        probabilities = ahead * beginning.probability  # [pieces]
        places = (which & (probabilities >= LEAST)).nonzero()[:, 0]
        chosen = zip(places.tolist(), probabilities[places].tolist(), strict=True)
        for piece, probability in chosen:
            spelling = beginning.spelling + self.spelling[piece]
            yield _Beginning(probability, (*beginning.tokens, piece), spelling)


@lru_cache(maxsize=4)
def _pieces(vocabulary: Vocabulary) -> _Pieces:
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    names = [processor.id_to_piece(number) for number in range(vocabulary.size)]
    spelling = tuple(
        bytes([int(name[3:5], 16)])  # <0x2A>
        if processor.is_byte(number)
        else name.replace("▁", " ").encode()
        for number, name in enumerate(names)
    )
    special = (processor.is_control, processor.is_unknown, processor.is_unused)
    never = torch.tensor(
        [
            any(is_so(number) for is_so in special) or _CONTROL.search(letters) is not None
            for number, letters in enumerate(spelling)
        ]
    )
    never[vocabulary.sot], never[vocabulary.eot] = True, False
    begins = torch.tensor([name.startswith("▁") for name in names]) & ~never
    continues = ~begins & ~never
    continues[vocabulary.eot] = False
    return _Pieces(never, begins, continues, spelling)


class _Page:
    """The prompt as the user's model has read it; writing begins here, as often as wanted."""

    def __init__(self, trained: Trained, prompt: str, user: str | None) -> None:
        self.vocabulary = trained.encoder.vocabulary
        self.pieces = _pieces(self.vocabulary)
        self.prompt = trained.encoder.prompt(prompt)
        number = trained.number(user) if user is not None else None
        self.decoder = Decoder(trained.model, NOBODY if number is None else number)
        self.ahead = self.decoder.advance(torch.tensor([self.prompt]))  # [1, pieces]

    def begin(self, rows: int) -> Tensor:
        """Take back what was written; log-probabilities after the prompt, ``[rows, pieces]``."""
        self.decoder.rewind(len(self.prompt))
        self.decoder.keep([0] * rows)
        return self.ahead.expand(rows, -1)

    def look_into(
        self, chosen: Sequence[_Beginning]
    ) -> Iterator[tuple[_Beginning, float, Iterator[_Beginning]]]:
        """Each beginning, the probability that it is the whole word, and what is longer.

        They have the same number of pieces.
        """
        self.begin(len(chosen))
        tokens = torch.tensor([beginning.tokens for beginning in chosen])
        ahead = self.decoder.advance(tokens).double().exp()  # [rows, pieces]
        ends = ahead[:, self.pieces.begins].sum(1) + ahead[:, self.vocabulary.eot]
        for beginning, after, end in zip(chosen, ahead, ends.tolist(), strict=True):
            longer = self.pieces.after(beginning, after, self.pieces.continues)
            yield beginning, beginning.probability * end, longer


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


class _Draft(NamedTuple):
    """What was written after a prompt."""

    tokens: tuple[int, ...]
    nats: float
    finished: bool


def _draw(page: _Page, sampling: Sampling, max_tokens: int, numbers: Sequence[int]) -> list[_Draft]:
    """The texts of these numbers, side by side; each has a generator of its own."""
    randoms = [np.random.default_rng([sampling.seed, number]) for number in numbers]
    drafts = [_Draft((), 0.0, False) for _ in numbers]
    rows = list(range(len(drafts)))  # which text each row of the decoder is
    ahead = page.begin(len(rows))
    for left in reversed(range(max_tokens - len(page.prompt))):
        uniform = torch.tensor([randoms[text].random() for text in rows], dtype=torch.float64)
        chosen = choose(ahead.masked_fill(page.pieces.never, NEVER), sampling, uniform)  # [rows]
        costs = -ahead.gather(1, chosen[:, None])[:, 0]
        for text, piece, cost in zip(rows, chosen.tolist(), costs.tolist(), strict=True):
            tokens, nats, _ = drafts[text]
            finished = piece == page.vocabulary.eot
            drafts[text] = _Draft((*tokens, piece), nats + cost, finished)
        going = (chosen != page.vocabulary.eot).nonzero()[:, 0]
        if not left or not len(going):
            break
        rows = [rows[row] for row in going.tolist()]
        page.decoder.keep(going)
        ahead = page.decoder.advance(chosen[going, None])
    return drafts


def _search(page: _Page, beam: int, count: int, max_tokens: int) -> list[_Draft]:
    """The ``count`` most probable texts that a beam search meets, and the greedy one with them."""
    eot, pieces = page.vocabulary.eot, page.vocabulary.size
    # A beam can lose the greedy text on the way, so that is written first.
    found = {draft.tokens: draft for draft in _draw(page, GREEDY, max_tokens, [0])}
    texts: list[tuple[int, ...]] = [()]
    scores = torch.zeros(1, dtype=torch.float64)  # [rows], log-probabilities
    ahead = page.begin(1)
    for left in reversed(range(max_tokens - len(page.prompt))):
        total = scores[:, None] + ahead.masked_fill(page.pieces.never, NEVER)  # [rows, pieces]
        ends = zip(texts, total[:, eot].tolist(), strict=True)
        met = [_Draft((*text, eot), -score, True) for text, score in ends]
        total[:, eot] = NEVER
        scores, places = total.flatten().topk(min(beam, int(total.isfinite().sum())))
        rows, chosen = places // pieces, places % pieces  # [rows] each
        texts = [
            (*texts[row], piece) for row, piece in zip(rows.tolist(), chosen.tolist(), strict=True)
        ]
        if not left:
            cut = zip(texts, scores.tolist(), strict=True)
            met += [_Draft(text, -score, False) for text, score in cut]
        for draft in met:
            found.setdefault(draft.tokens, draft)
        best = nsmallest(count, found.values(), key=lambda draft: draft.nats)
        # A text only becomes less probable when it goes on.
        if not left or (len(best) == count and best[-1].nats <= -float(scores[0])):
            break
        page.decoder.keep(rows)
        ahead = page.decoder.advance(chosen[:, None])
    return best


def _wanted(opened: Collection[_Beginning], found: dict[bytes, float], k: int) -> list[_Beginning]:
    """The beginnings that could change which ``k`` words are the best, or how probable these are.

    A spelling can still gain what the beginnings have that it begins with, and no more.
    """
    best = nlargest(k, found.values())
    least = best[-1] if len(best) == k else 0.0
    open_at: defaultdict[bytes, float] = defaultdict(float)  # by spelling: several may be alike
    for beginning in opened:
        open_at[beginning.spelling] += beginning.probability
    wanted: set[bytes] = set()
    chain: list[tuple[bytes, float]] = []  # open ones, each a beginning of the next; gains so far
    for spelling in sorted(open_at.keys() | found.keys()):
        while chain and not spelling.startswith(chain[-1][0]):
            chain.pop()
        gain = chain[-1][1] if chain else 0.0
        if spelling in open_at:
            gain += open_at[spelling]
            chain.append((spelling, gain))
        if found.get(spelling, 0.0) + gain > least:
            wanted.update(start for start, _ in chain)
    return [beginning for beginning in opened if beginning.spelling in wanted]


def _is_word(spelling: bytes) -> bool:
    """Whether there is something after the space, and it is text."""
    try:
        return bool(spelling.decode().strip())
    except UnicodeDecodeError:
        return False
