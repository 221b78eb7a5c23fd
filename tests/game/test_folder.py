"""Runs that are moved, that lose their start, that have a file of the user's: they go on."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_run import left_behind, stop_after

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.folder import read_run
from firehose.game.run import play, pretrain, read_progress, resume
from firehose.game.settings import Settings, make_settings
from firehose.machine import _bare, code_version
from small_models import TINY_GAME

OWN = """
from firehose.methods.learners import Learner, draw

class Mine(Learner):
    '''Learns from released posts, a little more slowly with every round.'''

    rounds = 0

    def gradient(self, step):
        if not step.released:
            return None
        gradient = step.model.gradient(draw(step.released, self.step_size, step.generator))
        gradient.scale(0.9 ** self.rounds)
        return gradient

    def end_round(self, step, steps):
        self.rounds += 1

    def state(self):
        return {"rounds": self.rounds}

    def restore(self, state):
        self.rounds = state["rounds"]
"""


def tiny(*more: str) -> Settings:
    return make_settings(assignments=[*TINY_GAME, *more])


def test_moved_with_its_corpus_and_without_its_start_it_goes_on_elsewhere(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small_corpus.path, tmp_path / "here" / "corpus")
    corpus = Corpus(tmp_path / "here" / "corpus")
    pretrain(corpus, tmp_path / "start", tiny("pretrain.epochs=1"), split="train")
    play(corpus, tmp_path / "whole", tiny(), tmp_path / "start")
    stop_after(monkeypatch, 3, sign=signal.SIGTERM)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(Stopped):
        play("corpus", "run", tiny(), "../start")
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "start")
    (tmp_path / "here").rename(tmp_path / "there")
    resume("there/run")
    assert left_behind(tmp_path / "there/run") == left_behind(tmp_path / "whole")
    assert read_progress(Path("there/run")) == 1


def test_a_corpus_that_was_moved_is_named_and_another_one_is_refused(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small_corpus.path, tmp_path / "corpus")
    play(small_corpus, tmp_path / "whole", tiny())
    stop_after(monkeypatch, 3, sign=signal.SIGTERM)
    with pytest.raises(Stopped):
        play(tmp_path / "corpus", tmp_path / "run", tiny())
    (tmp_path / "corpus").rename(tmp_path / "moved")
    with pytest.raises(FirehoseError, match="is not there any more; say where it is: --corpus"):
        resume(tmp_path / "run")
    resume(tmp_path / "run", corpus=tmp_path / "moved")
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


def test_killed_before_its_first_checkpoint_of_a_round_it_does_not_need_its_start(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(small_corpus, tmp_path / "start", tiny("pretrain.epochs=1"), split="train")
    stop_after(monkeypatch, 3, sign=signal.SIGTERM)
    with pytest.raises(Stopped):
        play(small_corpus, tmp_path / "run", tiny(), tmp_path / "start")
    states = sorted((tmp_path / "run/checkpoints").glob("state-*"))
    assert [path.name for path in states] == ["state-000000000", "state-000000003"]
    shutil.rmtree(states[-1])  # as if it had been killed in its first rounds
    shutil.rmtree(tmp_path / "start")
    monkeypatch.undo()
    resume(tmp_path / "run")
    assert (tmp_path / "run/result.json").exists()


def test_a_stateful_learner_of_the_user_s_is_found_again_and_goes_on_to_the_same_bits(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    settings = tiny("play.learner=mine.py:Mine", "play.optimizer=online-gd")
    play(small_corpus, tmp_path / "whole", settings)
    plain = tiny("play.learner=online-only", "play.optimizer=online-gd")
    play(small_corpus, tmp_path / "plain", plain)
    stop_after(monkeypatch, 3, sign=signal.SIGTERM)
    with pytest.raises(Stopped):
        play(small_corpus, tmp_path / "run", settings)
    monkeypatch.chdir("/")
    resume(tmp_path / "run")
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")
    assert left_behind(tmp_path / "plain")["paid"] != left_behind(tmp_path / "whole")["paid"]


def test_a_learner_that_has_changed_is_not_gone_on_with(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    stop_after(monkeypatch, 3, sign=signal.SIGTERM)
    with pytest.raises(Stopped):
        play(small_corpus, tmp_path / "run", tiny(f"play.learner={tmp_path}/mine.py:Mine"))
    (tmp_path / "mine.py").write_text(OWN.replace("0.9", "0.8"))
    with pytest.raises(FirehoseError, match="has changed; bring it back to go on"):
        resume(tmp_path / "run")
    (tmp_path / "mine.py").unlink()
    with pytest.raises(FirehoseError, match="is not there any more; bring it back"):
        resume(tmp_path / "run")


def test_the_card_says_what_is_run(tmp_path: Path, small_corpus: Corpus) -> None:
    play(small_corpus, tmp_path / "run", tiny("play.optimizer=online-gd"))
    card = read_run(tmp_path / "run")
    assert (card.kind, card.code, card.start) == ("play", code_version(), None)
    assert card.settings["play"]["optimizer"] == {"kind": "online-gd"}
    assert (tmp_path / "run" / card.corpus.relative).resolve() == small_corpus.path.resolve()
    origin = json.loads((tmp_path / "run/model/model.json").read_text())["origin"]
    assert origin["corpus"] == small_corpus.seal()
    assert str(tmp_path) not in json.dumps(origin)  # nothing about where things lie


def test_comments_and_docstrings_do_not_decide_results() -> None:
    source = 'def f(x):\n    """Say."""\n    return x + 1  # more\n'
    assert _bare(source) == _bare("def f(x):\n\n    return x + 1\n")
    assert _bare(source) != _bare(source.replace("+ 1", "+ 2"))
    other = "from firehose.machine import code_version; print(code_version())"
    found = subprocess.run(
        [sys.executable, "-c", other], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout.strip() == code_version()


def test_many_long_posts_are_warned_of(
    tmp_path: Path, small_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    play(small_corpus, tmp_path / "cut", tiny("model.max_tokens=4"))
    said = " ".join(capsys.readouterr().err.split())
    assert "100 % of the posts are longer than model.max_tokens = 4" in said
    assert f"model.max_tokens={small_corpus.splits['train'].tokens_covering()} covers 99 %" in said
    play(small_corpus, tmp_path / "whole", tiny())
    assert "max_tokens" not in capsys.readouterr().err
