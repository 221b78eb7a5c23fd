"""The learner of a service: the game of `play`, the same to the bit however often it is killed."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.game.live import load
from firehose.models.store import save
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.learner import Learner, Pace
from firehose.serving.people import Book
from firehose.serving.snapshots import Snapshots
from firehose.serving.state import begin
from firehose.storage.checkpoints import Checkpoints
from small_models import trained_on
from small_services import (
    MIXTURE,
    PACE,
    begun,
    differing,
    drained,
    final_state,
    holds,
    playing,
    posts,
)


def test_it_is_the_game_of_play(tmp_path: Path, small_corpus: Corpus) -> None:
    state = begun(tmp_path, small_corpus)
    inbox = Inbox(state / FILE)
    inbox.accept(posts(20))
    learner = drained(state)
    model = load(tmp_path / "model", playing=playing())
    paid = [model.learn(posts(20)[start : start + 6]).nats.sum() for start in range(0, 20, 6)]
    game, other = learner.trained.game.state(), model.game.state()
    assert differing(game, other) == []
    assert learner.trained.users.state() == model.users.state()
    totals = Book(inbox.database).totals()
    assert (totals.learned, totals.waiting, totals.rounds) == (20, 0, 4)
    assert totals.nats == pytest.approx(sum(paid)) and totals.taken == model.game.played * 2
    assert totals.nobody != totals.nats


def test_what_is_published_is_what_was_learned(tmp_path: Path, small_corpus: Corpus) -> None:
    state = begun(tmp_path, small_corpus)
    Inbox(state / FILE).accept(posts(12))
    learner = drained(state)
    snapshots = Snapshots(state / "snapshots")
    number = snapshots.newest()
    assert number == 2 and len(snapshots.numbers()) == 2
    published = load(snapshots.place(number))
    some = posts(5, 40)
    assert published.pay(some).nats.tolist() == learner.trained.pay(some).nats.tolist()
    assert published.origin["service"] == {"round": 2, "posts": 12}
    assert published.knows("user3")


class CrashError(BaseException):
    """The machine stops."""


PLACES: list[tuple[type, str]] = [
    (Inbox, "close_round"),
    (Inbox, "record"),
    (Inbox, "position"),
    (Inbox, "erase"),
    (Inbox, "finish"),
    (Checkpoints, "write"),
    (Checkpoints, "_drop"),
    (Snapshots, "publish"),
]


def crash_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Stop before the so-manieth step that leaves something on disk; returns the steps so far."""
    done: list[str] = []
    for owner, name in PLACES:
        operation: Callable[..., Any] = getattr(owner, name)

        def stopping(
            *arguments: Any, operation: Any = operation, name: str = name, **named: Any
        ) -> Any:
            if len(done) >= number:
                raise CrashError
            done.append(name)
            return operation(*arguments, **named)

        monkeypatch.setattr(owner, name, stopping)
    return done


def work(state: Path, stages: list[Callable[[Inbox], Any]], number: int | None) -> int:
    """Bring what each stage brings, and learn; crash once after ``number`` steps, and go on."""
    steps = 0
    for stage in stages:
        stage(Inbox(state / FILE))
        while True:
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(CrashError):
                left = 10**9 if number is None else number - steps
                done = crash_at(patch, max(left, 0))
                try:
                    learner = Learner(state, PACE)
                    while learner.advance():
                        if learner.position.round % 2:
                            learner.save()
                    break
                finally:
                    steps += len(done)
            number = None  # once is enough: it goes on to the end
    drained(state)
    return steps


