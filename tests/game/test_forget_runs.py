"""Forgetting in runs: whatever is left of a user, and that the rest can still be reported."""

import contextlib
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_run import stop_after

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game import totals
from firehose.game.forget import forget
from firehose.game.outcome import Outcome
from firehose.game.result import is_over, read_result
from firehose.game.run import offline, play
from firehose.game.scoring import Measure, read_costs
from firehose.game.settings import make_settings
from firehose.models.store import load
from firehose.storage.checkpoints import Checkpoints
from firehose.storage.logs import AppendLog
from small_models import TINY_GAME

ONCE = ["offline.epochs=1", "offline.posts=8"]


@pytest.mark.parametrize("kind", ["play", "offline"])
def test_nothing_of_a_user_is_left_in_a_run_that_is_over(
    tmp_path: Path, small_corpus: Corpus, kind: str
) -> None:
    settings, run = make_settings(assignments=[*TINY_GAME, *ONCE]), tmp_path / "run"
    (play if kind == "play" else offline)(small_corpus, run, settings)
    measures: dict[str, list[Measure]] = {
        "play": ["online", "past", "validation", "test"],
        "offline": ["past", "validation", "test", "crossed"],
    }
    before = {measure: read_costs(run, small_corpus, measure) for measure in measures[kind]}
    erased = forget(run, "user1")
    gone = 0
    for measure, paid in before.items():
        left = read_costs(run, small_corpus, measure)
        others = paid.user != small_corpus.users.index("user1")
        assert left.nats.tolist() == paid.nats[others].tolist()
        assert left.user.tolist() == paid.user[others].tolist()
        gone += int((~others).sum())
    assert erased["costs of posts"] == gone > 0
    assert load(run).users.number("user1") is None
    assert load(run).users.number("user2") is not None
    if kind == "play":
        online = read_costs(run, small_corpus, "online")
        assert Outcome.read(run).online.value == pytest.approx(online.perplexity())
        assert np.isfinite(Outcome.read(run).retention.bucket).all()
    with pytest.raises(FirehoseError, match="has no user 'nobody'"):
        forget(run, "nobody")


class CrashError(BaseException):
    """The machine stops."""


def crash_before(monkeypatch: pytest.MonkeyPatch, number: int) -> list[Path]:
    """Stop before the so-manieth time that something takes its place; returns what did, so far.

    From then on nothing is done any more, not even tidying up.
    """
    placed: list[Path] = []

    def dead(*_arguments: object, **_named: object) -> None:
        raise CrashError

    for name, operation in {"replace": Path.replace, "rename": Path.rename}.items():

        def stopping(path: Path, target: Path, operation: Any = operation) -> Any:
            if len(placed) == number:
                monkeypatch.setattr(shutil, "rmtree", dead)
                monkeypatch.setattr(Path, "unlink", dead)
                raise CrashError
            placed.append(target)
            return operation(path, target)

        monkeypatch.setattr(Path, name, stopping)
    return placed


@pytest.mark.parametrize("kind", ["over", "stopped"])
def test_a_crash_at_any_point_leaves_a_run_that_can_be_used_and_forgetting_can_be_done_again(
    tmp_path: Path, small_corpus: Corpus, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "RESAMPLES", 20)  # for the time it takes
    begun, expected = tmp_path / "begun", tmp_path / "expected"
    settings = make_settings(assignments=[*TINY_GAME, *ONCE])
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Stopped):
        if kind == "stopped":
            stop_after(patch, 4, sign=signal.SIGTERM)
        play(small_corpus, begun, settings)
    forget(shutil.copytree(begun, expected), "user1")
    for number in range(100):
        run = shutil.copytree(begun, tmp_path / f"run{number}")
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(CrashError):
            placed = crash_before(patch, number)
            forget(run, "user1")
        checkpoint = Checkpoints(run / "checkpoints").latest()
        assert checkpoint is not None
        if kind == "stopped":
            AppendLog(run / "paid.f32", checkpoint.logs["paid.f32"])
        else:
            assert is_over(run, contents=True)
        if len(placed) < number:
            break
        forget(run, "user1")
        assert contents(run) == contents(expected)
    assert number > (3 if kind == "stopped" else 6)


def contents(run: Path) -> dict[str, object]:
    """What is in a run but for seconds, seals and versions."""
    (place,) = Checkpoints(run / "checkpoints").places()
    state = Checkpoints(run / "checkpoints").read(place).state
    files = [path for path in run.iterdir() if path.suffix == ".f32"]
    weights = [path for path in run.rglob("weights.safetensors") if path.parent.name == "model"]
    return {
        "files": {path.name: path.read_bytes() for path in (*files, *weights)},
        "hidden": [path for path in run.iterdir() if path.name.startswith(".")],
        "vectors": state["model"]["users"]["user_of"].tolist(),
        "result": read_result(run) if is_over(run) else None,
    }
