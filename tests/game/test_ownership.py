"""One at a time changes a run, a model or a corpus; what a run needs stays what it was."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_run import left_behind, stop_after

from conftest import INLINE, contents, prepared, simple_posts, write_posts
from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import prepare
from firehose.errors import FirehoseError, Stopped
from firehose.experiments.compare import compare, report
from firehose.game import folder as folders
from firehose.game.assembly import Game
from firehose.game.folder import checkpoints_of, clear, read_run
from firehose.game.forget import forget
from firehose.game.run import play, pretrain, resume
from firehose.game.settings import Settings, make_settings
from firehose.machine import machine
from firehose.models.store import load
from firehose.storage.locks import LockedError, locked
from small_models import TINY_GAME


def tiny(*more: str) -> Settings:
    return make_settings(assignments=[*TINY_GAME, *more])


@pytest.fixture
def over(tmp_path: Path, small_corpus: Corpus) -> Path:
    """A run that is over."""
    play(small_corpus, tmp_path / "over", tiny())
    return tmp_path / "over"


@pytest.fixture
def stopped(tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was stopped after four rounds."""
    with monkeypatch.context() as patch:
        stop_after(patch, 4, sign=signal.SIGTERM)
        with pytest.raises(Stopped):
            play(small_corpus, tmp_path / "stopped", tiny(), checkpoint_every=0)
    return tmp_path / "stopped"


def test_a_run_that_is_going_on_is_left_alone(stopped: Path, small_corpus: Corpus) -> None:
    before = contents(stopped)
    calls: list[Callable[[], Any]] = [
        lambda: play(small_corpus, stopped, tiny("play.seed=7"), replace=True),
        lambda: pretrain(small_corpus, stopped, tiny(), "train", replace=True),
        lambda: resume(stopped),
        lambda: resume(stopped, previous=True),
        lambda: forget(stopped, "user0"),
    ]
    with checkpoints_of(stopped).held():
        for call in calls:
            with pytest.raises(LockedError, match="is in use: another process is changing it"):
                call()
        with pytest.raises(FirehoseError, match="stopped is going on: wait until it is over"):
            compare([stopped])
    assert contents(stopped) == before
    with pytest.raises(FirehoseError, match="is not over; go on with"):
        compare([stopped])


