"""What the public streams of Bluesky say: Jetstream in JSON, subscribeRepos in CBOR."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlparse

from firehose.config import nearest
from firehose.data.sources.fields import moment
from firehose.errors import FirehoseError, visible

COLLECTION = "app.bsky.feed.post"
GONE = ("deleted", "takendown")  # states of an account that is to be forgotten
SUBSCRIBE = "/xrpc/com.atproto.sync.subscribeRepos"
Found = TypeVar("Found")


class BrokenError(Exception):
    """A message that is none."""


class Change(NamedTuple):
    """What became of a post."""

    action: str  # create, update, delete
    key: str
    record: Any = None  # of what is created; it may be anything


class Said(NamedTuple):
    """What a message says, and where in the stream it stands."""

    cursor: int | None  # None: nowhere
    when: int = 0  # microseconds since 1970; 0: it does not say
    user: str = ""
    changes: Sequence[Change] = ()
    is_gone: bool = False  # the account
    fault: str = ""  # what of it could not be read


class Stream(NamedTuple):
    """A kind of stream: where it is, how it is asked for, how its messages are read."""

    public: str  # the address of one that everybody may read
    cursor_file: str
    max_message: int  # bytes
    ask: Callable[[str, int], str]  # the address to connect to, from a cursor on; 0: from now on
    read: Callable[[str | bytes], Said]  # raises BrokenError


def _ask_jetstream(url: str, cursor: int) -> str:
    asked = f"{url}{'&' if '?' in url else '?'}wantedCollections={COLLECTION}"
    return f"{asked}&cursor={cursor}" if cursor else asked


def _read_jetstream(message: str | bytes) -> Said:
    """Jetstream: an object with the time, which is the cursor, and a commit or an account."""
    try:
        event = json.loads(message)
        when, user = int(event["time_us"]), str(event["did"])
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        raise BrokenError from None
    commit, account = event.get("commit"), event.get("account")
    if isinstance(commit, Mapping) and commit.get("collection") == COLLECTION:
        key, action = str(commit.get("rkey", "")), str(commit.get("operation"))
        return Said(when, when, user, [Change(action, key, commit.get("record"))])
    is_gone = isinstance(account, Mapping) and account.get("status") in GONE
    return Said(when, when, user, is_gone=is_gone)


def _ask_repos(url: str, cursor: int) -> str:
    asked = url if urlparse(url).path.strip("/") else url.rstrip("/") + SUBSCRIBE
    return f"{asked}?cursor={cursor}" if cursor else asked


def _read_repos(message: str | bytes) -> Said:
    """subscribeRepos: two objects in CBOR, what kind of message it is, and what it says.

    Signatures are not checked: the server is believed.
    """
    frame = _decoded(_libipld().decode_dag_cbor_multi, message)
    if len(frame) != 2 or not all(isinstance(each, dict) for each in frame):
        raise BrokenError
    head, body = frame
    if head.get("op") == -1:
        _fail(body)
    kind, cursor = head.get("t"), body.get("seq")
    if kind == "#info":
        is_late = body.get("name") == "OutdatedCursor"
        return Said(None, fault="older than the stream keeps" if is_late else "")
    user = body.get("repo" if kind == "#commit" else "did")
    if not isinstance(cursor, int) or isinstance(cursor, bool) or not isinstance(user, str):
        raise BrokenError
    when = 1000 * (moment(str(body.get("time"))) or 0)
    if kind == "#account":
        is_gone = body.get("active") is not True and body.get("status") in GONE
        return Said(cursor, when, user, is_gone=is_gone)
    if kind != "#commit":
        return Said(cursor, when, user)
    changes, fault = _changes(body)
    return Said(cursor, when, user, changes, fault=fault)


def _changes(body: Mapping[str, Any]) -> tuple[list[Change], str]:
    """What a commit does to posts, and what of it could not be read."""
    found: list[Change] = []
    links: list[Any] = []
    operations = body.get("ops")
    for operation in operations if isinstance(operations, list) else ():
        path = operation.get("path") if isinstance(operation, dict) else None
        collection, _, key = path.partition("/") if isinstance(path, str) else ("", "", "")
        if collection == COLLECTION:
            found.append(Change(str(operation.get("action")), key))
            links.append(operation.get("cid"))
    if body.get("tooBig"):
        return found, "too much at once"
    if not any(change.action == "create" for change in found):
        return found, ""
    try:
        _, blocks = _decoded(_libipld().decode_car, body.get("blocks"))
    except BrokenError:  # what it deletes is known all the same
        return [each for each in found if each.action != "create"], "broken blocks"
    records = [blocks.get(link) if isinstance(link, bytes) else None for link in links]
    return [each._replace(record=r) for each, r in zip(found, records, strict=True)], ""


def _fail(body: Mapping[str, Any]) -> None:
    """The stream ends with an error; where it is to be asked again, that is a ConnectionError."""
    name = visible(str(body.get("error")))[:80]
    if name == "FutureCursor":
        raise FirehoseError(
            "The stream has not come as far as the cursor, which may be another one's; remove the "
            "file of the cursor to begin with what is new, or name another with --cursor."
        )
    raise ConnectionError(f"it says {name}")


def _decoded(decode: Callable[[bytes], Found], content: Any) -> Found:
    if not isinstance(content, bytes):
        raise BrokenError
    try:
        return decode(content)
    except (ValueError, RecursionError):
        raise BrokenError from None


def _libipld() -> Any:
    try:
        import libipld
    except ModuleNotFoundError:
        raise FirehoseError(
            "--protocol repos needs libipld; install it with: pip install 'firehose-poll[serve]'."
        ) from None
    return libipld


STREAMS = {
    "jetstream": Stream(
        "wss://jetstream2.us-east.bsky.network/subscribe",
        "bluesky.cursor",
        1 << 20,
        _ask_jetstream,
        _read_jetstream,
    ),
    "repos": Stream(
        "wss://bsky.network",
        "bluesky-repos.cursor",
        8 << 20,  # servers send 5 MB at most
        _ask_repos,
        _read_repos,
    ),
}


def stream_of(protocol: str) -> Stream:
    """The kind of stream of this name; raises FirehoseError where it cannot be read here."""
    if protocol not in STREAMS:
        raise FirehoseError(f"{protocol!r:.40} is no stream: {nearest(protocol, list(STREAMS))}")
    if protocol == "repos":
        _libipld()
    return STREAMS[protocol]
