"""Who may ask for what: tokens with roles, and bodies no longer than they may be."""

import hmac
import json
import re
import stat
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from firehose.config import nearest
from firehose.errors import FirehoseError

ROLES = ("read", "write", "admin")  # each may do what those before it may
SHORTEST = 16  # characters of a token
ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")  # as browsers send it
OPEN = (("GET", "/healthz"), ("GET", "/"))  # what needs no token; the page asks for one

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Token(NamedTuple):
    """A secret word and what it allows."""

    role: str
    secret: bytes


def read_tokens(path: Path) -> list[Token]:
    """The tokens of a file: a line for each, ``ROLE TOKEN``; lines with ``#`` are comments."""
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise FirehoseError(
                f"{path} can be read by others than you; make it yours: `chmod 600 {path}`."
            )
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FirehoseError(f"Cannot read {path}: {error}.") from None
    tokens = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        role, _, secret = line.strip().partition(" ")
        if role not in ROLES:
            raise FirehoseError(
                f"{path}, line {number}, begins with {role!r:.20}, which is no role: "
                f"{nearest(role, ROLES)}"
            )
        if len(secret.strip()) < SHORTEST:
            raise FirehoseError(
                f"{path}, line {number}: a token has {SHORTEST} characters or more; "
                "`openssl rand -hex 24` makes one."
            )
        tokens.append(Token(role, secret.strip().encode()))
    if not tokens:
        raise FirehoseError(f"{path} has no token; write one as `write TOKEN`, a line for each.")
    return tokens


def refuse_no_origin(origins: Sequence[str]) -> None:
    """Refuse what cannot be the origin of a page; all pages at once are none."""
    for origin in origins:
        if not ORIGIN.fullmatch(origin):
            raise FirehoseError(
                f"--allow-origin {origin!r:.80} is not the origin of a page: https://example.org, "
                "in small letters, with its port if it has one, and nothing after it."
            )


def role_of(tokens: Sequence[Token], header: str | None) -> str | None:
    """The role that an ``Authorization: Bearer …`` header gives; None: it gives none.

    All tokens are compared, each in constant time, so that the time tells nothing.
    """
    scheme, _, given = (header or "").partition(" ")
    secret, found = given.strip().encode(), None
    for token in tokens:
        is_equal = hmac.compare_digest(token.secret, secret)
        if is_equal and scheme.lower() == "bearer":
            found = token.role if found is None else max(found, token.role, key=ROLES.index)
    return found


def allows(role: str | None, needed: str) -> bool:
    """Whether a role may do what needs another one."""
    return role is not None and ROLES.index(role) >= ROLES.index(needed)


class Gatekeeper:
    """Refuses requests before anything of them is read: unknown, to another host, or too long."""

    def __init__(
        self, app: Application, tokens: Sequence[Token], hosts: Sequence[str], max_body: int
    ) -> None:
        self.app, self.tokens, self.hosts, self.max_body = app, tokens, hosts, max_body

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with the role of who asks."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin1"): value for name, value in scope["headers"]}
        if self.hosts and _host(headers.get("host", b"")) not in self.hosts:
            # Else a page of somebody else's could have its name lead to this machine.
            await _answer(send, 421, "This service is known by another name.")
            return
        role = role_of(self.tokens, _text(headers.get("authorization")))
        scope["role"] = role if self.tokens else "admin"
        if scope["role"] is None and (scope["method"], scope["path"]) not in OPEN:
            await _answer(send, 401, "A token is needed: Authorization: Bearer TOKEN.")
            return
        length = headers.get("content-length", b"0")
        if not length.isdigit() or int(length) > self.max_body:
            await _answer(send, 413, f"A body has no more than {self.max_body:,} bytes.")
            return
        body = await self._read(receive)
        if body is None:
            await _answer(send, 413, f"A body has no more than {self.max_body:,} bytes.")
            return
        await self.app(scope, _again(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body of a request; None: it is too long. Its length need not be told before."""
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.max_body:
                return None
            if not message.get("more_body", False):
                return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """The messages of a request whose body was read already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _host(header: bytes) -> str:
    """The name in a ``Host`` header, without its port."""
    name = header.decode("latin1").lower()
    return name.partition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin1")


async def _answer(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
