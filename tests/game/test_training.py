"""Pretraining and the offline oracle: they learn, they stop, they go on to the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.outcome import TrainingOutcome
from firehose.game.run import offline, pretrain, resume
from firehose.game.scoring import Costs, costs
from firehose.game.settings import Settings, make_settings
from firehose.game.training import Fit
from firehose.models.store import load
from firehose.optim.adam import Adam
from firehose.optim.gradient import Gradient
from firehose.storage import tensors
from small_models import TINY_MODEL

RATES = [f"{table}.{key}" for table in ("pretrain", "offline") for key in ("rate=0.01", "warmup=4")]


def tiny(*assignments: str) -> Settings:
    return make_settings(assignments=[*TINY_MODEL, *RATES, *assignments])


def weights(run: Path) -> dict[str, torch.Tensor]:
    return tensors.read(run / "model" / "weights.safetensors")


def same(one: Path, other: Path) -> bool:
    mine, theirs = weights(one), weights(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)


def test_it_learns_and_the_best_epoch_is_kept(tmp_path: Path, small_corpus: Corpus) -> None:
    settings = tiny("pretrain.epochs=6", "pretrain.posts=8")
    outcome = pretrain(small_corpus, tmp_path / "run", settings, split="train")
    assert len(outcome.history) == 6
    assert outcome.history[-1].loss < 0.8 * outcome.history[0].loss
    again = load(tmp_path / "run", small_corpus)
    scored = costs(again.model, small_corpus.splits["validation"]).perplexity()
    assert scored == pytest.approx(min(epoch.validation for epoch in outcome.history), rel=1e-6)
    assert scored == pytest.approx(outcome.best().validation, rel=1e-6)
    assert not again.model.is_personal
    assert TrainingOutcome.read(tmp_path / "run") == outcome
    lines = (tmp_path / "run/epochs.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [asdict(e) for e in outcome.history]
    assert json.loads((tmp_path / "run/progress.json").read_text()) == {"done": 42, "total": 42}


def test_a_personal_model_begins_as_the_pretrained_one(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny("pretrain.epochs=2", "offline.epochs=1", "offline.posts=16")
    pretrain(small_corpus, tmp_path / "pretrained", settings, split="train")
    expected = costs(load(tmp_path / "pretrained").model, small_corpus.splits["test"])
    found = []

    def before_the_first_step(self: Fit) -> Generator[None]:
        found.append(costs(self.model, small_corpus.splits["test"]))
        raise Stopped("seen enough")
        yield

    monkeypatch.setattr(Fit, "units", before_the_first_step)
    with pytest.raises(Stopped):
        # The sizes are the pretrained model's, whatever the settings say.
        offline(small_corpus, tmp_path / "oracle", Settings(), tmp_path / "pretrained")
    assert found[0].nats.tolist() == expected.nats.tolist()


def test_the_rate_rises_and_falls_to_its_end(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no epoch is better than the first: nothing stops a cosine before it is over."""
    rates = []
    step = Adam.step

    def noted(self: Adam, gradient: Gradient, rate: float | None = None) -> float:
        assert rate is not None
        rates.append(rate)
        return step(self, gradient, rate)

    monkeypatch.setattr(Adam, "step", noted)
    found = iter([9.0, 10.0, 11.0, 12.0, 13.0])
    monkeypatch.setattr(Costs, "perplexity", lambda _: next(found, 14.0))
    settings = tiny("offline.epochs=5", "offline.posts=3", "offline.warmup=9", "offline.rate=0.1")
    outcome = offline(small_corpus, tmp_path / "run", settings)
    assert len(rates) == 5 * 18 and outcome.best().number == 1
    assert rates[0] == pytest.approx(0.1 / 9, rel=1e-3)
    assert max(rates) == rates[8]
    assert rates[45] == pytest.approx(0.05)
    assert rates[-1] < 1e-4


