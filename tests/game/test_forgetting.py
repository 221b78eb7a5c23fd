"""Forgetting a user in the folders of models, runs and corpora."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from test_run import stop_after

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.forget import forget
from firehose.game.outcome import Outcome
from firehose.game.run import offline, play, resume
from firehose.game.scoring import read_costs
from firehose.game.settings import make_settings
from firehose.models.store import load
from firehose.storage.checkpoints import Checkpoints
from small_models import TINY_GAME

SETTINGS = make_settings(assignments=TINY_GAME)
USER, NUMBER = "user1", 1


def in_bytes(folder: Path, text: str) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


def test_a_run_that_is_over(tmp_path: Path, small_corpus: Corpus) -> None:
    run = tmp_path / "run"
    before = play(small_corpus, run, SETTINGS)
    erased = forget(run, USER)
    posts = 18 + 3 + 3 + 18  # of the stream, of both held-out splits, and of the past
    assert erased["costs of posts"] == posts
    assert (erased["vectors"], erased["names"]) == (1, 1)
    assert 0 < erased["remembered posts"] + erased["held-back posts"] <= 3
    assert in_bytes(run, USER) == []
    assert load(run).users.number(USER) is None
    (state,) = (run / "checkpoints").glob("state-*")
    found = Checkpoints(run / "checkpoints").read(state).state
    assert NUMBER not in found["model"]["users"]["user_of"].tolist()
    for memory in (found["memory"], found["optimizer"]["validation"]):
        assert NUMBER not in memory["user_of"].tolist()
        assert NUMBER not in memory["column.user"].tolist()
    assert len(found["rule"]["rows"]["first"]) == len(found["model"]["users"]["vectors"])
    after = Outcome.read(run)
    assert after.online.posts == before.online.posts - 18
    paid = read_costs(run, small_corpus, "online")
    assert NUMBER not in paid.user and np.isfinite(after.online.value)


def test_a_run_that_goes_on(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    stop_after(monkeypatch, 4, sign=signal.SIGTERM)
    with pytest.raises(Stopped):
        play(small_corpus, run, SETTINGS)
    assert len(list((run / "checkpoints").glob("state-*"))) == 2
    assert forget(run, USER)["vectors"] == 1
    assert len(list((run / "checkpoints").glob("state-*"))) == 1  # none from before is left
    resume(run)
    assert (run / "result.json").exists()


def test_a_training(tmp_path: Path, small_corpus: Corpus) -> None:
    run = tmp_path / "run"
    settings = make_settings(assignments=[*TINY_GAME, "offline.epochs=2", "offline.posts=8"])
    offline(small_corpus, run, settings)
    assert forget(run, USER)["vectors"] == 1
    (state,) = (run / "checkpoints").glob("state-*")
    found = Checkpoints(run / "checkpoints").read(state).state
    for model in (found["model"], found["best"]):
        assert NUMBER not in model["users"]["user_of"].tolist()
    assert in_bytes(run, USER) == []


def test_a_model_and_a_corpus(tmp_path: Path, small_corpus: Corpus) -> None:
    play(small_corpus, tmp_path / "run", SETTINGS)
    shutil.copytree(tmp_path / "run/model", tmp_path / "model")
    assert forget(tmp_path / "model", USER) == {"vectors": 1, "names": 1}
    assert in_bytes(tmp_path / "model", USER) == []
    others = {name for name in small_corpus.users if name != USER}
    assert set(load(tmp_path / "model").known()) == others
    shutil.copytree(small_corpus.path, tmp_path / "corpus")
    forget(tmp_path / "corpus", USER)
    assert in_bytes(tmp_path / "corpus", USER) == []
    assert set(Corpus(tmp_path / "corpus").users) == others


def test_wrong_input_is_one_sentence(tmp_path: Path, small_corpus: Corpus) -> None:
    play(small_corpus, tmp_path / "run", SETTINGS)
    with pytest.raises(FirehoseError, match="has no user 'nobody'"):
        forget(tmp_path / "run", "nobody")
    with pytest.raises(FirehoseError, match="knows no user 'nobody'"):
        forget(tmp_path / "run/model", "nobody")
    with pytest.raises(FirehoseError, match="neither a model, nor a run, nor a corpus"):
        forget(tmp_path, USER)
    before = json.loads((tmp_path / "run/result.json").read_text())
    assert before["online"]["posts"] == 54
