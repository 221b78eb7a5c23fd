"""The inbox as a SQLite database: opened safely, written durably, erased without a trace."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firehose.data.sources.inbox import APPLICATION
from firehose.errors import FirehoseError
from firehose.storage.files import make_folder, sync

SCHEMA = 2
PATIENCE = 30.0  # seconds that a transaction waits for another one
TABLES = """
CREATE TABLE posts (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, not even after a deletion
  user TEXT NOT NULL,
  id TEXT NOT NULL,
  time INTEGER NOT NULL,                  -- milliseconds since 1970, as the author has it
  text TEXT NOT NULL,
  accepted INTEGER NOT NULL,              -- milliseconds since 1970, as the server has it
  nats REAL, nobody REAL, words INTEGER,  -- what it cost as its user and as nobody, once learned
  costs TEXT,                             -- of each word, as JSON, of some posts of a round
  UNIQUE (user, id)
);
CREATE TABLE rounds (
  number INTEGER PRIMARY KEY,
  last INTEGER NOT NULL,                  -- seq: the round has all posts after the last one's
  posts INTEGER NOT NULL,
  closed INTEGER NOT NULL,
  played INTEGER NOT NULL DEFAULT 0,
  unreadable INTEGER NOT NULL DEFAULT 0,  -- posts that could not be learned from
  nats REAL NOT NULL DEFAULT 0, nobody REAL NOT NULL DEFAULT 0, words INTEGER NOT NULL DEFAULT 0,
  taken INTEGER NOT NULL DEFAULT 0, kept INTEGER NOT NULL DEFAULT 0,  -- steps
  seconds REAL NOT NULL DEFAULT 0
);
CREATE TABLE heard (                      -- how often each user has written each word
  word TEXT NOT NULL, user TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (word, user)
) WITHOUT ROWID;
CREATE INDEX heard_by ON heard (user);
CREATE TABLE requests (                   -- to forget a user, or one post of a user
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  user TEXT,                              -- nothing, once erased
  post TEXT,                              -- an id; nothing: all of the user
  last INTEGER NOT NULL,                  -- seq: later posts are those of somebody new
  round INTEGER,                          -- after which it was carried out
  erased TEXT,                            -- how many things of each kind so far, as JSON
  snapshot INTEGER,                       -- the first without it
  done INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX requests_left ON requests (number) WHERE NOT done;
"""
EARLIER = {1: "ALTER TABLE posts ADD COLUMN costs TEXT"}  # by the schema that lacks it


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Database:
    """A connection that several threads may share; each statement or transaction has it alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_folder(path.parent)
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(
                path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise FirehoseError(f"Cannot open {path}: {error}.") from None
        sync(path.parent)

    def _prepare(self) -> None:
        self.run("PRAGMA journal_mode = WAL")
        self.run("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
        self.run("PRAGMA secure_delete = ON")
        with self.transaction():
            version = self.value("PRAGMA user_version")
            if self.value("PRAGMA application_id") == APPLICATION:
                if version in EARLIER:
                    self.run(EARLIER[version])
                    self.run(f"PRAGMA user_version = {SCHEMA}")
                    return
                if version == SCHEMA:
                    return
            if self.value("SELECT count(*) FROM sqlite_master"):
                raise FirehoseError(
                    f"{self.path} is not an inbox that this Firehose reads; choose another folder."
                )
            for statement in TABLES.split(";\n"):
                self.run(statement)
            self.run(f"PRAGMA application_id = {APPLICATION}")
            self.run(f"PRAGMA user_version = {SCHEMA}")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the file tells what it is

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Carry out a statement."""
        with self._lock:
            return self._connection.execute(statement, values)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows that a statement finds."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def value(self, statement: str, *values: Any) -> Any:
        """The first value of the first row that a statement finds; None: there is no row."""
        found = self.rows(statement, *values)
        return found[0][0] if found else None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside are carried out, and on disk at the end, or none is."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()

    def scrub(self) -> None:
        """Leave no byte of what was deleted in the file, nor in its write-ahead log.

        What is deleted is overwritten at once, but a page that was rearranged may still hold a
        copy, and the log the page as it was before. So the file is written anew, and the log cut.
        """
        with self._lock:
            self._connection.execute("VACUUM")
            deadline = time.monotonic() + PATIENCE
            while self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() > deadline:  # somebody reads, and does not end
                    raise FirehoseError(f"{self.path} is being read: its log cannot be cut.")
                time.sleep(0.05)
