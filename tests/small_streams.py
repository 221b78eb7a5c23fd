"""Streams of Bluesky so small that a test can say all of them, and what listens to them."""

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import libipld
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from firehose.interrupts import Request
from firehose.serving import bluesky
from firehose.serving.bluesky import hear_bluesky
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.listening import Carrier, Folder, Heard
from firehose.serving.streams import COLLECTION, STREAMS


class SmallStream:
    """Sends messages from a cursor on, and hangs up after so many; each has its own cursor.

    A Jetstream begins with the message at the cursor, subscribeRepos after it.
    """

    def __init__(
        self, messages: Sequence[tuple[int, str | bytes]], protocol: str, hang_up: int = 10**9
    ) -> None:
        self.messages, self.protocol, self.hang_up = messages, protocol, hang_up
        self.asked: list[dict[str, list[str]]] = []
        self.paths: list[str] = []
        self.is_over = threading.Event()  # when all was sent once

    def handle(self, connection: ServerConnection) -> None:
        """Serve one connection."""
        assert connection.request is not None
        parts = urlparse(connection.request.path)
        self.paths.append(parts.path)
        self.asked.append(parse_qs(parts.query))
        start = int(self.asked[-1].get("cursor", ["-1"])[0])
        start += self.protocol == "repos"
        later = [message for cursor, message in self.messages if cursor >= start]
        try:
            for message in later[: self.hang_up]:
                connection.send(message)
            if len(later) <= self.hang_up:
                self.is_over.set()
                connection.recv()  # until the client goes
        except ConnectionClosed:
            pass


@contextmanager
def speaking(stream: SmallStream) -> Iterator[str]:
    """The address at which a stream is served."""
    with serve(stream.handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def listen(stream: SmallStream, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Heard:
    """Listen until all was said, then stop as if told to."""
    monkeypatch.setattr(bluesky, "AGAIN", (0.01, 0.1))

    @contextmanager
    def requests() -> Iterator[Any]:
        request = Request()

        def stop() -> None:
            stream.is_over.wait(60)
            time.sleep(0.6)  # for what is on its way
            request.made = True

        thread = threading.Thread(target=stop)
        thread.start()
        yield request
        thread.join()

    monkeypatch.setattr(bluesky, "stop_requests", requests)
    target, heard = Folder(folder), Heard()
    place = folder / STREAMS[stream.protocol].cursor_file
    with speaking(stream) as url:
        hear_bluesky(Carrier(target, heard), place, stream.protocol, url)
    target.inbox.close()
    return heard


def texts(folder: Path) -> list[str]:
    """The posts in an inbox."""
    inbox = Inbox(folder / FILE)
    try:
        return [row[0] for row in inbox.database.rows("SELECT text FROM posts ORDER BY seq")]
    finally:
        inbox.close()


def frame(kind: str, **body: Any) -> bytes:
    """A message of subscribeRepos."""
    head = {"op": 1, "t": f"#{kind}"}
    return libipld.encode_dag_cbor(head) + libipld.encode_dag_cbor(body)


def commit(
    seq: int, user: str, created: dict[str, Any], deleted: Sequence[str] = (), **more: Any
) -> bytes:
    """A commit that creates posts, records by their keys, and deletes some."""
    blocks = {key: libipld.encode_dag_cbor(record) for key, record in created.items()}
    links = {
        key: b"\x01\x71\x12\x20" + hashlib.sha256(block).digest() for key, block in blocks.items()
    }
    header = libipld.encode_dag_cbor({"version": 1, "roots": list(links.values())})
    sections = [header, *(links[key] + block for key, block in blocks.items())]
    ops: list[dict[str, Any]] = [
        {"action": "create", "path": f"{COLLECTION}/{key}", "cid": link}
        for key, link in links.items()
    ]
    ops += [{"action": "delete", "path": f"{COLLECTION}/{key}", "cid": None} for key in deleted]
    body = {
        "seq": seq,
        "repo": user,
        "time": "2026-01-01T00:00:00.000Z",
        "ops": ops,
        "blocks": b"".join(_length(len(each)) + each for each in sections),
        "tooBig": False,
    }
    return frame("commit", **(body | more))


def _length(number: int) -> bytes:
    """A number as CAR has it before each section: seven bits a byte, the lowest first."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _length(rest) if rest else bytes([low])
