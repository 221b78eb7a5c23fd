"""A search for the words that may come next, best first, with bounds of their probabilities."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import NamedTuple

import torch
from torch import Tensor

from firehose.generation.prompt import ROWS, ReadPrompt, peek

LEAST = 1e-7  # a beginning of a word that is less probable is dropped
MOST = 512  # beginnings of words that are expanded for one suggestion
ALIKE = 8  # rows that take as long as the first one alone
FEWEST = 8  # beginnings that are expanded first
NEGLIGIBLE = 64.0  # a beginning so many times less probable than the last word that is wanted


class Budget(NamedTuple):
    """When a search ends that could go on."""

    most: int = MOST  # beginnings that are expanded
    seconds: float | None = None  # with the reading of the prompt; None: as long as it takes
    tolerance: float = 0.0  # how much a word's probability may still gain, as a share of it
    width: int | None = None  # the most beginnings that come of one; None: all that are probable
    share: float = 0.0  # words are not looked for that have less than this share of the best one's
    rows: int = ROWS  # beginnings that are expanded together


EXACT = Budget()


class Found(NamedTuple):
    """A word that may come next, and between what bounds its probability is."""

    spelling: bytes  # with the space before the word; without any letter it is the end of the post
    probability: float  # at least
    at_most: float


class Beginning(NamedTuple):
    """The first pieces of a word, or all of them."""

    probability: float
    tokens: tuple[int, ...]
    spelling: bytes  # with the space before the word


class WordSearch:
    """Words after a prompt that begin with ``begun``, found by expanding beginnings of words.

    A beginning is at least as probable as all words that begin so. What a word can still gain is
    thus what its own beginnings have that were not expanded, and no more; of those that were never
    looked at, because there were too many, each has no more than the least that was.
    """

    def __init__(
        self, read: ReadPrompt, k: int, begun: bytes = b"", budget: Budget = EXACT
    ) -> None:
        self.read, self.k, self.begun, self.budget = read, k, begun, budget
        self.expanded = 0
        first = read.log_probs[0].double().exp()  # [pieces]
        self.words = defaultdict[bytes, float](float)  # at least so probable
        if not begun:
            self.words[b""] = float(first[read.vocabulary.eot])
        self.opened: dict[bytes, list[Beginning]] = {}  # not expanded yet, by spelling
        self._caps: list[tuple[bytes, float]] = []  # after which beginnings, and how much, at most
        root = Beginning(1.0, (), b"")
        self._open([root], first[None], read.pieces.begins, 0.0)

    def choose(self, seconds: float | None = None, sharing: int = 1) -> list[Beginning]:
        """The beginnings to expand next, all of so many tokens; none: the search is over.

        ``seconds`` are left, and so many searches share them.
        """
        rows = min(self._affordable(seconds, sharing), self.budget.most - self.expanded)
        wanted = self.wanted() if rows else []
        length = len(max(wanted).tokens) if wanted else 0  # the decoder's rows are of one length
        return nlargest(rows, (each for each in wanted if len(each.tokens) == length))

    def _affordable(self, seconds: float | None, sharing: int) -> int:
        """How many beginnings can be expanded in so many seconds, which are shared.

        A row takes little longer than none, where the weights of a large model have to be fetched
        for it: the time that the prompt took tells. Without any expansion there is no answer, so
        the first one is made in any case.
        """
        rows: float = self.budget.rows
        if seconds is not None:
            more = ALIKE * (seconds / self.read.seconds - 1)
            rows = min(max(more, 0 if self.expanded else FEWEST), rows)
        return max(int(rows / sharing), 0 if self.expanded else 1)

    def best(self) -> list[Found]:
        """The best words so far, the most probable first."""
        best = nlargest(self.k, self.words.items(), key=lambda word: word[1])
        return [
            Found(word, p, min(p + self._gain(word) + self._cap(word), 1.0)) for word, p in best
        ]

    def wanted(self) -> list[Beginning]:
        """The beginnings that could change which words are the ``k`` best, or their probabilities.

        At first only those are looked at that have a share of note in that, then all.
        """
        least = self._least()
        if not least:
            return [each for same in self.opened.values() for each in same]
        spellings = set(self._of_known_words(least))
        for floor in (least / NEGLIGIBLE, 0.0):
            for spelling, same in self.opened.items():
                mass = sum(each.probability for each in same)
                if mass >= floor and self._gain(spelling) > least - self.words.get(spelling, 0.0):
                    spellings.update(self._before(spelling))
            if spellings or self.budget.tolerance:
                break
        return [each for spelling in spellings for each in self.opened[spelling]]

    def _of_known_words(self, least: float) -> Iterator[bytes]:
        """The beginnings that words have which were found, and may still gain by."""
        ranked = sorted(self.words.items(), key=lambda word: -word[1])
        for place, (word, probability) in enumerate(ranked):
            gain = self._gain(word)
            enough = self.budget.tolerance * probability if place < self.k else least - probability
            if gain > max(enough, 0.0):
                yield from self._before(word)

    def _least(self) -> float:
        """What a word must have to be wanted; 0: anything, as there are not so many yet."""
        best = nlargest(self.k, self.words.values())
        share = self.budget.share * best[0] if best else 0.0
        return max(best[-1], share) if len(best) == self.k else share

    def _before(self, spelling: bytes) -> Iterator[bytes]:
        """The beginnings that were not expanded yet of what is spelled so, itself included."""
        for end in range(1, len(spelling) + 1):
            if spelling[:end] in self.opened:
                yield spelling[:end]

    def _gain(self, spelling: bytes) -> float:
        """What those beginnings have in all."""
        return sum(each.probability for s in self._before(spelling) for each in self.opened[s])

    def _cap(self, word: bytes) -> float:
        """What a word may gain of beginnings that were never looked at: two of each length."""
        return sum(
            2 * cap * (len(word) - len(spelling))
            for spelling, cap in self._caps
            if word.startswith(spelling)
        )

    def expand(self, chosen: list[Beginning], after: Tensor) -> None:
        """Learn what may follow some beginnings: ``after`` [rows, pieces] are probabilities."""
        read, pieces = self.read, self.read.pieces
        self.expanded += len(chosen)
        ends = after[:, pieces.begins].sum(1) + after[:, read.vocabulary.eot]
        for beginning, ended in zip(chosen, ends.tolist(), strict=True):
            if is_word(beginning.spelling) and beginning.spelling.startswith(self.begun):
                self.words[beginning.spelling] += beginning.probability * ended
            same = self.opened[beginning.spelling]
            same.remove(beginning)
            if not same:
                del self.opened[beginning.spelling]
        self._open(chosen, after, pieces.continues, self._least() / NEGLIGIBLE)

    def _open(
        self, beginnings: list[Beginning], after: Tensor, which: Tensor, negligible: float
    ) -> None:
        """Add what is longer than some beginnings by one of the pieces ``which``.

        ``after`` [rows, pieces] are the probabilities of the piece that follows each. In a search
        of limited width what is ``negligible`` is left out, too.
        """
        own = torch.tensor([each.probability for each in beginnings]).double()
        joint = after * own[:, None] * which  # [rows, pieces]
        floors = torch.full_like(own, LEAST)
        if self.budget.width is not None:
            self._leave_out(joint, beginnings)
            floors = _floors(joint, max(LEAST, negligible), self.budget.width)
            spellings = (each.spelling for each in beginnings)
            self._caps += zip(spellings, floors.tolist(), strict=True)
        rows, numbers = (joint >= floors[:, None]).nonzero(as_tuple=True)
        probabilities = joint[rows, numbers]
        spelled = self.read.pieces.spelling
        each_one = zip(rows.tolist(), numbers.tolist(), probabilities.tolist(), strict=True)
        for row, piece, probability in each_one:
            spelling = beginnings[row].spelling + spelled[piece]
            if spelling.startswith(self.begun) or self.begun.startswith(spelling):
                tokens = (*beginnings[row].tokens, piece)
                beginning = Beginning(probability, tokens, spelling)
                self.opened.setdefault(spelling, []).append(beginning)

    def _leave_out(self, joint: Tensor, beginnings: list[Beginning]) -> None:
        """Let beginnings not go on with pieces that do not fit what is begun."""
        rests = [self.begun[len(each.spelling) :] for each in beginnings]
        fitting = {rest: self.read.pieces.fitting(rest) for rest in set(rests) if rest}
        for row, rest in enumerate(rests):
            if rest:
                joint[row] *= fitting[rest]


def _floors(joint: Tensor, floor: float, width: int) -> Tensor:
    """How probable the least is of each row that is looked at: ``floor``, or the last of so many.

    Few rows have more than that, and to find the last of many takes long.
    """
    floors = torch.full_like(joint[:, 0], floor)
    crowded = ((joint >= floor).sum(1) > width).nonzero().flatten()
    if len(crowded):
        floors[crowded] = joint[crowded].topk(width, 1).values[:, -1]
    return floors


def search(searches: Sequence[WordSearch], until: float | None = None) -> None:
    """Search until all have found their words, or time is up; what they read is read together.

    ``until`` is a moment of ``time.monotonic``.
    """
    left = list(searches)
    while left:
        seconds = None if until is None else until - time.monotonic()
        chosen = [(each, found) for each in left if (found := each.choose(seconds, len(left)))]
        left = [each for each, _ in chosen]
        by_width = defaultdict(list)
        for each, found in chosen:
            by_width[len(found[0].tokens)].append((each, found))
        for alike in by_width.values():
            tokens = [torch.tensor([one.tokens for one in found]) for _, found in alike]
            read = peek([each.read for each, _ in alike], tokens)
            for (each, found), after in zip(alike, read, strict=True):
                each.expand(found, after.double().exp())


def is_word(spelling: bytes) -> bool:
    """Whether there is something after the space, and it is text."""
    try:
        return bool(spelling.decode().strip())
    except UnicodeDecodeError:
        return False
