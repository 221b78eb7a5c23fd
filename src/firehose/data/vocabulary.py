"""The vocabulary: SentencePiece pieces, and the special pieces at the ends of a post."""

import io
import re
import tempfile
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Self

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2

from firehose.data.clean import MENTION, URL
from firehose.errors import FirehoseError

# Without a size, a vocabulary grows with the text as the number of different words does, so that
# a piece is seen a hundred times or more on average: the more often, the more text there is.
MOST_PIECES, FEWEST_PIECES = 32_000, 500
PIECES, WORDS, GROWTH = 2_000, 300_000, 0.6  # so many pieces for so many words; the exponent
# Training looks at each different word once, weighted by its count. Of more words than this the
# rarest are left out, which bounds time and memory; they would hardly change the pieces.
MOST_WORDS = 400_000


class Vocabulary:
    """Encodes texts as numbers of pieces, and decodes them."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size: int = self._processor.vocab_size()
        self.dtype = np.dtype(np.uint16 if self.size <= 2**16 else np.uint32)
        self.unknown: int = self._processor.unk_id()
        self.sot = self._special("<SOT>", "<sot>", fallback=self._processor.bos_id())
        self.eot = self._special("<EOT>", "<eot>", fallback=self._processor.eos_id())
        # The special pieces of a given model may be in lower case, as those of the published one.
        self._respelled = {
            name: name.lower()
            for name in (URL, MENTION)
            if self._id(name) is None and self._id(name.lower()) is not None
        }
        # Where <eot> is not a control piece, a text with "<eot>" in it would end the post.
        for number in (self.sot, self.eot):
            if not self._processor.is_control(number):
                piece = self._processor.id_to_piece(number)
                self._respelled[piece] = f"{piece[0]} {piece[1:]}"

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]:
        """The tokens of all posts, one after another with <SOT> and <EOT>, and their lengths."""
        # To SentencePiece "▁" is a space, so a word of a post would be lost.
        texts = [text.replace("▁", "_") for text in texts]
        for name, spelling in self._respelled.items():
            texts = [text.replace(name, spelling) for text in texts]
        # One by one: a list is as fast when it is long, but has a thread started for it.
        posts = [self._processor.encode(text) for text in texts]
        pieces = chain.from_iterable(chain([self.sot], post, [self.eot]) for post in posts)
        lengths = np.fromiter(map(len, posts), np.int64, len(posts)) + 2
        return np.fromiter(pieces, self.dtype, int(lengths.sum())), lengths

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of a post's tokens, without <SOT> and <EOT>."""
        inside = [number for number in map(int, tokens) if number not in (self.sot, self.eot)]
        text: str = self._processor.decode(inside)
        return text

    def decode_posts(
        self, tokens: NDArray[np.unsignedinteger], offsets: NDArray[np.int64]
    ) -> list[str]:
        """The texts that :meth:`encode` was given; post i is ``tokens[offsets[i]:offsets[i + 1]]``.

        What a piece cannot tell is lost: ``▁`` comes back as ``_``, several spaces as one.
        """
        inside = [tokens[a + 1 : b - 1].tolist() for a, b in pairwise(offsets.tolist())]
        texts: list[str] = [self._processor.decode(post) for post in inside]
        for name, spelling in self._respelled.items():
            texts = [text.replace(spelling, name) for text in texts]
        return texts

    def words(self, tokens: Sequence[int]) -> list[tuple[str, slice]]:
        """The words of a post, each with the places of its tokens; <EOT> is a word, <SOT> none."""
        begins = [
            place
            for place, number in enumerate(tokens)
            if place == 1 or number == self.eot or self._processor.id_to_piece(number)[0] == "▁"
        ]
        places = [slice(*ends) for ends in pairwise([*begins, len(tokens)])]
        return [(self.decode(tokens[each]).strip() or "<EOT>", each) for each in places]

    def _id(self, piece: str) -> int | None:
        number: int = self._processor.piece_to_id(piece)
        return number if self._processor.id_to_piece(number) == piece else None

    def _special(self, *names: str, fallback: int) -> int:
        found = (number for number in map(self._id, names) if number is not None)
        number = next(found, fallback)
        if number < 0:
            raise FirehoseError(
                f"The vocabulary has no piece {names[0]}; train it with --user_defined_symbols."
            )
        return number

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a SentencePiece ``.model`` file."""
        try:
            return cls.of(Path(path).read_bytes(), path)
        except OSError as error:
            raise FirehoseError(f"Cannot read the vocabulary {path}: {error.strerror}.") from None

    @classmethod
    def of(cls, model: bytes, path: str | Path) -> Self:
        """The vocabulary in the content of a SentencePiece ``.model`` file, read from ``path``."""
        try:
            if not model:  # SentencePiece would accept it as a model without pieces
                raise RuntimeError
            return cls(model)
        except (RuntimeError, IndexError):
            raise FirehoseError(f"{path} is not a SentencePiece model.") from None

    @classmethod
    def train(cls, counts: Sequence[tuple[str, int]], size: int | None = None) -> Self:
        """Train a unigram model on words and their counts, in any order; deterministic.

        With a ``size`` the vocabulary has exactly that many pieces; where the text does not fit
        it, the error names a size that fits. Without, it has as many as :func:`fitting_size` says,
        or as fit.
        """
        words = [entry for entry in counts if entry[0] not in (URL, MENTION)]
        words.sort(key=lambda entry: (-entry[1], entry[0]))
        if not words:
            raise FirehoseError("There are no words to make a vocabulary from.")
        try:
            wanted = size or fitting_size(sum(count for _, count in words))
            return cls(_train(words[:MOST_WORDS], wanted))
        except RuntimeError as error:
            fits = re.search(r"a value <= (\d+)|required_chars\. \d+ vs (\d+)", str(error))
            if fits is None:
                raise
            limit = int(fits[1] or fits[2])
        if size is None:
            return cls(_train(words[:MOST_WORDS], limit))
        way = "at most" if limit < size else "at least"
        raise FirehoseError(
            f"The training text does not fit a vocabulary of {size:,} pieces; "
            f"ask for {way} {limit:,} (--vocab-size {limit})."
        )


def fitting_size(words: int) -> int:
    """The number of pieces for a text of so many words: 500 to 32,000.

    >>> [fitting_size(words) for words in (80_000, 300_000, 3_000_000, 100_000_000)]
    [900, 2000, 8000, 32000]
    """
    grown = PIECES * (words / WORDS) ** GROWTH
    return min(max(int(round(grown, -2 if grown < 10_000 else -3)), FEWEST_PIECES), MOST_PIECES)


def _train(words: Sequence[tuple[str, int]], size: int) -> bytes:
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        # A few words have whitespace inside, such as phone numbers, and tabs separate the columns.
        file.writelines(f"{' '.join(word.split())}\t{count}\n" for word, count in words)
        file.flush()
        sentencepiece.SentencePieceTrainer.train(
            input=file.name,
            input_format="tsv",
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=0.99995,
            byte_fallback=True,
            normalization_rule_name="identity",  # so that decoding gives the text back
            bos_piece="<SOT>",
            eos_piece="<EOT>",
            user_defined_symbols=[URL, MENTION],
            num_threads=2,  # fixed, as sums over threads decide the last bits of scores
            minloglevel=2,
        )
    proto = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]
    trained = proto.FromString(model.getvalue())
    trained.trainer_spec.ClearField("input")  # the temporary name would differ every time
    made: bytes = trained.SerializeToString(deterministic=True)
    return made
