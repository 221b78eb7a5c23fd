"""The inbox: posts are accepted durably, once each, and no more than can be learned from."""

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from firehose.data.clean import mend
from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.serving.costs import WordCost
from firehose.serving.database import Database, now

FILE = "inbox.sqlite"
LIMIT = 10_000  # posts that may wait


class FullError(FirehoseError):
    """More posts are waiting than the inbox has room for."""


class Accepted(NamedTuple):
    """What became of posts that were brought."""

    ids: list[str]  # of each, in their order
    is_new: list[bool]  # whether each was not there before


class Round(NamedTuple):
    """Which posts are in a round: those after ``first`` and up to ``last``, by ``seq``."""

    number: int
    first: int
    last: int


class Played(NamedTuple):
    """What came of a round."""

    seqs: Sequence[int]  # of the posts that were learned from
    nats: Sequence[float]  # what each cost as its user …
    nobody: Sequence[float]  # … and as nobody
    words: Sequence[int]
    texts: Sequence[Sequence[str]]  # the words of each
    users: Sequence[str]
    unreadable: int = 0
    taken: int = 0  # steps
    kept: int = 0
    seconds: float = 0.0
    word_costs: Mapping[int, Sequence[WordCost]] = {}  # of some posts, by their seq


class Request(NamedTuple):
    """Somebody's wish to be forgotten, or to have a post deleted."""

    number: int
    user: str | None  # None: it is erased already
    post: str | None
    last: int
    round: int | None
    erased: dict[str, int] | None
    snapshot: int | None
    is_done: bool


