"""Whole games: what they leave behind, and that stopping them changes nothing."""

import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from firehose.batch import Batch
from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.assembly import Game
from firehose.game.evaluate import evaluate
from firehose.game.result import read_result
from firehose.game.round import Round
from firehose.game.run import play, resume
from firehose.game.scoring import Measure, read_costs
from firehose.game.settings import Settings, make_settings
from firehose.methods.learners import LEARNERS
from firehose.models.store import load
from firehose.storage import tensors
from small_models import TINY_GAME


def tiny(*more: str) -> Settings:
    return make_settings(assignments=[*TINY_GAME, *more])


def stop_after(monkeypatch: pytest.MonkeyPatch, *rounds: int, sign: signal.Signals) -> None:
    """Send a game this signal when it has played so many rounds."""
    whole = Game.rounds

    def interrupted(self: Game, stream: Iterable[Batch]) -> Iterator[Round]:
        for played in whole(self, stream):
            if self.played in rounds:
                os.kill(os.getpid(), sign)
            yield played

    monkeypatch.setattr(Game, "rounds", interrupted)


def left_behind(run: Path) -> dict[str, object]:
    """Everything but how long it took."""
    result = read_result(run)
    result["compute"] = {k: v for k, v in result["compute"].items() if "seconds" not in k}
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    weights = tensors.read(run / "model" / "weights.safetensors")
    return {
        "result": result,
        "rounds": [{k: v for k, v in line.items() if k != "seconds"} for line in rounds],
        "paid": (run / "paid.f32").read_bytes(),
        "weights": {name: value.numpy().tobytes() for name, value in weights.items()},
    }


