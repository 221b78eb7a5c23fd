"""Posts of Bluesky, from its Jetstream: JSON over a websocket, with a cursor that is kept."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from websockets.exceptions import InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from firehose.data.clean import Language, is_blank
from firehose.data.post import Post
from firehose.data.sources.fields import moment
from firehose.errors import FirehoseError
from firehose.interrupts import Request, stop_requests
from firehose.progress import say
from firehose.serving.listening import LONGEST, Carrier
from firehose.storage.files import write_whole

COLLECTION = "app.bsky.feed.post"
AGAIN = (0.5, 60.0)  # seconds before the next try: at first, and at most
QUIET = 0.25  # seconds without a message after which what was heard is brought
SAVE_EVERY = 1.0  # seconds
TELL_EVERY = 30.0  # seconds
MAX_MESSAGE = 1 << 20  # bytes
GONE = ("deleted", "takendown")  # states of an account that is to be forgotten


class Ear:
    """Makes posts and deletions of the messages of a Jetstream, and knows how far it has come.

    The cursor is written when all before it is safe: after a kill some messages are heard again,
    which changes nothing, as a post counts once by its author and its key.
    """

    def __init__(self, carrier: Carrier, place: Path, languages: Sequence[str]) -> None:
        self.carrier, self.place, self.languages = carrier, place, languages
        self.cursor = self._read()
        self._saved, self._saved_at = self.cursor, time.monotonic()

    @cached_property
    def _language(self) -> Language:
        return Language()

    def _read(self) -> int:
        """The cursor in its file, microseconds since 1970; 0: there is none."""
        try:
            return int(self.place.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            raise FirehoseError(
                f"{self.place} does not hold a cursor; remove it to begin with what is new."
            ) from None

    def hear(self, message: str | bytes) -> None:
        """Take in one message."""
        try:
            event = json.loads(message)
            when, user = int(event["time_us"]), str(event["did"])
        except (ValueError, KeyError, TypeError, RecursionError):
            self.carrier.heard.leave_out("broken message", f"after {self.cursor}")
            return
        commit, account = event.get("commit"), event.get("account")
        if isinstance(commit, Mapping) and commit.get("collection") == COLLECTION:
            self._hear_post(user, commit, when)
        elif isinstance(account, Mapping) and account.get("status") in GONE:
            self.carrier.delete(user, None)
        self.cursor = max(self.cursor, when)

    def _hear_post(self, user: str, commit: Mapping[str, Any], when: int) -> None:
        key, operation = str(commit.get("rkey", "")), commit.get("operation")
        if operation == "delete":
            self.carrier.delete(user, key)
        elif operation == "create":
            found = self._post(user, key, commit.get("record"), when)
            if isinstance(found, Post):
                self.carrier.add(found)
            else:
                self.carrier.heard.leave_out(found, f"{user}/{key}")
        else:
            self.carrier.heard.leave_out("neither new nor deleted", f"{user}/{key}")

    def _post(self, user: str, key: str, record: Any, when: int) -> Post | str:
        """The post in a record, or why it is left out."""
        text = record.get("text") if isinstance(record, Mapping) else None
        if not isinstance(text, str) or not user or not key or is_blank(text):
            return "no text"
        if record.get("reply"):
            return "reply"
        if len(text) > LONGEST or len(user) > 256 or len(key) > 256:
            return "too long"
        told = record.get("langs")
        known = [str(each)[:2] for each in told] if isinstance(told, list) and told else None
        known = known or [self._language.detect(text) or ""]
        if self.languages and not set(known) & set(self.languages):
            return "other language"
        return Post(user, text, moment(record.get("createdAt")) or when // 1000, key)

    def rest(self) -> None:
        """Bring what was heard, and write the cursor if it is time."""
        self.carrier.flush()
        if self.cursor != self._saved and time.monotonic() - self._saved_at >= SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Write the cursor, after all that comes before it is safe."""
        self.carrier.flush()
        if self.cursor:
            write_whole(self.place, f"{self.cursor}\n".encode())
        self._saved, self._saved_at = self.cursor, time.monotonic()


def hear_jetstream(
    url: str, carrier: Carrier, place: Path, languages: Sequence[str] = ("en",)
) -> None:
    """Bring what a Jetstream says until told to stop; a connection that breaks is made again."""
    ear, wait = Ear(carrier, place, languages), AGAIN[0]
    with stop_requests() as request:
        while not request.made:
            sign = "&" if "?" in url else "?"
            asked = f"{url}{sign}wantedCollections={COLLECTION}"
            asked += f"&cursor={ear.cursor}" if ear.cursor else ""
            before = ear.cursor
            try:
                with connect(asked, max_size=MAX_MESSAGE, open_timeout=20) as connection:
                    _listen(connection, ear, request)
            except InvalidURI:
                raise FirehoseError(f"{url} is not the address of a Jetstream: wss://….") from None
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
            rate, lag = (heard.brought - before) / (now - told), time.time() - ear.cursor / 1e6
            say(f"{rate:.1f} posts/s, {lag:.1f} s behind; {heard.summary()}")
            told, before = now, heard.brought


def _sleep(seconds: float, request: Request) -> None:
    """Wait, but not for somebody who is told to stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not request.made:
        time.sleep(0.05)
