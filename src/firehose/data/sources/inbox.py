"""Read the posts that a service has heard: ``firehose prepare STATE/inbox.sqlite``."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from firehose.data.post import Post, Skip
from firehose.data.sources import Shard, Source
from firehose.errors import FirehoseError

APPLICATION: Final = 0x46697265  # "Fire", in the header of the file
PER_SHARD = 100_000  # posts
AT_ONCE = 1_000  # posts that are read at once


class Inbox(Source):
    """The inboxes of services, each a SQLite database; it may be in use meanwhile."""

    kind: str = "inbox"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether ``path`` is a SQLite database with the mark of an inbox."""
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(100)
        return head.startswith(b"SQLite format 3\0") and head[68:72] == APPLICATION.to_bytes(4)

    def shards(self) -> list[Shard]:
        """Spans of posts, in the order in which they were accepted."""
        found: list[Shard] = []
        for name in self.paths:
            path = Path(name).expanduser().absolute()  # a worker may have another directory
            if not self.recognises(path):
                raise FirehoseError(f"{name} is not the inbox of a service.")
            with _reading(str(path)) as database:
                last = database.execute("SELECT coalesce(max(seq), 0) FROM posts").fetchone()[0]
            spans = range(0, last, PER_SHARD)
            found += [
                {"path": str(path), "after": after, "last": min(after + PER_SHARD, last)}
                for after in spans
            ]
        return found

    def read(self, shard: Shard) -> Iterator[Post | Skip]:
        """The posts of one span."""
        after, last = shard["after"], shard["last"]
        with _reading(shard["path"]) as database:
            while True:
                rows = database.execute(
                    "SELECT seq, user, text, time, id FROM posts WHERE seq > ? AND seq <= ? "
                    "ORDER BY seq LIMIT ?",
                    (after, last, AT_ONCE),
                ).fetchall()
                if not rows:
                    return
                yield from (Post(*row[1:]) for row in rows)
                after = rows[-1][0]


@contextlib.contextmanager
def _reading(path: str) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=30)
        ) as database:
            yield database
    except sqlite3.DatabaseError as error:
        raise FirehoseError(f"Cannot read {path}: {error}.") from None
