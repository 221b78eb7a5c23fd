"""Listening: lines of JSON, and a small server that speaks Jetstream; stopped, and gone on with."""

import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.interrupts import Request
from firehose.serving import bluesky, listening
from firehose.serving.bluesky import Ear, hear_jetstream
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.listening import Carrier, Folder, Heard, RefusedError, hear_lines, open_target


def texts(folder: Path) -> list[str]:
    inbox = Inbox(folder / FILE)
    try:
        return [row[0] for row in inbox.database.rows("SELECT text FROM posts ORDER BY seq")]
    finally:
        inbox.close()


def test_lines_become_posts_and_what_is_none_is_counted(tmp_path: Path) -> None:
    lines = [
        {"user": "a", "text": "first", "id": 7, "time": "2020-01-01T00:00:00Z"},
        {"user": "a", "text": "first again", "id": "7"},
        {"user": "b", "text": "second"},
        {"user": "", "text": "nobody's"},
        {"user": "c", "text": " "},
        {"user": "c", "text": "when", "time": "never"},
        {"user": "c", "text": "x" * 5_000},
        ["a list"],
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines) + "{broken\n\n"
    heard = Heard()
    with open_target(str(tmp_path / "state")) as target:
        hear_lines(io.BufferedReader(io.BytesIO(content.encode())), Carrier(target, heard))
    assert texts(tmp_path / "state") == ["first", "second"]
    assert (heard.brought, heard.new, heard.left_out.total()) == (3, 2, 6)
    assert heard.summary() == "3 posts brought, 2 of them new; 6 left out."


def test_a_line_is_brought_before_the_next_one_comes(tmp_path: Path) -> None:
    class Slow:
        """Asks for the next line only when the one before is safe."""

        def __init__(self) -> None:
            self.number = 0

        def read1(self, _: int) -> bytes:
            assert len(texts(tmp_path)) == self.number
            self.number += 1
            post = {"user": "a", "text": f"post {self.number}"}
            return b"" if self.number > 3 else json.dumps(post).encode() + b"\n"

    hear_lines(Slow(), Carrier(Folder(tmp_path), Heard()))
    assert len(texts(tmp_path)) == 3


def test_one_post_that_is_refused_takes_no_other_with_it() -> None:
    class Choosy:
        def __init__(self) -> None:
            self.taken: list[str] = []

        def bring(self, posts: Any) -> int:
            if any(post.text == "bad" for post in posts):
                raise RefusedError("No.")
            self.taken += [post.text for post in posts]
            return len(posts)

        def withdraw(self, user: str, post: str | None) -> None:
            raise NotImplementedError

    target, heard = Choosy(), Heard()
    carrier = Carrier(target, heard)
    for text in ("good", "bad", "fine"):
        carrier.add(Post("a", text))
    carrier.flush()
    assert target.taken == ["good", "fine"] and heard.left_out.total() == 1


def created(number: int, text: str, **record: Any) -> dict[str, Any]:
    return event(number, "create", record={"text": text, "langs": ["en"], **record})


def event(number: int, operation: str, **more: Any) -> dict[str, Any]:
    commit = {"operation": operation, "collection": bluesky.COLLECTION, "rkey": f"key{number}"}
    return {
        "did": f"did:plc:user{number % 3}",
        "time_us": 1_700_000_000_000_000 + number,
        "kind": "commit",
        "commit": commit | more,
    }


class Jetstream:
    """Sends events from a cursor on, and hangs up after so many."""

    def __init__(self, events: list[dict[str, Any]], hang_up: int = 10**9) -> None:
        self.events, self.hang_up = events, hang_up
        self.asked: list[dict[str, list[str]]] = []
        self.is_over = threading.Event()  # when all was sent once

    def handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        asked = parse_qs(urlparse(connection.request.path).query)
        self.asked.append(asked)
        start = int(asked.get("cursor", ["0"])[0])
        later = [each for each in self.events if each["time_us"] >= start]
        try:
            for each in later[: self.hang_up]:
                connection.send(json.dumps(each))
            if len(later) <= self.hang_up:
                self.is_over.set()
                connection.recv()  # until the client goes
        except ConnectionClosed:
            pass


