"""Listening: lines of JSON, and a small server that speaks Jetstream; stopped, and gone on with."""

import io
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.serving import listening
from firehose.serving.bluesky import Ear
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.listening import Carrier, Folder, Heard, RefusedError, hear_lines, open_target
from firehose.serving.streams import COLLECTION, STREAMS
from small_streams import SmallStream, listen, texts


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
    commit = {"operation": operation, "collection": COLLECTION, "rkey": f"key{number}"}
    return {
        "did": f"did:plc:user{number % 3}",
        "time_us": 1_700_000_000_000_000 + number,
        "kind": "commit",
        "commit": commit | more,
    }


def jetstream(events: list[dict[str, Any]], hang_up: int = 10**9) -> SmallStream:
    messages = [(each["time_us"], json.dumps(each)) for each in events]
    return SmallStream(messages, "jetstream", hang_up)


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
    stream = jetstream(events, hang_up=7)
    heard = listen(stream, tmp_path, monkeypatch)
    kept = set(range(30)) - {3, 4, 5, 6}
    expected = [f"post {n}" for n in sorted(kept) if n % 3 != 1]  # user1 is gone
    assert texts(tmp_path) == expected
    assert heard.left_out == {"reply": 1, "other language": 1}
    assert len(stream.asked) > 3
    assert stream.asked[0]["wantedCollections"] == [COLLECTION]
    inbox = Inbox(tmp_path / FILE)  # the rest is forgotten by whoever has learned from it
    assert any(request.user == did and request.post is None for request in inbox.position(0))


def test_it_goes_on_at_its_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor is written when all before it is safe; what is heard twice counts once."""
    events = [created(number, f"post {number}") for number in range(12)]
    listen(jetstream(events[:8]), tmp_path, monkeypatch)
    assert int((tmp_path / "bluesky.cursor").read_text()) == events[7]["time_us"]
    second = jetstream(events)
    heard = listen(second, tmp_path, monkeypatch)
    assert second.asked[0]["cursor"] == [str(events[7]["time_us"])]
    assert texts(tmp_path) == [f"post {n}" for n in range(12)]
    assert (heard.brought, heard.new) == (5, 4)


def test_messages_that_are_none_are_left_out(tmp_path: Path) -> None:
    heard = Heard()
    stream = STREAMS["jetstream"]
    ear = Ear(stream, Carrier(Folder(tmp_path), heard), tmp_path / "cursor", ["en"])
    numbers = [f'{{"time_us": {number}, "did": "a"}}' for number in ("1e999", -1, 1 << 63)]
    broken: list[str | bytes] = ["{", "[]", "3", '{"time_us": "x"}', b"\xff", "[" * 10_000]
    for message in broken + numbers:
        ear.hear(message)
    assert heard.left_out == {"broken message": 9} and ear.cursor == 0
    for user in ("", " ", "x" * 300):
        ear.hear(json.dumps({"did": user, "time_us": 1, "account": {"status": "deleted"}}))
    ear.hear(json.dumps({**event(1, "delete", rkey="x" * 300), "did": "\ud800"}))
    assert (heard.left_out["no user"], heard.left_out["no key"], heard.deleted) == (3, 1, 0)
    ear.hear(json.dumps(created(1, "in English, as nobody says", langs=None)))
    ear.save()
    assert texts(tmp_path) == ["in English, as nobody says"]
    (tmp_path / "cursor").write_text("soon")
    with pytest.raises(FirehoseError, match="does not hold a cursor"):
        Ear(stream, Carrier(Folder(tmp_path), heard), tmp_path / "cursor", ["en"])


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
