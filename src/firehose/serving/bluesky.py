"""Posts of Bluesky, from one of its public streams over a websocket, with a cursor that is kept."""

import logging
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from websockets.exceptions import InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from firehose.data.clean import Language, is_blank, mend
from firehose.data.post import Post
from firehose.data.sources.fields import moment
from firehose.errors import FirehoseError
from firehose.interrupts import Request, stop_requests
from firehose.progress import say
from firehose.serving.listening import LONGEST, LONGEST_NAME, Carrier
from firehose.serving.streams import BrokenError, Change, Stream, stream_of
from firehose.storage.files import write_whole

AGAIN = (0.5, 60.0)  # seconds before the next try: at first, and at most
QUIET = 0.25  # seconds without a message after which what was heard is brought
SAVE_EVERY = 1.0  # seconds
TELL_EVERY = 30.0  # seconds
# What we bring may be long in being taken, and pings go unread meanwhile.
PING_PATIENCE = 120.0  # seconds
CURSORS = range(1 << 63)  # what a cursor can be
logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())  # what goes wrong with a connection is said once, by us


class Ear:
    """Makes posts and deletions of the messages of a stream, and knows how far it has come.

    The cursor is written when all before it is safe: after a kill some messages are heard again,
    which changes nothing, as a post counts once by its author and its key.
    """

    def __init__(
        self, stream: Stream, carrier: Carrier, place: Path, languages: Sequence[str]
    ) -> None:
        self.stream, self.carrier = stream, carrier
        self.place, self.languages = place, languages
        self.cursor = self._read()
        self.when = 0  # of the last message, microseconds since 1970
        self._saved, self._saved_at = self.cursor, time.monotonic()

    @cached_property
    def _language(self) -> Language:
        return Language()

    def _read(self) -> int:
        """The cursor in its file; 0: there is none."""
        try:
            return int(self.place.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            raise FirehoseError(
                f"{self.place} does not hold a cursor; remove it to begin with what is new."
            ) from None

    def hear(self, message: str | bytes) -> None:
        """Take in one message; what cannot be read of it is counted."""
        heard = self.carrier.heard
        try:
            said = self.stream.read(message)
            if said.cursor is not None and said.cursor not in CURSORS:
                raise BrokenError
        except BrokenError:
            heard.leave_out("broken message", f"after {self.cursor}")
            return
        user = mend(said.user)
        if said.fault:
            heard.leave_out(said.fault, f"after {self.cursor}")
        if (said.changes or said.is_gone) and not _is_name(user):
            heard.leave_out("no user", f"after {self.cursor}")
        else:
            for change in said.changes:
                self._take(user, change, said.when)
            if said.is_gone:
                self.carrier.delete(user, None)
        self.cursor, self.when = max(self.cursor, said.cursor or 0), said.when or self.when

    def _take(self, user: str, change: Change, when: int) -> None:
        key, reason = mend(change.key), ""
        if not _is_name(key):
            reason = "no key"
        elif change.action == "delete":
            self.carrier.delete(user, key)
        elif change.action == "create":
            found = self._post(user, key, change.record, when)
            if isinstance(found, Post):
                self.carrier.add(found)
            else:
                reason = found
        else:
            reason = "neither new nor deleted"
        if reason:
            self.carrier.heard.leave_out(reason, f"{user}/{key}"[:LONGEST_NAME])

    def _post(self, user: str, key: str, record: Any, when: int) -> Post | str:
        """The post in a record, or why it is left out."""
        text = record.get("text") if isinstance(record, dict) else None
        if not isinstance(text, str) or is_blank(text):
            return "no text"
        if record.get("reply"):
            return "reply"
        if len(text) > LONGEST:
            return "too long"
        told = record.get("langs")
        known = [str(each)[:2] for each in told] if isinstance(told, list) and told else None
        known = known or [self._language.detect(text) or ""]
        if self.languages and not set(known) & set(self.languages):
            return "other language"
        written = moment(str(record.get("createdAt"))) or moment(when // 1000) or 0
        return Post(user, text, written, key)

    def rest(self) -> None:
        """Bring what was heard, and write the cursor if it is time."""
        self.carrier.flush()
        is_due = not self._saved or time.monotonic() - self._saved_at >= SAVE_EVERY
        if self.cursor != self._saved and is_due:
            self.save()

    def save(self) -> None:
        """Write the cursor, after all that comes before it is safe."""
        self.carrier.flush()
        if self.cursor:
            write_whole(self.place, f"{self.cursor}\n".encode())
        self._saved, self._saved_at = self.cursor, time.monotonic()


def hear_bluesky(
    carrier: Carrier,
    place: Path,
    protocol: str = "jetstream",
    url: str | None = None,
    languages: Sequence[str] = ("en",),
) -> None:
    """Bring what a stream says until told to stop; a connection that breaks is made again.

    ``place`` is the file of the cursor, ``protocol`` is jetstream or repos, ``url`` where the
    stream is (None: the public one). No ``languages`` means all of them.
    """
    stream = stream_of(protocol)
    ear, wait, url = Ear(stream, carrier, place, languages), AGAIN[0], url or stream.public
    with stop_requests() as request:
        while not request.made:
            before, asked = ear.cursor, stream.ask(url, ear.cursor)
            try:
                with connect(
                    asked,
                    max_size=stream.max_message,
                    open_timeout=20,
                    ping_timeout=PING_PATIENCE,
                    logger=logger,
                ) as connection:
                    _listen(connection, ear, request)
            except InvalidURI:
                raise FirehoseError(f"{url} is not the address of a stream: wss://….") from None
            except (OSError, WebSocketException) as error:
                if ear.cursor != before:
                    wait = AGAIN[0]
                why = str(error) or type(error).__name__
                say(f"{url} is silent ({why}); trying again in {wait} s.")
                _sleep(wait, request)
                wait = min(2 * wait, AGAIN[1])
    ear.save()


def _listen(connection: ClientConnection, ear: Ear, request: Request) -> None:
    """Hear one connection out, and tell how it goes now and then."""
    told, rest = time.monotonic(), time.monotonic()
    heard = ear.carrier.heard
    before = heard.brought
    while not request.made:
        try:
            ear.hear(connection.recv(timeout=QUIET))
        except TimeoutError:
            ear.rest()
        now = time.monotonic()
        if now - rest >= QUIET:
            ear.rest()
            rest = now
        if now - told >= TELL_EVERY:
            rate, lag = (heard.brought - before) / (now - told), time.time() - ear.when / 1e6
            behind = f"{lag:.1f} s behind" if ear.when else "nothing heard yet"
            say(f"{rate:.1f} posts/s, {behind}; {heard.summary()}")
            told, before = now, heard.brought


def _sleep(seconds: float, request: Request) -> None:
    """Wait, but not for somebody who is told to stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not request.made:
        time.sleep(0.05)


def _is_name(text: str) -> bool:
    """Whether a user or a post can be called so."""
    return bool(text.strip()) and len(text) <= LONGEST_NAME
