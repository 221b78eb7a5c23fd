"""subscribeRepos from a small server: heard to the end, gone on with, broken on purpose."""

import random
import sys
from pathlib import Path
from typing import Any

import libipld
import pytest

from firehose.errors import FirehoseError
from firehose.serving.bluesky import Ear
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.listening import Carrier, Folder, Heard
from firehose.serving.streams import STREAMS, BrokenError, Change, stream_of
from small_streams import SmallStream, commit, frame, listen, texts

REPOS = STREAMS["repos"]
CURSOR = REPOS.cursor_file


def record(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "langs": ["en"], "createdAt": "2026-01-01T00:00:00Z", **more}


def post(number: int, **more: Any) -> bytes:
    made = record(f"post {number}", **more)
    return commit(number, f"did:plc:user{number % 3}", {f"key{number}": made})


def repos(messages: list[bytes], first: int = 1, hang_up: int = 10**9) -> SmallStream:
    return SmallStream(list(enumerate(messages, first)), "repos", hang_up)


def account(number: int, user: str, status: str | None = "deleted") -> bytes:
    more = {} if status is None else {"status": status}
    return frame("account", seq=number, did=user, active=status is None, time="", **more)


def test_a_server_that_hangs_up_is_heard_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [post(number) for number in range(1, 31)]
    messages[2] = post(3, reply={"root": {}})
    messages[3] = post(4, langs=["de"])
    messages[4] = frame("identity", seq=5, did="did:plc:user0", time="")
    messages[9] = post(10).replace(b"feed.post", b"feed.like")
    messages += [
        commit(31, "did:plc:user0", {"a": record("two"), "b": record("at once")}, ["key6"]),
        account(32, "did:plc:user1"),
        account(33, "did:plc:user2", "deactivated"),
        account(34, "did:plc:user0", None),
    ]
    stream = repos(messages, hang_up=7)
    heard = listen(stream, tmp_path, monkeypatch)
    kept = set(range(1, 31)) - {3, 4, 5, 6, 10}
    assert texts(tmp_path) == [f"post {n}" for n in sorted(kept) if n % 3 != 1] + ["two", "at once"]
    assert heard.left_out == {"reply": 1, "other language": 1} and heard.deleted == 2
    assert len(stream.asked) > 3 and "cursor" not in stream.asked[0]
    assert set(stream.paths) == {"/xrpc/com.atproto.sync.subscribeRepos"}
    inbox = Inbox(tmp_path / FILE)
    assert [each.user for each in inbox.position(0) if each.post is None] == ["did:plc:user1"]


def test_it_goes_on_after_its_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [post(number) for number in range(1, 13)]
    listen(repos(messages[:8]), tmp_path, monkeypatch)
    assert (tmp_path / CURSOR).read_text() == "8\n"
    (tmp_path / CURSOR).write_text("6")  # it was killed before it could write more
    second = repos(messages)
    heard = listen(second, tmp_path, monkeypatch)
    assert second.asked[0]["cursor"] == ["6"]
    assert texts(tmp_path) == [f"post {n}" for n in range(1, 13)]
    assert (heard.brought, heard.new) == (6, 4)


def test_the_first_message_is_not_forgotten_by_a_kill(tmp_path: Path) -> None:
    ear = Ear(REPOS, Carrier(Folder(tmp_path), Heard()), tmp_path / CURSOR, ["en"])
    ear.hear(post(7))
    ear.rest()
    assert (tmp_path / CURSOR).read_text() == "7\n" and texts(tmp_path) == ["post 7"]


def test_what_is_no_message_is_counted_and_the_next_is_heard(tmp_path: Path) -> None:
    heard = Heard()
    ear = Ear(REPOS, Carrier(Folder(tmp_path), heard), tmp_path / CURSOR, ["en"])
    whole = post(1)
    broken: list[str | bytes] = [
        b"",
        b"\xff",
        "text",
        b"\x81" * 100_000,
        b"\xa0\xa0",
        b"\x01\x02",
        whole[:-9],
    ]
    broken += [whole + b"\xa0", frame("commit", seq="1", repo="a"), frame("commit", seq=1, repo=3)]
    broken += [frame("account", seq=True, did="a"), frame("account", seq=1 << 63, did="a")]
    for message in broken:
        ear.hear(message)
    assert heard.left_out == {"broken message": len(broken)} and ear.cursor == 0
    odd: list[Any] = [None, 3, [3], [{"path": 3}], [{"path": "app.bsky.feed.post/"}]]
    for ops in odd:
        ear.hear(commit(2, "did:plc:a", {"k": record("x")}, ops=ops))
    assert heard.left_out["no key"] == 1
    ear.hear(commit(3, "did:plc:a", {"k": record("x")}, ["gone"], blocks=b"\x05junk"))
    assert heard.left_out["broken blocks"] == 1 and heard.deleted == 1
    untold = record("a", createdAt=b"\xff", langs=[b"\xff"])
    records: list[Any] = [3, [], {}, {"text": b"\xff"}, untold]
    for made in records:
        ear.hear(commit(4, "did:plc:a", {"k": made}))
    ear.hear(commit(4, "did:plc:a", {}, tooBig=True))
    ear.hear(frame("info", name="OutdatedCursor"))
    ear.hear(post(5))
    ear.save()
    assert texts(tmp_path) == ["post 5"] and ear.cursor == 5
    assert heard.left_out["no text"] == 4 and heard.left_out["older than the stream keeps"] == 1


def test_bytes_that_were_changed_at_random_break_nothing() -> None:
    chance = random.Random(0)
    messages = [post(1), commit(2, "did:plc:a", {"k": record("x")}, ["gone"]), account(3, "a")]
    outcomes: set[type] = set()
    for _ in range(5_000):
        message = bytearray(chance.choice(messages))
        for _ in range(chance.randint(1, 4)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        try:
            outcomes.add(type(REPOS.read(bytes(message))))
        except (BrokenError, ConnectionError) as error:
            outcomes.add(type(error))
    assert len(outcomes) > 1


def test_an_error_of_the_stream_is_a_reason_to_ask_again_or_to_stop() -> None:
    def error(name: str) -> bytes:
        return libipld.encode_dag_cbor({"op": -1}) + libipld.encode_dag_cbor({"error": name})

    with pytest.raises(ConnectionError, match="it says ConsumerTooSlow"):
        REPOS.read(error("ConsumerTooSlow"))
    with pytest.raises(FirehoseError, match="remove the file of the cursor"):
        REPOS.read(error("FutureCursor"))


def test_where_the_stream_is() -> None:
    path = "/xrpc/com.atproto.sync.subscribeRepos"
    assert REPOS.ask("wss://a.b/", 0) == f"wss://a.b{path}"
    assert REPOS.ask(f"wss://a.b{path}", 7) == f"wss://a.b{path}?cursor=7"
    assert REPOS.read(post(1)).changes == [Change("create", "key1", record("post 1"))]
    with pytest.raises(FirehoseError, match="did you mean 'repos'"):
        stream_of("repo")


def test_a_missing_decoder_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libipld", None)
    with pytest.raises(FirehoseError, match="pip install 'firehose-poll"):
        stream_of("repos")
