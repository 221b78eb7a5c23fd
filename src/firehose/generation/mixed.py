"""Decoding with more than a model: what else has a say is asked at every piece."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from firehose.generation.decoding import Decoder
from firehose.models.model import Speaker
from firehose.models.personal import Personal
from firehose.models.users import NOBODY


class MixedDecoder:
    """Reads several texts of one user as ``Decoder`` does, for a speaker with a model.

    The model reads them under each of the speaker's sets of weights. Neither must learn between
    two calls.
    """

    def __init__(
        self, model: Personal, speaker: Speaker, user: int = NOBODY, rows: int = 1
    ) -> None:
        self.speaker, self.user = speaker, user
        self._tokens = torch.zeros(rows, 0, dtype=torch.int64)
        self._decoders: list[Decoder] = []
        for number in range(len(speaker.mixed)):
            with self._in_use(number):
                self._decoders.append(Decoder(model, user, rows))

    @property
    def rows(self) -> int:
        """The number of texts."""
        return len(self._tokens)

    @property
    def length(self) -> int:
        """The tokens that each row has."""
        return self._tokens.shape[1]

    def advance(self, tokens: Tensor) -> Tensor:
        """Read ``tokens`` [rows, n]; return log-probabilities of the next piece, [rows, pieces]."""
        of_model = []
        for number, decoder in enumerate(self._decoders):
            with self._in_use(number):
                of_model.append(decoder.advance(tokens))
        self._tokens = torch.cat([self._tokens, tokens], 1)
        return self.speaker.speak(self._tokens, self.user, of_model)

    @staticmethod
    def peek(decoders: Sequence["MixedDecoder"], tokens: Sequence[Tensor]) -> list[Tensor]:
        """As ``Decoder.peek``: all are read as one batch, under each set of weights."""
        speaker, users = decoders[0].speaker, np.array([decoder.user for decoder in decoders])
        of_model = []  # by set of weights, then by decoder
        for number, weights in enumerate(speaker.mixed):
            with weights.in_use(users):
                inner = [decoder._decoders[number] for decoder in decoders]
                of_model.append(Decoder.peek(inner, tokens))
        found = []
        for place, (decoder, further) in enumerate(zip(decoders, tokens, strict=True)):
            texts = torch.cat([decoder._tokens.expand(len(further), -1), further], 1)
            found.append(speaker.speak(texts, decoder.user, [each[place] for each in of_model]))
        return found

    def keep(self, rows: Sequence[int] | Tensor) -> None:
        """Keep these rows, in this order; one that is named twice is copied."""
        self._tokens = self._tokens[torch.as_tensor(rows, dtype=torch.int64)]
        for decoder in self._decoders:
            decoder.keep(rows)

    def rewind(self, length: int) -> None:
        """Drop all but the first ``length`` tokens of each row."""
        for decoder in self._decoders:
            decoder.rewind(length)
        self._tokens = self._tokens[:, :length]

    def _in_use(self, number: int) -> AbstractContextManager[None]:
        return self.speaker.mixed[number].in_use(np.array([self.user]))
