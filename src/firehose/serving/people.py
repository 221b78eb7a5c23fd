"""What the inbox tells: of a user, of a word, and of all that was learned."""

import math
from typing import NamedTuple

from firehose.data.clean import mend
from firehose.serving.database import Database

TYPICAL = 10  # words that are shown of a user
TRIED = 200  # of a user's words that are compared with everybody's
RARE = 2.0  # times at least that a typical word was written


class Person(NamedTuple):
    """What is known of a user."""

    posts: int
    learned: int  # posts
    first: int  # milliseconds since 1970
    last: int
    words: int  # of the learned posts
    nats: float  # what these cost when they came …
    nobody: float  # … and what they would have cost as anybody's
    typical: list[str]  # words that the user writes more than others do


class Totals(NamedTuple):
    """What was learned so far, in all."""

    accepted: int  # posts
    waiting: int
    learned: int
    unreadable: int
    rounds: int
    nats: float
    nobody: float
    words: int
    taken: int  # steps
    kept: int


class Book:
    """Questions to the inbox; nothing is changed."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def person(self, user: str) -> Person | None:
        """What is known of a user; None: nobody of that name has posted."""
        name = mend(user)
        statement = (
            "SELECT count(*), count(nats), min(time), max(time), sum(words), sum(nats), "
            "sum(nobody) FROM posts WHERE user = ?"
        )
        ((posts, learned, first, last, words, nats, nobody),) = self.database.rows(statement, name)
        if not posts:
            return None
        costs = (words or 0, nats or 0.0, nobody or 0.0)
        return Person(posts, learned, first, last, *costs, self.typical(name))

    def has_posted(self, user: str) -> bool:
        """Whether there is a post, or a word, of a user."""
        name = mend(user)
        queries = [f"SELECT 1 FROM {table} WHERE user = ? LIMIT 1" for table in ("posts", "heard")]
        return any(self.database.value(query, name) for query in queries)

    def typical(self, user: str) -> list[str]:
        """Words more typical of a user than of others, by the log-likelihood ratio of each.

        Only words that the user wrote twice or more are looked at, the most frequent first.
        """
        own_total = self.database.value("SELECT sum(count) FROM heard WHERE user = ?", user) or 0
        total = self.database.value("SELECT sum(count) FROM heard") or 0
        rows = self.database.rows(
            "SELECT word, count, (SELECT sum(count) FROM heard AS every WHERE every.word = "
            "own.word) FROM heard AS own WHERE user = ? AND count >= ? "
            "ORDER BY count DESC, word LIMIT ?",
            *(user, RARE, TRIED),
        )
        scored = []
        for word, own, every in rows:
            expected = own_total * every / max(total, 1)
            if own > expected:
                scored.append((own * math.log(own / expected), word))
        return [word for _, word in sorted(scored, key=lambda each: (-each[0], each[1]))[:TYPICAL]]

    def is_private(self, word: str, user: str | None, min_users: int) -> bool:
        """Whether a word was written by others only, and by fewer of them than ``min_users``.

        Of a word that nobody has written, those count that begin with it: else a part of somebody's
        word would be told.
        """
        name = None if user is None else mend(user)
        for last in (word, f"{word}\U0010ffff"):
            span = "FROM heard WHERE word BETWEEN ? AND ?"
            found = self.database.rows(
                f"SELECT DISTINCT user {span} LIMIT ?", word, last, min_users
            )
            if found:
                own = self.database.rows(f"SELECT 1 {span} AND user = ? LIMIT 1", word, last, name)
                return len(found) < min_users and not own
        return False

    def totals(self) -> Totals:
        """Everything that was learned so far."""
        statement = (
            "SELECT coalesce(sum(posts), 0), coalesce(sum(unreadable), 0), count(*), "
            "coalesce(sum(nats), 0), coalesce(sum(nobody), 0), coalesce(sum(words), 0), "
            "coalesce(sum(taken), 0), coalesce(sum(kept), 0), coalesce(max(last), 0) "
            "FROM rounds WHERE played"
        )
        ((posts, unreadable, *rest, last),) = self.database.rows(statement)
        waiting = self.database.value("SELECT count(*) FROM posts WHERE seq > ?", last)
        return Totals(posts + waiting, waiting, posts - unreadable, unreadable, *rest)
