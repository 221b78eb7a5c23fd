"""How long posts are, and so how many tokens of a post a model should read."""

from typing import Self

from firehose.data.corpus import Split
from firehose.report.words import many, percent
from firehose.storage.seals import Record

MAX_TOKENS = 50  # of a post, that the paper's models are trained on
COVERED = 0.99  # the share of posts that a model should read whole


class Lengths(Record):
    """How many tokens the training posts have, ``<SOT>`` and ``<EOT>`` included."""

    posts: int
    longer: int  # posts with more than MAX_TOKENS
    covering: int  # the number of tokens that COVERED of the posts do not exceed

    @classmethod
    def of(cls, split: Split) -> Self:
        """The lengths of the posts of a split."""
        longer = round(split.share_longer(MAX_TOKENS) * len(split))
        return cls(posts=len(split), longer=longer, covering=split.tokens_covering(COVERED))

    def sentence(self) -> str:
        """What a model has to be set to, and what the paper's setting would cut."""
        cut = f"{percent(self.longer, self.posts)} of them" if self.longer else "none of them"
        return (
            f"{percent(round(100 * COVERED), 100)} of the posts have at most "
            f"{many(self.covering, 'token')}; a model with max_tokens = {MAX_TOKENS} cuts {cut}."
        )