def stop_at(monkeypatch: pytest.MonkeyPatch, stop: int, sign: signal.Signals) -> None:
    """Send the next training this signal after so many steps."""
    steps = Fit._step

    def interrupted(self: Fit, indices: NDArray[np.int64]) -> None:
        steps(self, indices)
        if self.done == stop:
            monkeypatch.setattr(Fit, "_step", steps)
            os.kill(os.getpid(), sign)

    monkeypatch.setattr(Fit, "_step", interrupted)


@pytest.mark.parametrize("stops", [[1], [5, 6], [9, 14, 15]])
def test_stopped_and_resumed_it_ends_with_the_same_bits(
    tmp_path: Path, small_corpus: Corpus, stops: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny("offline.epochs=3", "offline.posts=12")  # 5 steps an epoch
    offline(small_corpus, tmp_path / "whole", settings)
    for number, stop in enumerate(stops):
        stop_at(monkeypatch, stop, signal.SIGINT)
        with pytest.raises(Stopped, match=f"after step {stop}; `firehose resume"):
            if number:
                resume(tmp_path / "broken")
            else:
                offline(small_corpus, tmp_path / "broken", settings)
        assert not (tmp_path / "broken" / "result.json").exists()
    resume(tmp_path / "broken")
    assert same(tmp_path / "whole", tmp_path / "broken")
    for name in ("test.f32", "validation.f32", "crossed.f32"):
        mine, theirs = ((tmp_path / run / name).read_bytes() for run in ("whole", "broken"))
        assert mine == theirs


def test_killed_and_resumed_it_ends_with_the_same_bits(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    program = [sys.executable, "-m", "firehose"]
    command = [*program, "offline", str(small_corpus.path)]
    options = [*TINY_MODEL, *RATES, "offline.epochs=40", "offline.posts=4"]
    command += [part for option in options for part in ("--set", option)]
    command += ["--checkpoint-every", "0"]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True)
    begun = subprocess.Popen([*command, "--out", str(tmp_path / "killed")])
    states = tmp_path / "killed" / "checkpoints"
    while not (states.exists() and len(list(states.glob("state-*"))) > 1):
        assert begun.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    begun.kill()
    begun.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    subprocess.run([*program, "resume", str(tmp_path / "killed")], check=True)
    assert same(tmp_path / "whole", tmp_path / "killed")


def test_what_cannot_go_on_is_told(tmp_path: Path, small_corpus: Corpus) -> None:
    settings = tiny("pretrain.epochs=1")
    with pytest.raises(FirehoseError, match="no posts in 'pretrain'; prepare it with"):
        pretrain(small_corpus, tmp_path / "run", settings)
    with pytest.raises(
        FirehoseError, match=r"loss of step \d+ is not a finite number; .* lower rate"
    ):
        wild = tiny("pretrain.epochs=9", "pretrain.rate=1e30", "pretrain.posts=4")
        pretrain(small_corpus, tmp_path / "wild", wild, split="train")
    assert not (tmp_path / "wild" / "model").exists()
    pretrain(small_corpus, tmp_path / "run", settings, split="train")
    before = weights(tmp_path / "run")
    with pytest.raises(FirehoseError, match="exists already"):
        pretrain(small_corpus, tmp_path / "run", tiny("pretrain.epochs=2"), split="train")
    assert all(torch.equal(value, before[n]) for n, value in weights(tmp_path / "run").items())


def test_what_is_replaced_is_begun_again(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(monkeypatch, 9, signal.SIGTERM)
    with pytest.raises(Stopped, match="after step 9;"):
        offline(small_corpus, tmp_path / "run", tiny("offline.posts=4"))
    other = tiny("offline.posts=4", "offline.epochs=1", "offline.seed=7")
    stop_at(monkeypatch, 2, signal.SIGTERM)
    with pytest.raises(Stopped, match="after step 2;"):
        offline(small_corpus, tmp_path / "run", other, replace=True)
    resume(tmp_path / "run")
    offline(small_corpus, tmp_path / "whole", other)
    assert same(tmp_path / "run", tmp_path / "whole")