def test_what_a_run_leaves_behind(tmp_path: Path, small_corpus: Corpus) -> None:
    outcome = play(small_corpus, tmp_path / "run", tiny())
    rounds = [json.loads(x) for x in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    posts = small_corpus.manifest.posts["train"]
    assert sum(line["posts"] for line in rounds) == posts
    nats, words = (sum(line[name] for line in rounds) for name in ("nats", "words"))
    assert outcome.online.value == pytest.approx(math.exp(nats / words), rel=1e-5)
    assert outcome.curve.running[-1] == pytest.approx(outcome.online.value)
    assert sum(outcome.kept) == len(rounds) == outcome.compute["rounds"]
    assert outcome.compute["gradient steps"] == sum(line["taken"] for line in rounds)
    again = evaluate(load(tmp_path / "run/model", small_corpus), small_corpus, others=0)
    assert outcome.test.value == pytest.approx(again.own.perplexity())
    assert outcome.test_balanced.value == pytest.approx(again.own.perplexity("user"))
    assert outcome.test_per_token.value == pytest.approx(again.own.perplexity("token"))
    shown = {row[0]: row[1] for row in outcome.tables()[0].rows}
    assert shown["test, every user counted alike"] == f"{again.own.perplexity('user'):.1f}"
    assert shown["test, per token"] == f"{again.own.perplexity('token'):.1f}"
    splits: dict[Measure, str] = {"test": "test", "validation": "validation", "past": "train"}
    for measure, split in splits.items():
        paid = read_costs(tmp_path / "run", small_corpus, measure)
        everything = evaluate(load(tmp_path / "run/model", small_corpus), small_corpus, split, 0)
        cost = dict(zip(everything.own.time.tolist(), everything.own.nats, strict=True))
        assert paid.nats == pytest.approx([cost[time] for time in paid.time.tolist()], rel=1e-5)
    assert pq.read_table(tmp_path / "run/rounds.parquet").num_rows == len(rounds)
    assert read_result(tmp_path / "run") == json.loads(json.dumps(outcome.public()))


PAIRS = itertools.product(LEARNERS.built_in, ("online-gd", "congrad"))


@pytest.mark.parametrize(
    ("learner", "optimizer"),
    [("mixed-replay", "averaged"), *(pair for pair in PAIRS if pair[0] != "icarl")],
)
def test_stopped_and_resumed_it_ends_with_the_same_bits(
    tmp_path: Path,
    small_corpus: Corpus,
    learner: str,
    optimizer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = tiny(f"play.learner={learner}", f"play.optimizer={optimizer}")
    play(small_corpus, tmp_path / "whole", settings)
    stop_after(monkeypatch, 2, 5, sign=signal.SIGINT)
    with pytest.raises(Stopped, match="after round 2; `firehose resume"):
        play(small_corpus, tmp_path / "run", settings)
    with pytest.raises(Stopped, match="after round 5"):
        resume(tmp_path / "run")
    resume(tmp_path / "run")
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


@pytest.mark.parametrize("strategy", ["fifo", "reservoir", "stratified", "stratified-reservoir"])
@pytest.mark.parametrize("limit", ["posts", "per_user"])
def test_every_buffer_survives(
    tmp_path: Path,
    small_corpus: Corpus,
    strategy: str,
    limit: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffer = {"kind": strategy, limit: 5 if limit == "posts" else 2}
    optimizer = {"kind": "congrad", "validation": buffer, "restore_moments": True}
    values = {"memory": buffer, "optimizer": optimizer}
    settings = make_settings(assignments=TINY_GAME, play=values)
    play(small_corpus, tmp_path / "whole", settings)
    stop_after(monkeypatch, 4, sign=signal.SIGTERM)
    with pytest.raises(Stopped):
        play(small_corpus, tmp_path / "run", settings)
    resume(tmp_path / "run")
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


def test_killed_at_random_moments_it_ends_with_the_same_bits(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    arguments = [str(small_corpus.path), "--checkpoint-every", "0"]
    arguments += [part for setting in TINY_GAME for part in ("--set", setting)]
    command = [sys.executable, "-m", "firehose"]
    subprocess.run(
        [*command, "play", *arguments, "--out", str(tmp_path / "whole")],
        check=True,
        capture_output=True,
    )
    chance = random.Random(0)
    run = tmp_path / "run"
    begun = [*command, "play", *arguments, "--out", str(run)]
    for _ in range(10):
        process = subprocess.Popen(begun, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = len(list((run / "checkpoints").glob("state-*")))
        while process.poll() is None and not (run / "checkpoints").exists():
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.25) + (0.1 if before else 0))
        process.kill()
        process.wait()
        if (run / "result.json").exists():
            break
        begun = [*command, "resume", str(run)]
    if not (run / "result.json").exists():
        subprocess.run([*command, "resume", str(run)], check=True, capture_output=True)
    assert left_behind(run) == left_behind(tmp_path / "whole")


def test_a_loss_that_is_not_finite_stops_the_game_at_the_last_good_round(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Game.rounds

    def broken(self: Game, stream: Iterable[Batch]) -> Iterator[Round]:
        for played in rounds(self, stream):
            if self.played == 4:
                with torch.no_grad():
                    next(self.model.parameters())[3] = float("nan")
            yield played

    monkeypatch.setattr(Game, "rounds", broken)
    with pytest.raises(FirehoseError, match=r"round 4 is not .* state after round 3\. Begin again"):
        play(small_corpus, tmp_path / "run", tiny(), checkpoint_every=0)
    assert not (tmp_path / "run" / "result.json").exists()
    monkeypatch.setattr(Game, "rounds", rounds)
    resume(tmp_path / "run")  # whatever it was, it is not there any more
    play(small_corpus, tmp_path / "whole", tiny())
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


def test_a_wild_rate_is_told(tmp_path: Path, small_corpus: Corpus) -> None:
    settings = tiny("play.rule.rate=1e30", "play.rule.warmup=0", "play.optimizer=online-gd")
    with pytest.raises(FirehoseError, match=r"is not a finite number; .* state after round 0"):
        play(small_corpus, tmp_path / "run", settings)


def test_rounds_by_time(tmp_path: Path, small_corpus: Corpus) -> None:
    stream = small_corpus.stream(hours=4)
    expected = len(stream)
    batches = list(stream)
    assert len(batches) == expected
    assert sum(len(batch) for batch in batches) == small_corpus.manifest.posts["train"]
    windows = [set((batch.time // (4 * 3_600_000)).tolist()) for batch in batches]
    assert all(len(window) == 1 for window in windows)
    assert len(set.union(*windows)) == expected
    outcome = play(small_corpus, tmp_path / "run", tiny("play.hours=4"))
    assert outcome.compute["rounds"] == expected


def test_wrong_input_is_one_sentence(tmp_path: Path, small_corpus: Corpus) -> None:
    with pytest.raises(FirehoseError, match="no learner 'mixed': did you mean 'mixed-replay'"):
        play(small_corpus, tmp_path / "run", tiny("play.learner=mixed"))
    with pytest.raises(FirehoseError, match="does not exist; a learner of your own"):
        play(small_corpus, tmp_path / "run", tiny("play.learner=none.py:Mine"))
    assert not (tmp_path / "run").exists()
    play(small_corpus, tmp_path / "run", tiny())
    with pytest.raises(FirehoseError, match="exists already; go on with `firehose resume"):
        play(small_corpus, tmp_path / "run", tiny())
    with pytest.raises(FirehoseError, match="is over; its result is"):
        resume(tmp_path / "run")
    with pytest.raises(FirehoseError, match="does not exist; begin one"):
        resume(tmp_path / "none")
    (tmp_path / "mine/checkpoints/mine").mkdir(parents=True)
    with pytest.raises(FirehoseError, match="exists and is not a run"):
        play(small_corpus, tmp_path / "mine", tiny(), replace=True)
    card = json.loads((tmp_path / "run/run.json").read_text())
    (tmp_path / "run/run.json").write_text(json.dumps(card | {"schema_version": 9}))
    with pytest.raises(FirehoseError, match="a run of another version of Firehose"):
        resume(tmp_path / "run")


def test_it_begins_with_the_model_it_is_given(tmp_path: Path, small_corpus: Corpus) -> None:
    play(small_corpus, tmp_path / "first", tiny("model.architecture=agnostic"))
    start = tmp_path / "first/model"
    expected = load(start, small_corpus).model.pay(small_corpus.splits["train"].between(0, 6))
    play(small_corpus, tmp_path / "second", make_settings(assignments=TINY_GAME[-6:]), start)
    paid = np.fromfile(tmp_path / "second/paid.f32", "<f4")[:6]
    assert paid == pytest.approx(expected.nats, rel=1e-5)


def test_tensorboard_shows_every_round_once(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    stop_after(monkeypatch, 4, sign=signal.SIGTERM)
    with pytest.raises(Stopped):
        play(small_corpus, tmp_path / "run", tiny(), tensorboard=True)
    outcome = resume(tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    values = events.Scalars("perplexity/so far")
    assert [value.step for value in values] == list(range(1, int(outcome.compute["rounds"]) + 1))
    assert values[-1].value == pytest.approx(outcome.online.value, rel=1e-4)