class Inbox:
    """The posts of a service, the rounds they are in, and what is to be forgotten of them."""

    def __init__(self, path: Path, limit: int | None = LIMIT) -> None:
        self.database = Database(path)
        self.limit = limit  # posts that may wait; None: any number

    def close(self) -> None:
        """Let go of the file."""
        self.database.close()

    def accept(self, posts: Sequence[Post]) -> Accepted:
        """Take posts in; they are on disk when this returns. The same id of a user counts once.

        A post without an id gets one, a post without a time the present one. Raises FullError,
        and takes none, where too many are waiting.
        """
        moment, ids, is_new = now(), [], []
        with self.database.transaction():
            if self.limit is not None and self.waiting() + len(posts) > self.limit:
                raise FullError(
                    f"{self.limit:,} posts may wait to be learned from, and there is no room for "
                    f"{len(posts):,} more; try again later."
                )
            for post in posts:
                ids.append(mend(post.id) or secrets.token_hex(8))
                cursor = self.database.run(
                    "INSERT OR IGNORE INTO posts (user, id, time, text, accepted) "
                    "VALUES (?, ?, ?, ?, ?)",
                    *(mend(post.user), ids[-1], post.time or moment, mend(post.text), moment),
                )
                is_new.append(cursor.rowcount == 1)
        return Accepted(ids, is_new)

    def waiting(self) -> int:
        """The posts that no round was played with yet."""
        last = self._value("SELECT last FROM rounds WHERE played ORDER BY number DESC LIMIT 1", 0)
        return int(self._value("SELECT count(*) FROM posts WHERE seq > ?", 0, last))

    def close_round(self, most: int, seconds: float) -> Round | None:
        """Put the oldest waiting posts into a new round, if there are ``most``, or one is old.

        A post is old that has waited for so many seconds. None: no round is due.
        """
        with self.database.transaction():
            number, first = self._newest()
            seqs = self.database.rows(
                "SELECT seq, accepted FROM posts WHERE seq > ? ORDER BY seq LIMIT ?", first, most
            )
            if not seqs or (len(seqs) < most and now() - seqs[0][1] < 1000 * seconds):
                return None
            closed = Round(number + 1, first, seqs[-1][0])
            self.database.run(
                "INSERT INTO rounds (number, last, posts, closed) VALUES (?, ?, ?, ?)",
                *(closed.number, closed.last, len(seqs), now()),
            )
        return closed

    def _newest(self) -> tuple[int, int]:
        """The number of the newest round, and its last post."""
        rows = self.database.rows("SELECT number, last FROM rounds ORDER BY number DESC LIMIT 1")
        return rows[0] if rows else (0, 0)

    def round(self, number: int) -> Round | None:
        """A round that was closed; None: it was not. Number 0 is before the first."""
        if number == 0:
            return Round(0, 0, 0)
        rows = self.database.rows(
            "SELECT number, last FROM rounds WHERE number IN (?, ?) ORDER BY number",
            *(number - 1, number),
        )
        if not rows or rows[-1][0] != number:
            return None
        return Round(number, rows[0][1] if rows[1:] else 0, rows[-1][1])

    def posts_of(self, played: Round) -> list[tuple[int, Post]]:
        """The posts of a round with their ``seq``, in the order in which they were accepted."""
        rows = self.database.rows(
            "SELECT seq, user, text, time, id FROM posts WHERE seq > ? AND seq <= ? ORDER BY seq",
            *(played.first, played.last),
        )
        return [(row[0], Post(*row[1:])) for row in rows]

    def record(self, number: int, played: Played) -> None:
        """Write down what came of a round; one that is played again counts once."""
        with self.database.transaction():
            totals = (sum(played.nats), sum(played.nobody), sum(played.words))
            cursor = self.database.run(
                "UPDATE rounds SET played = 1, unreadable = ?, nats = ?, nobody = ?, words = ?, "
                "taken = ?, kept = ?, seconds = ? WHERE number = ? AND NOT played",
                *(played.unreadable, *totals, played.taken, played.kept, played.seconds, number),
            )
            if cursor.rowcount != 1:
                return
            costs = zip(played.nats, played.nobody, played.words, played.seqs, strict=True)
            for cost in costs:
                self.database.run(
                    "UPDATE posts SET nats = ?, nobody = ?, words = ? WHERE seq = ?", *cost
                )
            for seq, costs_of_words in played.word_costs.items():
                told = json.dumps([(word, round(nats, 4)) for word, nats in costs_of_words])
                self.database.run("UPDATE posts SET costs = ? WHERE seq = ?", told, seq)
            for user, words in zip(played.users, played.texts, strict=True):
                for word in words:
                    self.database.run(
                        "INSERT INTO heard VALUES (?, ?, 1) "
                        "ON CONFLICT DO UPDATE SET count = count + 1",
                        *(word, user),
                    )

    def request(self, user: str, post: str | None = None) -> int:
        """Ask to forget a user, or to delete one post; returns the number of the request.

        Posts that are in no round yet are deleted at once.
        """
        name, ident = mend(user), None if post is None else mend(post)
        with self.database.transaction():
            last = self._value("SELECT max(seq) FROM posts", 0)
            gone = self.database.run(
                "DELETE FROM posts WHERE user = ? AND id = ifnull(?, id) AND seq > ?",
                *(name, ident, self._newest()[1]),
            )
            erased = json.dumps({"posts": gone.rowcount})
            cursor = self.database.run(
                "INSERT INTO requests (user, post, last, erased) VALUES (?, ?, ?, ?)",
                *(name, ident, last, erased),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def position(self, number: int) -> list[Request]:
        """The requests to be carried out after a round, which is written down first."""
        with self.database.transaction():
            statement = "UPDATE requests SET round = ? WHERE round IS NULL AND NOT done"
            self.database.run(statement, number)
        rows = self.database.rows("SELECT * FROM requests WHERE NOT done ORDER BY number")
        return [_request(row) for row in rows]

    def has_requests(self) -> bool:
        """Whether anything is to be forgotten."""
        return bool(self._value("SELECT 1 FROM requests WHERE NOT done LIMIT 1", 0))

    def find_request(self, number: int) -> Request | None:
        """A request by its number."""
        rows = self.database.rows("SELECT * FROM requests WHERE number = ?", number)
        return _request(rows[0]) if rows else None

    def learned_text(self, user: str, post: str) -> str | None:
        """The text of a post that was learned from; None: there is no such post."""
        statement = "SELECT text FROM posts WHERE user = ? AND id = ? AND nats IS NOT NULL"
        found: str | None = self.database.value(statement, user, post)
        return found

    def erase(self, request: Request, erased: Mapping[str, int], words: Sequence[str] = ()) -> None:
        """Delete the posts that a request speaks of, and the name in it.

        ``words`` are those of a single post that was learned from.
        """
        run, name = self.database.run, request.user
        before = (request.erased or {}).get("posts", 0)  # when it was asked for
        with self.database.transaction():
            if request.post is None:
                gone = run("DELETE FROM posts WHERE user = ? AND seq <= ?", name, request.last)
                told = run("DELETE FROM heard WHERE user = ?", name)
                counts = {**erased, "posts": before + gone.rowcount, "words": told.rowcount}
            else:
                gone = run("DELETE FROM posts WHERE user = ? AND id = ?", name, request.post)
                counts = {"posts": before + gone.rowcount}
                for word in words:
                    less = "UPDATE heard SET count = count - 1 WHERE word = ? AND user = ?"
                    run(less, word, name)
                run("DELETE FROM heard WHERE user = ? AND count <= 0", name)
            run(
                "UPDATE requests SET user = NULL, post = NULL, erased = ? WHERE number = ?",
                *(json.dumps(counts), request.number),
            )

    def finish(self, requests: Sequence[Request], snapshot: int) -> None:
        """Leave no byte of what was erased, and say so; ``snapshot`` is the first without it."""
        self.database.scrub()
        with self.database.transaction():
            for request in requests:
                self.database.run(
                    "UPDATE requests SET done = 1, snapshot = ? WHERE number = ?",
                    *(snapshot, request.number),
                )

    def _value(self, statement: str, otherwise: Any, *values: Any) -> Any:
        found = self.database.value(statement, *values)
        return otherwise if found is None else found


def _request(row: Sequence[Any]) -> Request:
    number, user, post, last, after, erased, snapshot, done = row
    counts = None if erased is None else json.loads(erased)
    return Request(number, user, post, last, after, counts, snapshot, bool(done))
