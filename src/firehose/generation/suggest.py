"""The most probable next words of a user: exact, or the best that a moment allows."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from firehose.errors import FirehoseError
from firehose.generation.lookahead import EXACT, Budget, WordSearch, search
from firehose.generation.prompt import ReadPrompt
from firehose.models.store import Trained

END = "<EOT>"  # how the end of the post is shown among suggestions
QUICK = Budget(most=128, seconds=0.05, tolerance=0.1, width=64, share=0.003, rows=32)


class Suggestion(NamedTuple):
    """A word that may come next; ``<EOT>`` is the end of the post."""

    word: str
    probability: float


class Guess(NamedTuple):
    """A word that may come next, with a lower and an upper bound of its probability."""

    word: str
    probability: float  # at least
    at_most: float


def suggest(
    trained: Trained, prompt: str, user: str | None, k: int = 5, begun: str | None = None
) -> list[Suggestion]:
    """The ``k`` most probable next words, with their exact probabilities; the best first.

    A word's probability is that of its pieces, times that of a new word or the end after them,
    summed over all ways to spell it with pieces. What is missing to 1 belongs to other words, and
    to pieces that would go on with the prompt's last word.

    Beginnings of words are expanded, the most probable first, until none that is left could change
    the answer. Two limits end a search that would take too long: beginnings under 1e-7 are dropped,
    and after 512 the best words so far are the answer, as happens with a model that finds all words
    alike.

    With ``begun``, the letters of a word that is being written after the prompt, only words that
    begin so are looked for, and the prompt may be empty. Their probabilities are those of whole
    words, as if nothing had been begun.
    """
    _refuse_none(k)
    with trained.in_use(user):
        read = ReadPrompt(trained, prompt, user, may_be_empty=begun is not None)
        found = WordSearch(read, k, _spelled(begun), EXACT)
        search([found])
    return [
        Suggestion(each.spelling[1:].decode() or END, each.probability) for each in found.best()
    ]


class Asked(NamedTuple):
    """A question for the most probable words after a prompt, of which one may be begun."""

    prompt: str
    user: str | None
    k: int
    begun: str = ""


class Suggester:
    """Suggests words to many who type, from one model that does not learn meanwhile.

    What each has written so far is kept as the model has read it: a prompt that goes on with the
    last one of the same user costs what is new in it.
    """

    def __init__(self, trained: Trained, remembered: int = 64) -> None:
        self.trained, self.remembered = trained, remembered
        trained.model.eval()
        self._read: OrderedDict[int, ReadPrompt] = OrderedDict()  # by number of a user

    def suggest(
        self, prompt: str, user: str | None, k: int, begun: str = "", budget: Budget = QUICK
    ) -> list[Guess]:
        """The ``k`` most probable words that begin so, as far as the budget allows to tell."""
        (found,) = self.suggest_all([Asked(prompt, user, k, begun)], budget)
        if isinstance(found, FirehoseError):
            raise found
        return found

    def suggest_all(
        self, questions: Sequence[Asked], budget: Budget = QUICK
    ) -> list[list[Guess] | FirehoseError]:
        """The answers to several questions, which are searched for together; or what is wrong."""
        until = None if budget.seconds is None else time.monotonic() + budget.seconds
        made: list[WordSearch | FirehoseError] = []
        with self.trained.in_use(*(asked.user for asked in questions)):
            for asked in questions:
                try:
                    made.append(self._begin(asked, budget))
                except FirehoseError as error:
                    made.append(error)
            search([each for each in made if isinstance(each, WordSearch)], until)
        for asked, each in zip(questions, made, strict=True):
            if isinstance(each, WordSearch):
                self._read[self.trained.number(asked.user)] = each.read
        while len(self._read) > self.remembered:
            self._read.popitem(last=False)
        return [_guesses(each) if isinstance(each, WordSearch) else each for each in made]

    def _begin(self, asked: Asked, budget: Budget) -> WordSearch:
        """Read a prompt, or what is new in it; who asks twice at a time has it read once more."""
        _refuse_none(asked.k)
        read = self._read.pop(self.trained.number(asked.user), None)
        if read is None:
            read = ReadPrompt(self.trained, asked.prompt, asked.user, may_be_empty=True)
        else:
            read.change(asked.prompt)
        return WordSearch(read, asked.k, _spelled(asked.begun), budget)


def _guesses(search: WordSearch) -> list[Guess]:
    return [Guess(each.spelling[1:].decode() or END, *each[1:]) for each in search.best()]


def _spelled(begun: str | None) -> bytes:
    return f" {begun}".encode() if begun else b""


def _refuse_none(k: int) -> None:
    if k < 1:
        raise FirehoseError(f"k = {k} words cannot be suggested; ask for one or more.")
