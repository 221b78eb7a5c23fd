"""The most probable next words of a user: exact, or the best that a moment allows."""

from collections import OrderedDict
from typing import NamedTuple

from firehose.errors import FirehoseError
from firehose.generation.lookahead import EXACT, Budget, WordSearch
from firehose.generation.prompt import ReadPrompt
from firehose.models.store import Trained

END = "<EOT>"  # how the end of the post is shown among suggestions
QUICK = Budget(most=128, seconds=0.05, tolerance=0.1, width=128, share=0.003, rows=32)


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
        search = WordSearch(read, _spelled(begun), EXACT)
        search.run(k)
    found = search.best(k)
    return [Suggestion(each.spelling[1:].decode() or END, each.probability) for each in found]


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
        _refuse_none(k)
        number = self.trained.number(user)
        with self.trained.in_use(user):
            read = self._read.pop(number, None)
            if read is None:
                read = ReadPrompt(self.trained, prompt, user, may_be_empty=True)
            else:
                read.change(prompt)
            search = WordSearch(read, _spelled(begun), budget)
            search.run(k)
            read.restart(1)
        self._read[number] = read
        while len(self._read) > self.remembered:
            self._read.popitem(last=False)
        found = search.best(k)
        return [Guess(each.spelling[1:].decode() or END, *each[1:]) for each in found]


def _spelled(begun: str | None) -> bytes:
    return f" {begun}".encode() if begun else b""


def _refuse_none(k: int) -> None:
    if k < 1:
        raise FirehoseError(f"k = {k} words cannot be suggested; ask for one or more.")
