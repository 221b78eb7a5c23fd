"""Runs of several processes: the files of one process, and no harm where a process is killed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from whole_runs import train

from firehose.data.corpus import Corpus
from firehose.game.run import play
from firehose.game.settings import make_settings
from firehose.parallel.launch import launch
from firehose.storage.checkpoints import Checkpoints, pack
from small_models import TINY_GAME

TESTS = Path(__file__).parents[1]
# One of the processes kills itself in the third round, or fails for a reason, if it is to.
DYING = """
import os, signal
from firehose.errors import FirehoseError
from firehose.methods.learners.mixed_replay import MixedReplay

class Dying(MixedReplay):
    rounds = 0

    def begin_round(self, step):
        self.rounds += 1
        if self.rounds == 3 and os.environ.get("DYING", "nobody") == os.environ.get("RANK"):
            if "REASON" in os.environ:
                raise FirehoseError(os.environ["REASON"])
            os.kill(os.getpid(), signal.SIGKILL)
"""


def firehose(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command with two processes."""
    command = [sys.executable, "-m", "firehose", *map(str, arguments), "--processes", "2"]
    told = os.environ | environment
    return subprocess.run(command, env=told, capture_output=True, text=True, check=False)


def sets(*more: str) -> list[str]:
    """The settings of a small game, as the command line takes them."""
    settings = (*TINY_GAME, "model.shape.dropout=0.2", *more)
    return [part for setting in settings for part in ("--set", setting)]


def assert_same(one: Path, other: Path) -> None:
    """The same files, with the same numbers up to roundings."""
    names = {path.name for path in one.iterdir()}
    assert names == {path.name for path in other.iterdir()}
    for name in (name for name in names if name.endswith(".f32")):
        a, b = (np.fromfile(folder / name, "<f4") for folder in (one, other))
        np.testing.assert_allclose(a, b, rtol=1e-4, err_msg=name)
    results = [json.loads((folder / "result.json").read_bytes()) for folder in (one, other)]
    assert _numbers(results[0]) == pytest.approx(_numbers(results[1]), rel=1e-4)


def assert_same_checkpoints(one: Path, other: Path) -> None:
    """The same state at the end: every part of the game, users in the same rows."""
    states = []
    for folder in (one, other):
        found = Checkpoints(folder / "checkpoints").latest()
        assert found is not None
        states.append(pack(found.state)[0])
    alone, together = states
    assert alone.keys() == together.keys() and "model/users/vectors" in alone
    for name, values in alone.items():
        torch.testing.assert_close(together[name], values, rtol=1e-3, atol=1e-5, msg=name)


def _numbers(value: Any, name: str = "") -> dict[str, float]:
    """All numbers of a result that are not of clocks, by where they are."""
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if key not in ("files", "sha256")}
        items = [(f"{name}/{key}", each) for key, each in value.items() if "seconds" not in key]
    elif isinstance(value, list):
        items = [(f"{name}/{number}", each) for number, each in enumerate(value)]
    else:
        return {name: value} if isinstance(value, int | float) else {}
    return {key: found for path, each in items for key, found in _numbers(each, path).items()}


@pytest.mark.parametrize("more", [[], ["--shard-users"]])
def test_a_game_leaves_the_files_of_one_process(
    small_corpus: Corpus, tmp_path: Path, more: list[str]
) -> None:
    done = firehose("play", small_corpus.path, "--out", tmp_path / "two", *sets(), *more)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert done.stdout.count("All numbers are in") == 1  # only the first one prints
    play(small_corpus, tmp_path / "one", make_settings(None, sets()[1::2]))
    assert_same(tmp_path / "one", tmp_path / "two")
    assert_same_checkpoints(tmp_path / "one", tmp_path / "two")
    again = firehose("play", small_corpus.path, "--out", tmp_path / "two", *sets())
    assert again.returncode == 1
    assert again.stderr.startswith("Error: ") and again.stderr.count("exists already") == 1


def test_a_process_that_is_killed_ends_the_run(small_corpus: Corpus, tmp_path: Path) -> None:
    learner = tmp_path / "dying.py"
    learner.write_text(DYING, encoding="utf-8")
    mixed = ("play.predictor=mixture", "play.predictor.weighing=posterior")
    run, chosen = tmp_path / "run", sets(f"play.learner={learner}:Dying", *mixed)
    often = ("--checkpoint-every", 0, "--shard-users")
    done = firehose("play", small_corpus.path, "--out", run, *chosen, *often, DYING="1")
    assert done.returncode == 1 and not done.stdout
    (told,) = done.stderr.splitlines()
    assert "Process 2 " in told and "SIGKILL" in told and "firehose resume" in told
    states = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert states == ["state-000000001", "state-000000002"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    command = [*torchrun, "-m", "firehose", "resume", str(run), "--shard-users"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "begun with processes 2 (here 3)" in done.stderr and "after round 2" in done.stderr
    play(small_corpus, tmp_path / "alone", make_settings(None, chosen[1::2]))
    assert_same(tmp_path / "alone", run)


def test_what_went_wrong_in_another_process_is_told(small_corpus: Corpus, tmp_path: Path) -> None:
    learner = tmp_path / "dying.py"
    learner.write_text(DYING, encoding="utf-8")
    command = ("play", small_corpus.path, "--out", tmp_path / "run")
    reason = {"DYING": "1", "REASON": "The second one is tired."}
    done = firehose(*command, *sets(f"play.learner={learner}:Dying"), **reason)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == "Error: Process 2 of 2 has failed: The second one is tired.\n"


def test_trainings_and_evaluations(
    small_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *sys.path]))
    program = [sys.executable, str(TESTS / "parallel" / "whole_runs.py")]
    assert launch(2, [*program, str(small_corpus.path), str(two)]) == 0
    train(str(small_corpus.path), one)
    for kind in ("pretrained", "oracle"):
        assert_same(one / kind, two / kind)
    with np.load(one / "evaluation.npz") as alone, np.load(two / "evaluation.npz") as together:
        for name in alone:
            np.testing.assert_allclose(together[name], alone[name], rtol=1e-4)
