"""A prompt as a user's model has read it: where every continuation starts."""

import re
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import sentencepiece
import torch
from torch import Tensor

from firehose.data.vocabulary import Vocabulary
from firehose.generation.decoding import Decoder
from firehose.generation.mixed import MixedDecoder
from firehose.models.store import Trained

ROWS = 64  # continuations that are read side by side
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")  # a terminal would obey them


class Pieces(NamedTuple):
    """The kinds of a vocabulary's pieces, each ``[pieces]``."""

    never: Tensor  # not to be written: <SOT>, unknown, control pieces, control characters
    begins: Tensor  # first of a word
    continues: Tensor  # later in a word
    spelling: tuple[bytes, ...]  # bytes, because a piece may be half a character

    ordered: tuple[tuple[bytes, int], ...]  # spellings in their order, each with its number

    def fitting(self, letters: bytes) -> Tensor:
        """Which pieces begin with these letters, or are how they begin, ``[pieces]``."""
        found = torch.zeros(len(self.spelling), dtype=torch.bool)
        for end in range(1, len(letters) + 1):
            for spelling, number in self._from(letters[:end]):
                if spelling != letters[:end] and not spelling.startswith(letters):
                    break
                found[number] = True
        return found

    def _from(self, letters: bytes) -> Iterator[tuple[bytes, int]]:
        """The pieces from a spelling on, in their order."""
        first = bisect_left(self.ordered, (letters,))
        return (self.ordered[place] for place in range(first, len(self.ordered)))


class ReadPrompt:
    """A prompt read by a decoder, with the log-probabilities of the next piece.

    Unknown users, and None, are nobody. Raises an error for a prompt that is too long, or has no
    words, unless it ``may_be_empty``.
    """

    def __init__(
        self, trained: Trained, text: str, user: str | None, may_be_empty: bool = False
    ) -> None:
        self.vocabulary, self.encoder = trained.encoder.vocabulary, trained.encoder
        self.pieces = classify(self.vocabulary)
        self.text, self.tokens = text, self._tokens_of(text, may_be_empty)
        number, speaker = trained.number(user), trained.speaker
        self.decoder: Decoder | MixedDecoder
        if speaker is None:
            self.decoder = Decoder(trained.model, number)
        else:
            self.decoder = MixedDecoder(trained.model, speaker, number)
        self._read(self.tokens)

    def _read(self, tokens: tuple[int, ...]) -> None:
        """Read tokens that are new."""
        begun = time.perf_counter()
        self.log_probs = self.decoder.advance(torch.tensor([tokens]))  # [1, pieces]
        self.seconds = time.perf_counter() - begun

    def _tokens_of(self, text: str, may_be_empty: bool) -> tuple[int, ...]:
        is_empty = may_be_empty and not text.strip()
        return (self.vocabulary.sot,) if is_empty else self.encoder.prompt(text)

    def change(self, text: str) -> None:
        """Become another prompt of the same user, which may be empty; only what differs is read."""
        if text == self.text:
            return
        tokens = self._tokens_of(text, may_be_empty=True)
        self.text = text
        if tokens == self.tokens:
            return
        pairs = zip(tokens[:-1], self.tokens, strict=False)  # the last is read in any case
        same = next((n for n, (new, old) in enumerate(pairs) if new != old), None)
        same = min(len(tokens) - 1, len(self.tokens)) if same is None else same
        self.decoder.rewind(same)
        self.decoder.keep([0])
        self._read(tokens[same:])
        self.tokens = tokens

    def restart(self, rows: int) -> Tensor:
        """Let the decoder have ``rows`` times the prompt; returns log-probabilities for each."""
        self.decoder.rewind(len(self.tokens))
        self.decoder.keep([0] * rows)
        return self.log_probs.expand(rows, -1)


def peek(prompts: Sequence[ReadPrompt], tokens: Sequence[Tensor]) -> list[Tensor]:
    """Log-probabilities after further ``tokens`` of each prompt, ``[rows, n]`` with one n for all.

    They are read together; the prompts stay as they are.
    """
    return prompts[0].decoder.peek([prompt.decoder for prompt in prompts], tokens)  # type: ignore[misc]


def classify(vocabulary: Vocabulary) -> Pieces:
    """Tell the kinds of a vocabulary's pieces apart."""
    return _classify(vocabulary.model)


@lru_cache(maxsize=4)
def _classify(model: bytes) -> Pieces:
    vocabulary = Vocabulary(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    numbers = list(range(vocabulary.size))
    names = processor.id_to_piece(numbers)
    spelling = tuple(
        bytes([int(name[3:5], 16)]) if is_byte else name.replace("▁", " ").encode()  # <0x2A>
        for name, is_byte in zip(names, processor.is_byte(numbers), strict=True)
    )
    never = torch.tensor([_CONTROL.search(letters) is not None for letters in spelling])
    for is_so in (processor.is_control, processor.is_unknown, processor.is_unused):
        never |= torch.tensor(is_so(numbers))
    never[vocabulary.sot], never[vocabulary.eot] = True, False
    begins = torch.tensor([name.startswith("▁") for name in names]) & ~never
    continues = ~begins & ~never
    continues[vocabulary.eot] = False
    ordered = sorted((letters, number) for number, letters in enumerate(spelling))
    return Pieces(never, begins, continues, spelling, tuple(ordered))
