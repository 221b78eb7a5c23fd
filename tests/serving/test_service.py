"""A whole service, its processes killed under load: nothing is lost, and nothing learned twice."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game.settings import make_settings
from firehose.serving.demo import stream
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.learner import Pace
from firehose.serving.people import Book, Totals
from firehose.serving.service import Child, Service, ServiceSettings, running
from firehose.serving.state import NewModel, begin
from firehose.storage.locks import LockedError, locked
from small_commands import Commands
from small_models import TINY_MODEL
from small_services import begun, differing, drained, final_state, posts

QUICK = ServiceSettings(port=0, round_posts=6, round_seconds=0.2, checkpoint_every=0.5)
PATIENCE = 240  # seconds: this machine may be busy
COUNT = 60  # posts


def call(address: str, method: str, path: str, sent: Any = None) -> Any:
    """Ask until there is an answer, as a client does that must not lose a post."""
    content = None if sent is None else json.dumps(sent).encode()
    head = {"content-type": "application/json"}
    request = urllib.request.Request(address + path, content, head, method=method)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def looked_after(service: Service) -> Iterator[None]:
    """Let what is killed be started again."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            service.look_after()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def kill(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.process.pid, signal.SIGKILL)


def totals(state: Path) -> Totals:
    inbox = Inbox(state / FILE)
    try:
        return Book(inbox.database).totals()
    finally:
        inbox.close()


def test_kills_under_load_lose_nothing_and_change_no_bit(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    state = begun(tmp_path, small_corpus)
    fresh = shutil.copytree(state, tmp_path / "fresh")
    chance = random.Random(3)
    with running(None, state, QUICK) as service, looked_after(service):
        for number, post in enumerate(posts(COUNT)):
            sent = {"user": post.user, "text": post.text, "time": post.time, "id": post.id}
            call(service.address, "POST", "/v1/posts", sent)
            if number in (20, 40):
                time.sleep(chance.random())
                kill(service.learner)
            if number == 30:
                kill(service.server)
        # Who is told nothing asks again: it counts once.
        assert call(service.address, "POST", "/v1/posts", sent)["accepted"] == 0
        suggested = call(service.address, "GET", "/v1/suggest?text=the+quick+&user=user1")
        assert suggested["suggestions"]
        deadline = time.monotonic() + PATIENCE
        while totals(state).waiting and time.monotonic() < deadline:
            time.sleep(0.2)
    found = totals(state)
    assert (found.accepted, found.learned, found.waiting) == (COUNT, COUNT, 0)
    result = final_state(state)  # of the checkpoint that was written when it was stopped
    assert result["posts"] == COUNT
    for path in state.glob("inbox*"):
        shutil.copy(path, fresh)
    drained(fresh)
    assert differing(final_state(fresh), result) == []


def test_one_service_at_a_time_and_nobody_in_without_a_token(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    state = begun(tmp_path, small_corpus)
    with (
        pytest.raises(FirehoseError, match="needs a token"),
        running(None, state, QUICK._replace(host="0.0.0.0")),
    ):
        pass
    with locked(state, wait=False), pytest.raises(LockedError), running(None, state, QUICK):
        pass


def test_a_port_that_is_taken_is_refused_at_once(tmp_path: Path, small_corpus: Corpus) -> None:
    state = begun(tmp_path, small_corpus)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = QUICK._replace(port=other.getsockname()[1])
        with pytest.raises(FirehoseError, match="another --port"), running(None, state, taken):
            pass


def test_a_model_that_has_read_nothing_is_served_and_learns(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    state, vocabulary = tmp_path / "state", tmp_path / "vocabulary.model"
    vocabulary.write_bytes(small_corpus.vocabulary.model)
    state.mkdir()
    start = NewModel(vocabulary, make_settings("laptop", TINY_MODEL).model)
    begin(state, start)
    begin(state, start)
    with pytest.raises(FirehoseError, match="another model"):
        begin(state, start._replace(plan=start.plan.model_copy(update={"max_tokens": 7})))
    learner = drained(state, Pace(posts=20, seconds=0))
    assert learner.trained.is_mixed and not learner.trained.knows("user0")
    learner.inbox.accept(posts(60))
    drained(state, Pace(posts=20, seconds=0))
    rows = learner.inbox.database.rows("SELECT nats / words FROM rounds ORDER BY number")
    (first,), *_, (last,) = rows
    # Before anything was learned, every piece costs about the same.
    assert last < 0.6 * first
    learner.inbox.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--new"], "--vocab-model"),
        (["--vocab-model", "v"], "--new"),
        (["model", "--new", "--vocab-model", "v"], "without another model"),
        (["--demo", "--new"], "its own model"),
        (["--demo", "--recipe", "laptop"], "its own model"),
        (["--new", "--vocab-model", "nowhere"], "Cannot read the vocabulary"),
    ],
)
def test_what_a_service_begins_with_is_said_once(
    tmp_path: Path,
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    firehose = Commands(monkeypatch, capsys)
    status, _, said = firehose("serve", *arguments, "--state", tmp_path / "state")
    assert status == 1 and sentence in " ".join(said.split())


def test_the_people_of_the_demo_go_on_where_they_were() -> None:
    posts, again = stream(), stream()
    first = [next(posts) for _ in range(50)]
    assert [next(again) for _ in range(50)] == first
    assert len({(post.user, post.id) for post in first}) == 50
    assert all(post.text.strip() and not post.time for post in first)


def test_a_process_that_cannot_work_ends_the_service(tmp_path: Path, small_corpus: Corpus) -> None:
    state = begun(tmp_path, small_corpus)
    shutil.rmtree(state / "checkpoints")
    with running(None, state, QUICK) as service:
        deadline = time.monotonic() + PATIENCE
        with pytest.raises(FirehoseError, match="the process to learn has failed"):
            while time.monotonic() < deadline:
                service.look_after()
                time.sleep(0.1)
