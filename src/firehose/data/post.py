"""What a source yields: a post, or the reason why a record is not a post."""

from typing import NamedTuple

USER_SPLITS = ("train", "validation", "test")  # the splits that a user's post can be in


class Post(NamedTuple):
    """One short text by one user at one moment.

    A source that a corpus is made from gives a time and an id to each; a text that is only scored
    or learned from needs neither.
    """

    user: str
    text: str
    time: int = 0  # milliseconds since 1970-01-01T00:00:00Z
    id: str = ""  # unique among the user's posts; the split is drawn from its hash
    language: str | None = None  # ISO 639-1 where the source states it; None: to be detected
    is_retweet: bool = False  # explicitly marked as such
    is_reply: bool = False
    split: str | None = None  # one of USER_SPLITS, where a published list rules


class Skip(NamedTuple):
    """A record that is not a post; sources yield it in its place, so that it is counted.

    An unexpected skip (broken JSON, no user) ends a ``--strict`` run; an expected one
    (a delete notice, a merge commit) is only counted.
    """

    reason: str  # a short phrase, the same for every record of its kind: "broken JSON"
    where: str  # file and line, archive and member, commit …
    expected: bool = False