@contextmanager
def speaking(jetstream: Jetstream) -> Iterator[str]:
    with serve(jetstream.handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/subscribe"
        finally:
            server.shutdown()
            thread.join()


def listen(url: str, folder: Path, jetstream: Jetstream, monkeypatch: pytest.MonkeyPatch) -> Heard:
    """Listen until all was heard, then stop as if told to."""
    monkeypatch.setattr(bluesky, "AGAIN", (0.01, 0.1))
    heard, carrier_made = Heard(), Carrier(Folder(folder), Heard())
    carrier_made.heard = heard

    @contextmanager
    def requests() -> Iterator[Any]:
        request = Request()

        def stop() -> None:
            jetstream.is_over.wait(60)
            time.sleep(0.6)  # for what is on its way
            request.made = True

        thread = threading.Thread(target=stop)
        thread.start()
        yield request
        thread.join()

    monkeypatch.setattr(bluesky, "stop_requests", requests)
    hear_jetstream(url, carrier_made, folder / "bluesky.cursor")
    return heard


def test_a_jetstream_that_hangs_up_is_heard_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [created(number, f"post {number}") for number in range(30)]
    events[3] = created(3, "an answer", reply={"root": {}})
    events[4] = created(4, "auf Deutsch", langs=["de"])
    events[5] = {**event(5, "create"), "commit": {"collection": "app.bsky.feed.like"}}
    events.append({**event(31, "delete"), "did": "did:plc:user0"})
    events[-1]["commit"]["rkey"] = "key6"  # a post of user0
    gone = {"active": False, "status": "deleted"}
    did = "did:plc:user1"
    events.append({"did": did, "time_us": events[-1]["time_us"] + 1, "account": gone})
    jetstream = Jetstream(events, hang_up=7)
    with speaking(jetstream) as url:
        heard = listen(url, tmp_path, jetstream, monkeypatch)
    expected = [f"post {n}" for n in range(30) if n not in (3, 4, 5, 6)]
    assert texts(tmp_path) == expected
    assert heard.left_out == {"reply": 1, "other language": 1}
    assert len(jetstream.asked) > 3
    assert jetstream.asked[0]["wantedCollections"] == [bluesky.COLLECTION]
    inbox = Inbox(tmp_path / FILE)  # the account is forgotten by whoever learns from it
    assert any(request.user == did and request.post is None for request in inbox.position(0))


def test_it_goes_on_at_its_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor is written when all before it is safe; what is heard twice counts once."""
    events = [created(number, f"post {number}") for number in range(12)]
    first = Jetstream(events[:8])
    with speaking(first) as url:
        listen(url, tmp_path, first, monkeypatch)
    assert int((tmp_path / "bluesky.cursor").read_text()) == events[7]["time_us"]
    second = Jetstream(events)
    with speaking(second) as url:
        heard = listen(url, tmp_path, second, monkeypatch)
    assert second.asked[0]["cursor"] == [str(events[7]["time_us"])]
    assert texts(tmp_path) == [f"post {n}" for n in range(12)]
    assert (heard.brought, heard.new) == (5, 4)


def test_messages_that_are_none_are_left_out(tmp_path: Path) -> None:
    heard = Heard()
    ear = Ear(Carrier(Folder(tmp_path), heard), tmp_path / "cursor", ["en"])
    for message in ("{", "[]", "3", '{"time_us": "x", "did": 3}', b"\xff", "[" * 10_000):
        ear.hear(message)
    assert heard.left_out == {"broken message": 6} and ear.cursor == 0
    ear.hear(json.dumps(created(1, "in English, as nobody says", langs=None)))
    ear.save()
    assert texts(tmp_path) == ["in English, as nobody says"]
    (tmp_path / "cursor").write_text("soon")
    with pytest.raises(FirehoseError, match="does not hold a cursor"):
        Ear(Carrier(Folder(tmp_path), heard), tmp_path / "cursor", ["en"])


def test_an_address_is_tried_again_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [OSError("refused"), 429, 503, {"accepted": 1}]
    sent: list[Any] = []

    def urlopen(request: Any, **_: Any) -> Any:
        sent.append(json.loads(request.data))
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        if isinstance(answer, int):
            headers: Any = {}
            raise urllib.error.HTTPError("", answer, "", headers, io.BytesIO(b"{}"))
        return io.BytesIO(json.dumps(answer).encode())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(listening, "AGAIN", (0.0, 0.0))
    with open_target("http://127.0.0.1:1") as target:
        assert target.bring([Post("a", "b", id="7")]) == 1
    assert sent == [[{"user": "a", "text": "b", "id": "7"}]] * 4
    answers[:] = [403]
    with (
        open_target("http://127.0.0.1:1") as target,
        pytest.raises(FirehoseError, match=r"refuses it \(403\)"),
    ):
        target.bring([Post("a", "b", id="7")])
