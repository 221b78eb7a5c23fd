"""Experiments so small that a test can afford them."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import ArrayLike

from firehose.data.corpus import Corpus
from firehose.experiments import ledger
from firehose.experiments.jobs import Job
from firehose.experiments.ledger import Group
from firehose.game.metrics import Curve, Retention
from firehose.game.outcome import Outcome, TaskOutcome
from firehose.game.run import offline, play, pretrain
from firehose.game.settings import make_settings
from firehose.game.totals import ACCURACY, Measured, Totals
from small_models import TINY_GAME

TRAINING = ["epochs=1", "posts=8", "rate=0.01", "warmup=2"]
TINY_SCALE = [
    *TINY_GAME,
    "play.optimizer.validation_batch=4",
    "play.optimizer.validation.per_user=1",
    *(f"{kind}.{setting}" for kind in ("pretrain", "offline") for setting in TRAINING),
]

RECIPE = """
title = "Steps"

[[runs]]
[runs.vary]
"play.optimizer" = ["online-gd", "congrad"]
"play.steps" = [1, 2]

[[runs]]
kind = "offline"

[[tables]]
title = "Test"
rows = ["play.optimizer"]
columns = ["play.steps"]
[tables.published]
online-gd = { 1 = 137.2 }
offline = 94.1

[[figures]]
draw = "compute"

[[claims]]
says = "ConGraD is better."
lower = { "play.optimizer" = "congrad" }
higher = { "play.optimizer" = "online-gd" }
within = ["play.steps"]
"""


def tiny_scale(folder: Path) -> Path:
    """A recipe of sizes."""
    path = folder / "tiny.toml"
    path.write_text(make_settings(assignments=TINY_SCALE).to_toml())
    return path


def do(job: Job) -> None:
    """A job in this process: what its commands do."""
    start = job.start.folder if job.start else None
    job.store.mkdir(parents=True, exist_ok=True)
    job.recipe.write_text(job.settings.to_toml())
    if job.kind == "play":
        play(job.corpus, job.folder, job.settings, start)
        return
    assert isinstance(job.corpus, Corpus)
    if job.kind == "pretrain":
        pretrain(job.corpus, job.folder, job.settings)
    else:
        offline(job.corpus, job.folder, job.settings, start)


def paid(nats: ArrayLike, words: ArrayLike) -> Totals:
    """Nats and words of each user."""
    return Totals(np.array([nats], float), np.array([words], float))


def group(monkeypatch: pytest.MonkeyPatch, *seeds: Totals | None, **facts: str) -> Group:
    """Runs that came to these totals, seed by seed, whatever is asked for."""
    monkeypatch.setattr(ledger, "totals", lambda job, _: job.paid)
    jobs = [SimpleNamespace(paid=each, seed=seed) for seed, each in enumerate(seeds)]
    return Group(facts, tuple(jobs))  # type: ignore[arg-type]


def outcome(perplexity: float) -> Outcome:
    """Of a game in which everything costs the same."""
    number = Measured(perplexity, perplexity / 2, perplexity * 2, 4)
    flat = np.full(3, float(perplexity))
    return Outcome(
        online=number,
        validation=number,
        test=number,
        test_balanced=number,
        test_per_token=number,
        curve=Curve(np.array([10, 20, 30]), flat, flat),
        retention=Retention(np.array([3.0, 2.0, 1.0]), flat, flat),
        cold_start={"1": number, "2": number},
        by_history={"none": number, "1 to 3": number},
        after_silence={"under an hour": number},
        by_activity={"0–10 %": number},
        kept=[1, 2],
        compute={"gradient steps": 6, "seconds to pay": 1.0},
    )


def right(shares: ArrayLike) -> Totals:
    """The share of each task's pictures that is named rightly."""
    return Totals(np.array([shares], float), np.ones((1, len(np.array(shares)))), ACCURACY)


def task_outcome(benchmark: str = "Disjoint MNIST") -> TaskOutcome:
    """Of three tasks; the first is at its best after the second."""
    accuracy = np.array([[0.1, 0.2, 0.3], [0.7, 0.3, 0.3], [0.9, 0.8, 0.5], [0.5, 0.7, 0.6]])
    return TaskOutcome(
        benchmark=benchmark,
        seen=np.arange(4) * 10,
        accuracy=accuracy,
        ends=np.array([1, 2, 3]),
        kept=[0, 3],
        compute={"gradient steps": 3},
    )


def task_group(monkeypatch: pytest.MonkeyPatch, *seeds: TaskOutcome, **facts: str) -> Group:
    """Runs that came to this, seed by seed."""
    monkeypatch.setattr(ledger, "outcome", lambda job: job.came)
    monkeypatch.setattr(ledger, "totals", lambda job, measure: job.came.totals(measure))
    jobs = [SimpleNamespace(came=each, seed=seed) for seed, each in enumerate(seeds)]
    return Group({"kind": "play"} | facts, tuple(jobs))  # type: ignore[arg-type]