@pytest.mark.parametrize("more", [(), MIXTURE], ids=["model", "mixture"])
def test_a_crash_at_any_point_changes_no_bit(
    tmp_path: Path,
    small_corpus: Corpus,
    more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nothing here survives the machine anyway
    begun(tmp_path, small_corpus, *more)
    stages: list[Callable[[Inbox], Any]] = [
        lambda inbox: inbox.accept(posts(14)),
        lambda inbox: inbox.request("user1"),
        lambda inbox: inbox.accept([*posts(10, 14), Post("user0", " ")]),
    ]
    expected = shutil.copytree(tmp_path / "state", tmp_path / "expected")
    steps = work(expected, stages, None)
    assert steps > 20
    result = final_state(expected)
    for number in range(1 + bool(more), steps, 3 + 9 * bool(more)):
        state = shutil.copytree(tmp_path / "state", tmp_path / f"state{number}")
        work(state, stages, number)
        assert differing(final_state(state), result) == [], f"after step {number}"
        totals = Book(Inbox(state / FILE).database).totals()
        assert totals == Book(Inbox(expected / FILE).database).totals()
        shutil.rmtree(state)


def test_of_who_is_forgotten_no_byte_is_left(tmp_path: Path, small_corpus: Corpus) -> None:
    """Also where a kill has left parts of files."""
    state, name, secret = begun(tmp_path, small_corpus, *MIXTURE), "Marie-Antoinette", "Zwölfkiesel"
    inbox = Inbox(state / FILE)
    inbox.accept([*posts(8), Post(name, f"the {secret}"), Post(name, f"{secret} again")])
    learner = Learner(state, Pace(posts=5, seconds=0))
    while learner.advance():
        learner.save()
    inbox.accept([Post(name, f"a {secret} that waits")])
    assert len(holds(state, name, secret)) > 2
    shutil.copytree(Checkpoints(state / "checkpoints").places()[-1], state / "checkpoints/partial")
    shutil.copytree(learner.snapshots.place(learner.snapshots.newest() or 0),
                    state / "snapshots/partial")  # fmt: skip
    number = inbox.request(name)
    assert learner.advance()
    done = inbox.find_request(number)
    assert done is not None and done.is_done and done.erased is not None
    assert done.snapshot is not None
    assert done.erased["posts"] == 3 and done.erased["vectors"] == 1
    assert done.erased["things a predictor kept"] == 2 and done.erased["names"] == 1
    assert done.snapshot == learner.snapshots.newest()
    assert holds(state, name, secret) == []
    assert not load(learner.snapshots.place(done.snapshot)).knows(name)
    assert drained(state).trained.users.number(name) is None


def test_a_post_without_words_is_counted_and_not_learned(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    state = begun(tmp_path, small_corpus)
    inbox = Inbox(state / FILE)
    inbox.accept([Post("a", "  "), Post("a", "the fox"), Post("b", "x" * 5_000)])
    learner = drained(state)
    totals = Book(inbox.database).totals()
    assert (totals.learned, totals.unreadable, learner.trained.game.posts) == (1, 2, 1)
    inbox.accept([Post("a", " ")])  # a round without any
    assert drained(state).position.round == 2


def test_an_inbox_that_is_not_the_checkpoints_is_refused(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    state = begun(tmp_path, small_corpus)
    Inbox(state / FILE).accept(posts(6))
    drained(state)
    for path in state.glob("inbox*"):
        path.unlink()
    with pytest.raises(FirehoseError, match="not the inbox that"):
        Learner(state, PACE)


def test_it_goes_on_only_as_it_was_begun(tmp_path: Path, small_corpus: Corpus) -> None:
    state = begun(tmp_path, small_corpus)
    begin(state, None)
    begin(state, tmp_path / "model", playing(), 3)
    with pytest.raises(FirehoseError, match="--min-users 3"):
        begin(state, None, min_users=2)
    with pytest.raises(FirehoseError, match="other settings of learning"):
        begin(state, None, playing("play.steps=3"))
    model = trained_on(small_corpus, "decoder")
    save(model, tmp_path / "other")
    with pytest.raises(FirehoseError, match="another model"):
        begin(state, tmp_path / "other")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "letter.txt").write_text("dear")
    with pytest.raises(FirehoseError, match=r"something else in it \(letter.txt\)"):
        begin(tmp_path / "strange", tmp_path / "model")
    with pytest.raises(FirehoseError, match="name the model to begin with"):
        begin(tmp_path / "nothing", None)
