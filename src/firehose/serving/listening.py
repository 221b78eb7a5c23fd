"""What brings posts to a service: from lines of JSON, and to an address or into a folder."""

import contextlib
import json
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from firehose.data.clean import is_blank
from firehose.data.post import Post
from firehose.data.sources.fields import TOO_LONG, checked, json_post, label, moment
from firehose.data.sources.files import lines
from firehose.errors import FirehoseError, visible
from firehose.progress import say
from firehose.report.words import many
from firehose.serving.access import ROLES, allows, read_tokens
from firehose.serving.inbox import FILE, Inbox

AT_ONCE = 100  # posts that are brought together
AGAIN = (0.5, 30.0)  # seconds before the next try: at first, and at most
LONGEST, LONGEST_NAME = 4_096, 256  # characters of a text, and of a name or an id


class RefusedError(FirehoseError):
    """A service that does not want what it is brought."""


class Target(Protocol):
    """Where posts are brought."""

    def bring(self, posts: Sequence[Post]) -> int:
        """Bring posts; they are safe when this returns, with how many were new."""

    def withdraw(self, user: str, post: str | None) -> None:
        """Have a post deleted, or everything of a user."""


class Folder:
    """The inbox in a folder, whether it is served right now or not."""

    def __init__(self, folder: Path) -> None:
        self.inbox = Inbox(folder / FILE, limit=None)  # nobody may be learning here

    def bring(self, posts: Sequence[Post]) -> int:
        """Write posts into the inbox."""
        return sum(self.inbox.accept(posts).is_new)

    def withdraw(self, user: str, post: str | None) -> None:
        """Ask for a deletion; what is in no round yet is deleted at once."""
        self.inbox.request(user, post)


class Address:
    """A service at an address; while it cannot be reached, or is full, it is tried again."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url, self.token = url.rstrip("/"), token

    def is_up(self) -> bool:
        """Whether the service answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=10):
                return True
        except OSError:
            return False

    def bring(self, posts: Sequence[Post]) -> int:
        """Send posts until they are accepted."""
        sent = [
            {"user": p.user, "text": p.text, "id": p.id} | ({"time": p.time} if p.time else {})
            for p in posts
        ]
        answer = self._send("POST", "/v1/posts", json.dumps(sent).encode())
        return int(answer["accepted"])

    def withdraw(self, user: str, post: str | None) -> None:
        """Have a post deleted, or everything of a user."""
        if post is None:
            path = f"/v1/users/{urllib.parse.quote(user, safe='')}"
        else:
            path = f"/v1/posts?{urllib.parse.urlencode({'user': user, 'id': post})}"
        self._send("DELETE", path, None, allowed=(404,))

    def _send(
        self, method: str, path: str, content: bytes | None, allowed: Sequence[int] = ()
    ) -> dict[str, Any]:
        head = {"content-type": "application/json"}
        head |= {"authorization": f"Bearer {self.token}"} if self.token else {}
        wait, is_told = AGAIN[0], False
        while True:
            request = urllib.request.Request(self.url + path, content, head, method=method)
            try:
                with urllib.request.urlopen(request, timeout=90) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except urllib.error.HTTPError as error:
                if error.code in allowed:
                    return {}
                if error.code not in (429, 503):
                    kind = RefusedError if error.code in (413, 422) else FirehoseError
                    raise kind(_refusal(self.url, error)) from None
                why = f"is full or busy ({error.code})"
            except (OSError, ValueError) as error:
                why = f"cannot be reached ({getattr(error, 'reason', error)})"
            if not is_told:
                say(f"{self.url} {why}; trying again.")
                is_told = True
            time.sleep(wait)
            wait = min(2 * wait, AGAIN[1])


def _refusal(url: str, error: urllib.error.HTTPError) -> str:
    """The sentence that a service gives for refusing something."""
    try:
        detail = str(json.loads(error.read(10_000))["detail"])
    except (ValueError, KeyError, TypeError):
        detail = str(error.reason)
    return f"{url} refuses it ({error.code}): {visible(detail)}"


@contextlib.contextmanager
def open_target(into: str, token_file: Path | None = None) -> Iterator[Target]:
    """The service at an address, or the folder of one."""
    if not into.startswith(("http://", "https://")):
        folder = Folder(Path(into))
        try:
            yield folder
        finally:
            folder.inbox.close()
        return
    tokens = read_tokens(token_file) if token_file else []
    fitting = [token for token in tokens if allows(token.role, "write")]
    if tokens and not fitting:
        raise FirehoseError(f"{token_file} has no token that may write.")
    best = max(fitting, key=lambda token: ROLES.index(token.role), default=None)
    yield Address(into, best.secret.decode() if best else None)


@dataclass
class Heard:
    """How much was heard, and what was left out, and why."""

    brought: int = 0  # posts
    new: int = 0
    deleted: int = 0  # posts and users
    left_out: Counter[str] = field(default_factory=Counter)

    def leave_out(self, why: str, where: str) -> None:
        """Count something that is not brought; the first of its kind is shown."""
        if not self.left_out[why]:
            say(f"Left out: {why} ({where}).")
        self.left_out[why] += 1

    def summary(self) -> str:
        """One line about all of it."""
        deleted = f", {self.deleted:,} deleted" if self.deleted else ""
        return (
            f"{many(self.brought, 'post')} brought, {self.new:,} of them new{deleted}; "
            f"{self.left_out.total():,} left out."
        )


class Carrier:
    """Collects posts and brings them together, in their order."""

    def __init__(self, target: Target, heard: Heard) -> None:
        self.target, self.heard = target, heard
        self._posts: list[Post] = []

    def add(self, post: Post) -> None:
        """Bring a post with the next ones, or now, if they are many."""
        self._posts.append(post)
        if len(self._posts) >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Bring all posts that were added: they are safe when this returns."""
        self._bring(self._posts)
        self._posts = []

    def delete(self, user: str, post: str | None) -> None:
        """Have a post deleted, or all of a user, after what came before is brought."""
        self.flush()
        self.target.withdraw(user, post)
        self.heard.deleted += 1

    def _bring(self, posts: Sequence[Post]) -> None:
        if not posts:
            return
        try:
            new = self.target.bring(posts)
        except RefusedError as error:
            if len(posts) == 1:
                self.heard.leave_out("refused by the service", str(error))
            else:  # one of them may be the reason
                for post in posts:
                    self._bring([post])
            return
        self.heard.brought += len(posts)
        self.heard.new += new


def hear_lines(file: Any, carrier: Carrier) -> None:
    """Bring the posts in lines of JSON, those that are there at once together."""

    def chunks() -> Iterator[bytes]:
        while chunk := file.read1(1 << 16):
            yield chunk
            carrier.flush()  # all lines of the chunk were read, and the next may be long in coming

    for number, line in enumerate(lines(chunks()), 1):
        found = json_post(line, _post)
        if isinstance(found, Post):
            carrier.add(found)
        elif found:
            carrier.heard.leave_out(found, f"line {number:,}")
    carrier.flush()


def _post(record: dict[str, Any]) -> Post | str:
    """The post in a record, or why it is none; without an id it gets one, to be sent again with."""
    user, text = label(record.get("user")), record.get("text")
    name = label(record.get("id")) or secrets.token_hex(8)
    if not user.strip():
        return "no user"
    if not isinstance(text, str) or is_blank(text):
        return "no text"
    if len(text) > LONGEST or len(user) > LONGEST_NAME or len(name) > LONGEST_NAME:
        return TOO_LONG
    when = 0 if record.get("time") is None else moment(record["time"])
    if when is None:
        return "unreadable time"
    return checked(Post(user, text, when, name))
