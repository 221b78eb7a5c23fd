"""What those who watch a service are shown: numbers, the curve of its rounds, the last posts."""

import json
import threading
import time
from typing import Any

from firehose.serving.database import now
from firehose.serving.desk import Desk

POINTS = 240  # of the curve, when somebody begins to watch
POSTS = 12  # the last whose words were paid for one by one
RATE_SECONDS = 10.0  # over which posts per second are counted
RATE_POSTS = 5_000  # and no more posts than these
FRESH = 0.5  # seconds for which numbers are told again


class Feed:
    """Looks into the inbox for those who watch; many who watch cost what one does."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._lock = threading.Lock()
        self._told: dict[str, Any] = {}
        self._until = 0.0
        self._users = 0
        self._users_until = 0.0

    def numbers(self) -> dict[str, Any]:
        """How things stand, at most half a second ago."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._told = self._count()
                self._until = time.monotonic() + FRESH
            return self._told

    def _count(self) -> dict[str, Any]:
        totals, served = self.desk.book.totals(), self.desk.served
        return {
            "accepted": totals.accepted,
            "waiting": totals.waiting,
            "learned": totals.learned,
            "rounds": totals.rounds,
            "words": totals.words,
            "nats": totals.nats,
            "nobody": totals.nobody,
            "users": self._count_users(),
            "rate": self._rate(),
            "snapshot": served.number if served else None,
            "learning": self.desk.is_learning(),
        }

    def _count_users(self) -> int:
        """The users who have posted; counting takes time where there are many, so it is rare."""
        begun = time.monotonic()
        if begun >= self._users_until:
            query = "SELECT count(DISTINCT user) FROM posts"
            self._users = int(self.desk.book.database.value(query))
            ended = time.monotonic()
            self._users_until = ended + 50 * (ended - begun)
        return self._users

    def _rate(self) -> float:
        """Posts per second, of late."""
        since = now() - int(1000 * RATE_SECONDS)
        count = self.desk.book.database.value(
            "SELECT count(*) FROM (SELECT accepted FROM posts ORDER BY seq DESC LIMIT ?) "
            "WHERE accepted > ?",
            *(RATE_POSTS, since),
        )
        return float(count / RATE_SECONDS)

    def rounds(self, after: int) -> list[list[float]]:
        """What rounds after one cost: their last number, posts, words, nats, nats as nobody.

        Where there are too many for a curve, neighbours are added up.
        """
        query = "SELECT count(*) FROM rounds WHERE played AND number > ?"
        size = 1 + self.desk.book.database.value(query, after) // POINTS
        rows = self.desk.book.database.rows(
            "SELECT max(number), sum(posts), sum(words), sum(nats), sum(nobody) FROM rounds "
            "WHERE played AND number > ? GROUP BY (number - ? - 1) / ? ORDER BY 1",
            *(after, after, size),
        )
        return [list(row) for row in rows]

    def posts(self) -> list[dict[str, Any]]:
        """The last posts with what each of their words cost, the newest first."""
        rows = self.desk.book.database.rows(
            "SELECT seq, user, nats, nobody, words, costs FROM posts "
            "WHERE costs IS NOT NULL ORDER BY seq DESC LIMIT ?",
            POSTS,
        )
        names = ("seq", "user", "nats", "nobody", "words")
        return [
            {**dict(zip(names, row, strict=False)), "costs": json.loads(row[-1])} for row in rows
        ]
