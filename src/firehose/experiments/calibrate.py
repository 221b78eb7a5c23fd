"""How long jobs will take and what memory they need, from a few steps that are measured.

Run as a program, it measures one kind of model in a process of its own, with as many threads as
the jobs will have: ``python -m firehose.experiments.calibrate CORPUS RECIPE POSTS``.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.experiments.jobs import Job
from firehose.game.evaluate import OTHERS
from firehose.game.metrics import BUCKETS, EACH
from firehose.game.scoring import AT_ONCE
from firehose.game.settings import Playing, Settings, Training, make_settings
from firehose.methods.buffers.storage import BufferPlan
from firehose.progress import track

REPEATS = 5


class Pace(NamedTuple):
    """What one kind of model costs."""

    step: float  # seconds of a gradient step
    score: float  # seconds to score a post
    memory: int  # bytes, of a whole process


class Estimate(NamedTuple):
    """What a job will cost."""

    job: Job
    hours: float
    memory: int  # bytes


def estimate(jobs: Sequence[Job], threads: int) -> list[Estimate]:
    """Measure each kind of model there is among the jobs once, and reckon the rest."""
    kinds = {_kind(job): job for job in jobs}
    paces = {
        kind: measure(job, threads) for kind, job in track(kinds.items(), len(kinds), "measuring")
    }
    return [_reckon(job, paces[_kind(job)]) for job in jobs]


def _kind(job: Job) -> tuple[str, int]:
    return repr(_trained(job).model), _step_size(job)


def _trained(job: Job) -> Settings:
    """With the architecture that is trained."""
    settings = job.settings
    if job.kind != "pretrain":
        return settings
    model = settings.model.model_copy(update={"architecture": "agnostic"})
    return settings.model_copy(update={"model": model})


def _step_size(job: Job) -> int:
    table: Playing | Training = getattr(job.settings, job.kind)
    return table.step_size if isinstance(table, Playing) else table.posts


def measure(job: Job, threads: int) -> Pace:
    """In a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        recipe.write_text(_trained(job).to_toml(), encoding="utf-8")
        program = [sys.executable, "-m", __name__, str(job.corpus.path), str(recipe)]
        done = subprocess.run(
            [*program, str(_step_size(job))],
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise FirehoseError(f"{job.name} cannot be measured: {done.stderr.strip()[-300:]}")
    return Pace(*json.loads(done.stdout))


def _reckon(job: Job, pace: Pace) -> Estimate:
    posts = job.corpus.manifest.posts
    held_out = posts["validation"] + posts["test"]
    if job.kind == "play":
        play = job.settings.play
        rounds = len(job.corpus.stream(play.posts, play.hours))
        candidates = (play.steps + 1) * play.scored if play.optimizer == "congrad" else 0
        seconds = rounds * (play.steps * pace.step + candidates * pace.score)
        seconds += (posts["train"] + held_out + BUCKETS * EACH) * pace.score
        room = _room(play.memory, job) + _room(play.validation, job)
    else:
        training: Training = getattr(job.settings, job.kind)
        steps = -(-posts["train" if job.kind == "offline" else "pretrain"] // training.posts)
        seconds = training.epochs * (steps * pace.step + posts["validation"] * pace.score)
        seconds += posts["test"] * (1 + OTHERS) * pace.score * (job.kind == "offline")
        room = 0
    return Estimate(job, seconds / 3600, pace.memory + room)


def _room(plan: BufferPlan, job: Job) -> int:
    """The bytes of a full buffer."""
    posts = (plan.per_user or 0) * job.corpus.manifest.users if plan.posts is None else plan.posts
    return posts * (2 * job.settings.model.max_tokens + 18)


def _measured(corpus: Corpus, settings: Settings, step_size: int) -> Pace:
    from firehose.models.personal import Personal
    from firehose.optim.adam import Adam

    model = Personal(settings.model, corpus.vocabulary.size)
    model.move_to(settings.compute.find_device())
    model.users.take(np.arange(corpus.manifest.users), learn=True)
    adam = Adam(model, 1e-6)
    train, generator = corpus.splits["train"], np.random.default_rng(0)

    def step() -> None:
        adam.step(model.train().gradient(train.batch(_some(step_size))))

    def score() -> None:
        model.pay(train.batch(_some(AT_ONCE)))

    def _some(posts: int) -> np.ndarray:
        return generator.integers(0, len(train), posts)

    seconds = _time(step), _time(score) / AT_ONCE
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Pace(*seconds, kilobytes * (1 if sys.platform == "darwin" else 1024))


def _time(work: Callable[[], None]) -> float:
    """The median of a few times, once it is warm."""
    times = []
    for _ in range(REPEATS + 2):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return float(np.median(times[2:]))


if __name__ == "__main__":
    _corpus, _recipe, _posts = sys.argv[1:]
    _pace = _measured(Corpus(_corpus), make_settings(Path(_recipe)), int(_posts))
    sys.stdout.write(json.dumps(_pace))