def test_a_run_is_replaced_under_its_own_lock(
    over: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (over / "checkpoints").stat().st_ino
    rounds = Game.rounds

    def held(self: Game, stream: Any) -> Any:
        with pytest.raises(LockedError):
            resume(over)
        yield from rounds(self, stream)

    monkeypatch.setattr(Game, "rounds", held)
    (over / "report").mkdir()
    play(small_corpus, over, tiny("play.seed=7"), replace=True)
    assert (over / "checkpoints").stat().st_ino == place
    assert read_run(over).settings["play"]["seed"] == 7
    assert not (over / "report").exists()


@pytest.mark.parametrize("removed", [0, 1, 3])
def test_a_replacement_that_is_killed_leaves_what_can_be_begun_again(
    over: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    expected, left = left_behind(over), removed

    def kill(whole: Callable[..., None]) -> Callable[..., None]:
        def remove(path: Path, **more: Any) -> None:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            whole(path, **more)

        return remove

    with monkeypatch.context() as patch, checkpoints_of(over).held():
        patch.setattr(shutil, "rmtree", kill(shutil.rmtree))
        patch.setattr(Path, "unlink", kill(Path.unlink))
        with pytest.raises(KeyboardInterrupt):
            clear(over)
    assert not (over / "run.json").exists() and (over / "model").exists() | bool(removed)
    with pytest.raises(FirehoseError, match=r"is not a run: no run.json in it"):
        resume(over)
    play(small_corpus, over, tiny())  # no --replace: nothing of worth is there
    assert left_behind(over) == expected
    assert not list(over.glob(".*"))


def test_a_run_s_own_parts_are_not_removed_for_it(
    tmp_path: Path, over: Path, small_corpus: Corpus
) -> None:
    shutil.copytree(small_corpus.path, over / "corpus")
    (over / "mine.py").write_text(
        "from firehose.methods.learners.gem import GEM\nclass Mine(GEM):\n    pass\n"
    )
    before = contents(over)
    own = tiny(f"play.learner={over}/mine.py:Mine")
    calls: list[Callable[[], Any]] = [
        lambda: play(small_corpus, over, tiny(), over / "model", replace=True),
        lambda: play(small_corpus, over, tiny(), over, replace=True),
        lambda: play(over / "corpus", over, tiny(), replace=True),
        lambda: play(small_corpus, over, own, replace=True),
    ]
    for call in calls:
        with pytest.raises(FirehoseError, match=r"which the run needs, is in .* choose another"):
            call()
    assert contents(over) == before
    play(small_corpus, tmp_path / "next", tiny(), over, replace=True)


def harm(checkpoint: Path) -> None:
    file = checkpoint / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")


def test_the_newest_checkpoint_is_kept_where_the_one_before_is_damaged(stopped: Path) -> None:
    before, newest = sorted((stopped / "checkpoints").glob("state-*"))
    harm(before)
    with pytest.raises(FirehoseError, match=r"is damaged: .*so the newest was kept"):
        resume(stopped, previous=True)
    assert newest.exists()
    resume(stopped)


def test_it_is_said_what_differs_from_when_a_run_was_begun(
    stopped: Path, over: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine()
    other = here | {"torch": "0.1", "threads": 99}
    monkeypatch.setattr(folders, "machine", lambda: other)
    resume(stopped)
    said = " ".join(capsys.readouterr().err.split())
    assert f"was begun with threads {torch.get_num_threads()} (here 99), torch" in said
    assert "(here 0.1): from here on the last bits may differ" in said
    assert left_behind(stopped) == left_behind(over)
    card = read_run(over)
    assert card.differences("cuda")[-1] == f"device {card.device} (here cuda)"
    monkeypatch.setattr(folders, "machine", lambda: here)
    assert card.differences(card.device) == []


def test_a_run_whose_corpus_was_moved_is_reported_and_forgets(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    shutil.copytree(small_corpus.path, tmp_path / "corpus")
    play(tmp_path / "corpus", tmp_path / "run", tiny())
    (tmp_path / "corpus").rename(tmp_path / "moved")
    with pytest.raises(FirehoseError, match="is not there any more; say where it is: --corpus"):
        report(tmp_path / "run")
    assert report(tmp_path / "run", corpus=tmp_path / "moved").is_file()
    assert compare([tmp_path / "run"], tmp_path / "moved").runs
    assert forget(tmp_path / "run", "user0", tmp_path / "moved")["vectors"] == 1
    (tmp_path / "other").mkdir()
    other = prepared(tmp_path / "other", simple_posts(users=4))
    for call in (lambda: report(tmp_path / "run", corpus=other.path),
                 lambda: forget(tmp_path / "run", "user1", other.path)):  # fmt: skip
        with pytest.raises(FirehoseError, match=r"is not the corpus that .* was begun with"):
            call()


def test_a_game_keeps_the_corpus_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = prepared(tmp_path, simple_posts())
    seal, names, rounds = corpus.seal(), set(corpus.users), Game.rounds
    strangers = [post._replace(user=f"stranger of {post.user}") for post in simple_posts()]
    plan = make_plan([write_posts(tmp_path / "others.jsonl", strangers)])

    def replaced(self: Game, stream: Any) -> Any:
        prepare(plan, corpus.path, INLINE, replace=True)
        yield from rounds(self, stream)

    monkeypatch.setattr(Game, "rounds", replaced)
    play(corpus.path, tmp_path / "run", tiny())
    assert set(Corpus(corpus.path).users).isdisjoint(names)
    assert set(load(tmp_path / "run").known()) == names
    assert read_run(tmp_path / "run").corpus.seal == seal
    card = json.loads((tmp_path / "run/model/model.json").read_text())
    assert card["origin"]["corpus"] == seal


def test_a_model_is_locked_before_somebody_is_forgotten_in_it(over: Path) -> None:
    before = contents(over / "model")
    with locked(over / "model", wait=False), pytest.raises(LockedError, match="is in use"):
        forget(over / "model", "user0")
    assert contents(over / "model") == before
    assert forget(over / "model", "user0") == {"vectors": 1, "names": 1}


def test_two_who_forget_in_one_corpus_do_not_bring_each_other_s_back(tmp_path: Path) -> None:
    corpus = prepared(tmp_path, simple_posts())
    with locked(corpus.path, wait=False), pytest.raises(LockedError, match="is in use"):
        forget(corpus.path, "user0")
    forget(corpus.path, "user0")
    assert Corpus(corpus.path).users == ["user1", "user2"]
