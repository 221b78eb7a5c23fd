"""Posts in mailing lists: the subject and the first paragraph that its sender wrote."""

import email.policy
import hashlib
import re
from collections.abc import Iterator
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
from email.utils import parseaddr, parsedate_to_datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from firehose.data.post import Post, Skip
from firehose.data.sources import Shard, Source
from firehose.data.sources.fields import TOO_LONG, checked, moment
from firehose.data.sources.files import (
    MAX_RECORD_BYTES,
    DamagedError,
    Line,
    Overlong,
    find_files,
    holds,
    lines,
    open_file,
    unpack,
)
from firehose.data.sources.formats import without_tags

_NAME = re.compile(r"\.(mbox|mbx)(\.gz|\.zst|\.bz2)?$", re.IGNORECASE)
_TEXT = re.compile(r"\.(mbox|mbx|txt)(\.gz|\.zst|\.bz2)?$", re.IGNORECASE)
_WANTS = "files ending in .mbox or .txt (also .gz, .zst, .bz2), or a folder"
_BEGIN = re.compile(rb"From .*\d{2}:\d{2}(:\d{2})?.*")  # of a message, in the file
_ANSWER = re.compile(r"^\s*(re|aw|fwd?|sv|antw)(\[\d+\])?\s*:", re.IGNORECASE)
_TAG = re.compile(r"^\s*(\[[^\]]{1,60}\]\s*)+")  # [list] [PATCH 1/2]
_QUOTED = re.compile(r"\s*([>|]|\w{0,4}>)")
_SAID = re.compile(
    r"(wrote|writes|said|schrieb|écrit)\s*:\s*$|^-+ ?original message", re.IGNORECASE
)
_END = re.compile(r"^(-- ?|_{10,}|-{3,}|diff --git .*|index [0-9a-f]+\.\..*)$")


class Mbox(Source):
    """Mailboxes, such as the archives of mailing lists.

    A sender is a user: by a keyed hash of the address, or as ``authors = "plain"`` by the address.
    The text is the subject, unless it answers another, and the first paragraph that is not quoted.
    """

    kind: Literal["mbox"] = "mbox"
    authors: Literal["hashed", "plain"] = "hashed"
    key: str = Field(default="firehose", exclude=True, repr=False, min_length=1, max_length=64)
    max_record_bytes: int = Field(default=MAX_RECORD_BYTES, ge=1, le=1 << 30)

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether ``path`` is a mailbox by its name, or a folder with one."""
        return holds(path, lambda name: _NAME.search(name) is not None)

    def shards(self) -> list[Shard]:
        """Whole files."""
        files = find_files(self.paths, lambda name: _TEXT.search(name) is not None, _WANTS)
        return [{"path": str(path)} for path in files]

    def read(self, shard: Shard) -> Iterator[Post | Skip]:
        """A post or a skip for each message; a skip names the line at which it begins."""
        path = shard["path"]
        with open_file(path) as file:
            try:
                for number, content in _messages(
                    lines(unpack(file, path), self.max_record_bytes), self.max_record_bytes
                ):
                    found = TOO_LONG if content is None else self._post(content)
                    yield found if isinstance(found, Post) else Skip(found, f"{path}:{number}")
            except DamagedError:
                yield Skip("truncated or corrupt file", path)

    def _post(self, content: bytes) -> Post | str:
        try:
            message = BytesParser(policy=email.policy.compat32).parsebytes(content)
            sender = self._sender(_header(message, "From"))
            subject, said = _header(message, "Subject"), _body(message)
            when = _when(message)
            name = _header(message, "Message-ID") or hashlib.blake2b(content).hexdigest()[:24]
        except Exception:  # the parser raises whatever it stumbles over; one message is skipped
            return "broken message"
        if not sender:
            return "no user"
        if when is None:
            return "no time"
        opening = "" if _ANSWER.match(subject) else _TAG.sub("", subject)
        text = " ".join(f"{opening}\n{said}".split())
        if not text:
            return "no text"
        try:
            return checked(Post(sender, text, when, name))
        except UnicodeError:
            return "not UTF-8"

    def _sender(self, header: str) -> str:
        address = parseaddr(header)[1] if "@" in header else header  # “ann at example.org (Ann)”
        plain = re.sub(r"\s*\(.*\)\s*$", "", address).strip().lower()
        if self.authors == "plain" or not plain:
            return plain
        return hashlib.blake2b(plain.encode(), digest_size=8, key=self.key.encode()).hexdigest()


def _messages(rows: Iterator[Line], most: int) -> Iterator[tuple[int, bytes | None]]:
    """The number of each message's first line, and its bytes; None: too many of them."""
    begun, size, first, is_blank = list[bytes](), 0, 0, True
    for number, row in enumerate(rows, 1):
        if isinstance(row, Overlong):
            size, is_blank = most + 1, False
        elif is_blank and _BEGIN.match(row):
            if first:
                yield first, b"\n".join(begun) if size <= most else None
            begun, size, first, is_blank = [], 0, number, False
        elif first:
            size += len(row) + 1
            is_blank = not row.strip()
            if size <= most:
                begun.append(row)
            else:
                begun.clear()
    if first:
        yield first, b"\n".join(begun) if size <= most else None


def _header(message: Message, name: str) -> str:
    """A header as text, whatever it is encoded as."""
    raw = str(message.get(name, ""))
    try:
        return " ".join(str(make_header(decode_header(raw))).split())
    except (LookupError, ValueError):
        return " ".join(raw.split())


def _when(message: Message) -> int | None:
    try:
        return moment(parsedate_to_datetime(str(message.get("Date", ""))).timestamp())
    except (ValueError, TypeError, OverflowError):
        return None


def _body(message: Message) -> str:
    """The first paragraph of the message that its sender wrote."""
    parts = [part for part in message.walk() if not part.is_multipart()]
    plain = [part for part in parts if part.get_content_type() == "text/plain"]
    html = [part for part in parts if part.get_content_type() == "text/html"]
    if plain:
        return first_paragraph(_decoded(plain[0]))
    return first_paragraph(without_tags(_decoded(html[0]))) if html else ""


def _decoded(part: Message) -> str:
    content = part.get_payload(decode=True)
    raw = content if isinstance(content, bytes) else b""
    try:
        return raw.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:  # a charset that nobody knows
        return raw.decode("utf-8", "replace")


def first_paragraph(text: str) -> str:
    """The first lines that belong together and are not quoted; empty, where there are none."""
    found: list[str] = []
    for line in text.splitlines():
        if _END.match(line):
            break
        if _SAID.search(line) or _QUOTED.match(line):
            if found and not (_SAID.search(line) and len(found) == 1):
                break
            found.clear()  # “On Monday,” and on the next line “Ann wrote:”
        elif line.strip():
            found.append(line.strip())
        elif found:
            break
    return " ".join(found)
