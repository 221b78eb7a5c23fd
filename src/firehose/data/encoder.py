"""Text becomes tokens outside of ``prepare``, treated exactly as the posts of a corpus were."""

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from pydantic import Field

from firehose.batch import Batch
from firehose.config import Section
from firehose.data.clean import mend, words
from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.data.registry import UserRegistry
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError

Mentions = Literal["keep", "replace"]


class EncoderPlan(Section):
    """How a corpus treated its texts, as far as that concerns each text alone."""

    mentions: Mentions = "keep"  # replace: @somebody becomes <MENTION>
    max_characters: int = Field(default=4_096, ge=1)  # a longer text is not a short post


class Encoder:
    """Cleans texts, splits them into words, and spells these with the pieces of a vocabulary."""

    def __init__(
        self, vocabulary: Vocabulary, mentions: Mentions = "keep", max_characters: int = 4_096
    ) -> None:
        self.vocabulary = vocabulary
        values = {"mentions": mentions, "max_characters": max_characters}
        self.plan = EncoderPlan.of(values, "the encoder")

    @classmethod
    def of_corpus(cls, corpus: Corpus) -> Self:
        """The encoder that gives the tokens and word counts which ``prepare`` gave."""
        cleaning = corpus.manifest.config["clean"]
        return cls(corpus.vocabulary, cleaning["mentions"], cleaning["max_characters"])

    def encode(self, posts: Sequence[Post], users: UserRegistry, grow: bool) -> Batch:
        """The batch of these posts; all are taken, whatever their language or kind.

        Users who are not in the registry are added to it with ``grow``, and are nobody (−1)
        without. Raises an error for a text that is too long or has no words.
        """
        texts = [self._words(post.text, f"A post of {post.user!r}") for post in posts]
        tokens, lengths = self.vocabulary.encode([" ".join(text) for text in texts])
        names = [mend(post.user) for post in posts]
        find = users.add if grow else users.number
        numbers = [-1 if (number := find(name)) is None else number for name in names]
        return Batch(
            tokens,
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            np.array(numbers, np.int32),
            np.array([post.time for post in posts], np.int64),
            np.array([len(text) + 1 for text in texts], np.int32),  # one for <EOT>
        )

    def prompt(self, text: str) -> tuple[int, ...]:
        """<SOT> and the pieces of a text that is to be continued.

        Raises an error for a text that is too long or has no words.
        """
        tokens, _ = self.vocabulary.encode([" ".join(self._words(text, "The prompt"))])
        return tuple(tokens[:-1].tolist())

    def _words(self, text: str, what: str) -> list[str]:
        """The words of a text; ``what`` is how an error calls it."""
        most = self.plan.max_characters
        if len(text) > most:
            raise FirehoseError(
                f"{what} has {len(text):,} characters, but a post has at most {most:,}; shorten it."
            )
        found = words(mend(text), self.plan.mentions == "replace")
        if not found:
            raise FirehoseError(f"{what} has no words; give it one, as in “I am”.")
        return found
