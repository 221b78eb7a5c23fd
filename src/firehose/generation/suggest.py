"""The most probable next words of a user, with their exact probabilities."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from heapq import nlargest
from typing import NamedTuple

import torch
from torch import Tensor

from firehose.errors import FirehoseError
from firehose.generation.prompt import ROWS, Pieces, ReadPrompt
from firehose.models.store import Trained

END = "<EOT>"  # how the end of the post is shown among suggestions
LEAST = 1e-7  # a beginning of a word that is less probable is dropped
MOST = 512  # beginnings of words that are expanded for one suggestion


class Suggestion(NamedTuple):
    """A word that may come next; ``<EOT>`` is the end of the post."""

    word: str
    probability: float


class Beginning(NamedTuple):
    """The first pieces of a word, or all of them."""

    probability: float
    tokens: tuple[int, ...]
    spelling: bytes  # with the space before the word


def suggest(
    trained: Trained,
    prompt: str,
    user: str | None,
    k: int = 5,
    begun: str | None = None,
    most: int | None = None,
) -> list[Suggestion]:
    """The ``k`` most probable next words, with their exact probabilities; the best first.

    A word's probability is that of its pieces, times that of a new word or the end after them,
    summed over all ways to spell it with pieces. What is missing to 1 belongs to other words, and
    to pieces that would go on with the prompt's last word.

    Beginnings of words are expanded, the most probable first, until none that is left could change
    the answer: a beginning is at least as probable as all words that begin so. Two limits end a
    search that would take too long: beginnings under 1e-7 are dropped, and after ``most``
    (512) the best words so far are the answer, as happens with a model that finds all words alike.

    With ``begun``, the letters of a word that is being written after the prompt, only words that
    begin so are looked for, and the prompt may be empty. Their probabilities are those of whole
    words, as if nothing had been begun.
    """
    if k < 1:
        raise FirehoseError(f"k = {k} words cannot be suggested; ask for one or more.")
    with trained.in_use(user):
        read = ReadPrompt(trained, prompt, user, may_be_empty=begun is not None)
        return _suggest(read, k, f" {begun}".encode() if begun else b"", most or MOST)


def _suggest(read: ReadPrompt, k: int, begun: bytes, most: int) -> list[Suggestion]:
    first = read.log_probs[0].double().exp()  # [pieces]
    # The probabilities of whole words by their spelling; without one, that of the end.
    end = {} if begun else {b"": float(first[read.vocabulary.eot])}
    found = defaultdict[bytes, float](float, end)
    begins = _longer(read.pieces, Beginning(1.0, (), b""), first, read.pieces.begins)
    opened = {each for each in begins if _agree(each.spelling, begun)}
    left = most
    while left and (wanted := _wanted(opened, found, k)):
        length = len(max(wanted).tokens)  # the decoder's rows are of one length
        alike = (beginning for beginning in wanted if len(beginning.tokens) == length)
        chosen = nlargest(min(ROWS, left), alike)
        read.restart(len(chosen))
        tokens = torch.tensor([beginning.tokens for beginning in chosen])
        after = read.decoder.advance(tokens).double().exp()  # [rows, pieces]
        ends = after[:, read.pieces.begins].sum(1) + after[:, read.vocabulary.eot]
        for beginning, pieces, ended in zip(chosen, after, ends.tolist(), strict=True):
            if _is_word(beginning.spelling) and beginning.spelling.startswith(begun):
                found[beginning.spelling] += beginning.probability * ended
            longer = _longer(read.pieces, beginning, pieces, read.pieces.continues)
            opened.update(each for each in longer if _agree(each.spelling, begun))
        opened.difference_update(chosen)
        left -= len(chosen)
    best = nlargest(k, found.items(), key=lambda word: word[1])
    return [Suggestion(spelling[1:].decode() or END, probability) for spelling, probability in best]


def _agree(spelling: bytes, begun: bytes) -> bool:
    """Whether a word that begins with one spelling may begin with the other."""
    return spelling.startswith(begun) or begun.startswith(spelling)


def _longer(
    pieces: Pieces, beginning: Beginning, after: Tensor, which: Tensor
) -> Iterator[Beginning]:
    """The beginnings longer by one of the pieces ``which``, if probable enough.

    ``after`` [pieces] are the probabilities of the piece that follows the beginning.
    """
    probabilities = after * beginning.probability  # [pieces]
    places = (which & (probabilities >= LEAST)).nonzero()[:, 0]
    for piece, probability in zip(places.tolist(), probabilities[places].tolist(), strict=True):
        spelling = beginning.spelling + pieces.spelling[piece]
        yield Beginning(probability, (*beginning.tokens, piece), spelling)


def _wanted(opened: Collection[Beginning], found: dict[bytes, float], k: int) -> list[Beginning]:
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
