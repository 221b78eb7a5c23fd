"""Pretraining and the offline oracle: they learn, they stop, they go on to the same bits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game import training
from firehose.game.scoring import costs
from firehose.game.settings import Settings, Training, make_settings
from firehose.game.training import Fit, offline, pretrain
from firehose.models.store import load
from firehose.storage import tensors
from small_models import TINY_MODEL

RATES = [f"{table}.{key}" for table in ("pretrain", "offline") for key in ("rate=0.01", "warmup=4")]


def tiny(*assignments: str) -> Settings:
    return make_settings(assignments=[*TINY_MODEL, *RATES, *assignments])


def weights(model: Path) -> dict[str, torch.Tensor]:
    return tensors.read(model / "weights.safetensors")


def same(one: Path, other: Path) -> bool:
    mine, theirs = weights(one), weights(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)


def test_it_learns_and_the_best_epoch_is_kept(tmp_path: Path, small_corpus: Corpus) -> None:
    settings = tiny("pretrain.epochs=6", "pretrain.posts=8")
    trained = pretrain(small_corpus, tmp_path / "model", settings, split="train")
    history = trained.origin["history"]
    assert len(history) == 6
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    again = load(tmp_path / "model", small_corpus)
    scored = costs(again.model, small_corpus.splits["validation"]).per_word()
    assert scored == pytest.approx(min(epoch["validation"] for epoch in history), rel=1e-6)
    assert not again.model.is_personal
    assert not (tmp_path / "model.training").exists()


def test_a_personal_model_begins_as_the_pretrained_one(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny("pretrain.epochs=2", "offline.epochs=1", "offline.posts=16")
    pretrain(small_corpus, tmp_path / "pretrained", settings, split="train")
    expected = costs(load(tmp_path / "pretrained").model, small_corpus.splits["test"])
    found = []

    def before_the_first_step(self: Fit) -> None:
        found.append(costs(self.model, small_corpus.splits["test"]))
        raise Stopped("seen enough")

    monkeypatch.setattr(Fit, "epoch", before_the_first_step)
    with pytest.raises(Stopped):
        # The sizes are the pretrained model's, whatever the settings say.
        offline(small_corpus, tmp_path / "oracle", tmp_path / "pretrained", Settings())
    assert found[0].nats.tolist() == expected.nats.tolist()


def test_early_stopping() -> None:
    fit = Fit.__new__(Fit)
    fit.training = Training(epochs=9, patience=2)
    fit.history = []
    assert not fit.is_over
    for validation, over in [(9.0, False), (8.0, False), (8.5, False), (8.0, True)]:
        number = len(fit.history) + 1
        fit.history.append(training.Epoch(number, 1.0, validation, 1, 1.0))
        assert fit.is_over is over


def test_the_rate_rises_and_falls() -> None:
    fit = Fit.__new__(Fit)
    fit.training = Training(rate=0.1, warmup=10, epochs=4)
    fit.steps_per_epoch = 25
    rates = []
    for fit.step in range(100):
        rates.append(fit.rate())
    assert rates[0] == pytest.approx(0.01, rel=1e-3)
    assert max(rates) == rates[9]
    assert rates[50] == pytest.approx(0.05)
    assert rates[-1] < 1e-4


@pytest.mark.parametrize("stops", [[1], [5, 6], [9, 14, 15]])
def test_stopped_and_begun_again_it_ends_with_the_same_bits(
    tmp_path: Path, small_corpus: Corpus, stops: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny("offline.epochs=3", "offline.posts=12")  # 5 steps an epoch
    offline(small_corpus, tmp_path / "whole", settings=settings)
    step = Fit.epoch
    for stop in stops:

        def interrupted(self: Fit, stop: int = stop) -> object:
            for value in step(self):
                if self.step == stop:
                    os.kill(os.getpid(), signal.SIGINT)
                yield value

        monkeypatch.setattr(Fit, "epoch", interrupted)
        with pytest.raises(Stopped, match=f"after step {stop}; the same command"):
            offline(small_corpus, tmp_path / "broken", settings=settings)
        assert not (tmp_path / "broken").exists()
    monkeypatch.setattr(Fit, "epoch", step)
    offline(small_corpus, tmp_path / "broken", settings=settings)
    assert same(tmp_path / "whole", tmp_path / "broken")


def test_killed_and_begun_again_it_ends_with_the_same_bits(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    command = [sys.executable, "-m", "firehose", "offline", str(small_corpus.path)]
    options = [*TINY_MODEL, *RATES, "offline.epochs=40", "offline.posts=4", "offline.patience=40"]
    command += [part for option in options for part in ("--set", option)]
    command += ["--checkpoint-every", "0"]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True)
    begun = subprocess.Popen([*command, "--out", str(tmp_path / "killed")])
    states = tmp_path / "killed.training"
    while not (states.exists() and len(list(states.glob("state-*"))) > 1):
        assert begun.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    begun.kill()
    begun.wait()
    assert not (tmp_path / "killed").exists()
    subprocess.run([*command, "--out", str(tmp_path / "killed")], check=True)
    assert same(tmp_path / "whole", tmp_path / "killed")


def test_what_cannot_go_on_is_told(tmp_path: Path, small_corpus: Corpus) -> None:
    settings = tiny("pretrain.epochs=1")
    with pytest.raises(FirehoseError, match="no posts in 'pretrain'; prepare it with"):
        pretrain(small_corpus, tmp_path / "model", settings)
    with pytest.raises(FirehoseError, match=r"Step \d+ has a loss of .*(nan|inf)"):
        wild = tiny("pretrain.epochs=9", "pretrain.rate=1e30", "pretrain.posts=4")
        pretrain(small_corpus, tmp_path / "wild", wild, split="train")
    assert not (tmp_path / "wild").exists()
    pretrain(small_corpus, tmp_path / "model", settings, split="train")
    before = weights(tmp_path / "model")
    with pytest.raises(FirehoseError, match="exists already"):
        pretrain(small_corpus, tmp_path / "model", tiny("pretrain.epochs=2"), split="train")
    assert all(torch.equal(value, before[n]) for n, value in weights(tmp_path / "model").items())


def test_another_training_is_not_continued(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Fit.epoch

    def interrupted(self: Fit) -> object:
        for value in step(self):
            os.kill(os.getpid(), signal.SIGTERM)
            yield value

    monkeypatch.setattr(Fit, "epoch", interrupted)
    with pytest.raises(Stopped):
        offline(small_corpus, tmp_path / "model", settings=tiny("offline.epochs=1"))
    monkeypatch.setattr(Fit, "epoch", step)
    other = tiny("offline.epochs=1", "offline.seed=7")
    with pytest.raises(FirehoseError, match="of a training with other settings"):
        offline(small_corpus, tmp_path / "model", settings=other)
    offline(small_corpus, tmp_path / "model", settings=other, replace=True)
    assert (tmp_path / "model").exists()


def test_what_is_replaced_does_not_pass_for_newer(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Fit.epoch

    def stopped(settings: Settings, after: int, replace: bool) -> None:
        def interrupted(self: Fit) -> object:
            for value in step(self):
                if self.step == after:
                    os.kill(os.getpid(), signal.SIGTERM)
                yield value

        monkeypatch.setattr(Fit, "epoch", interrupted)
        with pytest.raises(Stopped, match=f"after step {after};"):
            offline(small_corpus, tmp_path / "model", settings=settings, replace=replace)
        monkeypatch.setattr(Fit, "epoch", step)

    stopped(tiny("offline.posts=4"), 9, replace=False)
    other = tiny("offline.posts=4", "offline.epochs=1", "offline.seed=7")
    stopped(other, 2, replace=True)
    offline(small_corpus, tmp_path / "model", settings=other)  # goes on from step 2
    offline(small_corpus, tmp_path / "whole", settings=other)
    assert same(tmp_path / "model", tmp_path / "whole")
