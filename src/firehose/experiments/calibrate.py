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
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from firehose.batch import Batch
from firehose.data.corpus import Corpus, Split
from firehose.data.pictures.corpus import PictureCorpus, PicturePlan
from firehose.errors import FirehoseError
from firehose.experiments.jobs import Job
from firehose.game.assembly import make_model, open_any, open_stream
from firehose.game.evaluate import OTHERS
from firehose.game.playing import POINTS
from firehose.game.scoring import AT_ONCE, BUCKETS, EACH
from firehose.game.settings import Playing, Settings, Training, make_settings
from firehose.optim.rule import RULES
from firehose.plugins import Choice
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
    seconds: float
    memory: int  # bytes


class Size(NamedTuple):
    """How much there is to do in a game, and to keep in mind."""

    rounds: int
    looked_at: int  # posts that are scored, but those that candidates are compared on
    users: int  # or tasks
    width: int  # bytes of a post in a buffer


def estimate(jobs: Sequence[Job], threads: int) -> list[Estimate]:
    """Measure each kind of model there is among the jobs once, and reckon the rest."""
    kinds = {_kind(job): job for job in jobs}
    paces = {
        kind: measure(job, threads) for kind, job in track(kinds.items(), len(kinds), "measuring")
    }
    return [_reckon(job, paces[_kind(job)]) for job in jobs]


def _kind(job: Job) -> tuple[str, int]:
    settings = _trained(job)
    model = settings.perceptron if settings.pictures else settings.model
    return f"{model!r} {settings.pictures!r}", _step_size(job)


def _trained(job: Job) -> Settings:
    """The settings with the architecture that is trained."""
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
    if job.kind == "play":
        return _reckon_game(job, pace)
    assert isinstance(job.corpus, Corpus)
    posts = job.corpus.manifest.posts
    training: Training = getattr(job.settings, job.kind)
    steps = -(-posts["train" if job.kind == "offline" else "pretrain"] // training.posts)
    seconds = training.epochs * (steps * pace.step + posts["validation"] * pace.score)
    seconds += posts["test"] * (1 + OTHERS) * pace.score * (job.kind == "offline")
    return Estimate(job, seconds, pace.memory)


def _reckon_game(job: Job, pace: Pace) -> Estimate:
    play, corpus = job.settings.play, job.corpus
    if isinstance(corpus, Corpus):
        posts, users = corpus.manifest.posts, corpus.manifest.users
        looked_at = sum(posts[split] for split in ("train", "validation", "test")) + BUCKETS * EACH
        rounds = len(open_stream(corpus, job.settings))
        size = Size(rounds, looked_at, users, 2 * job.settings.model.max_tokens + 18)
    else:
        size = _size_with_pictures(corpus.path, corpus.plan, play.posts)
    scored = getattr(play.optimizer, "validation_batch", 0)  # posts, for each candidate
    seconds = size.rounds * (play.steps * pace.step + (play.steps + 1) * scored * pace.score)
    buffers = [play.memory, getattr(play.optimizer, "validation", None)]
    room = sum(_limit(each, size.users) for each in buffers if each is not None) * size.width
    return Estimate(job, seconds + size.looked_at * pace.score, pace.memory + room)


@cache  # the same for every method and seed, and the pictures themselves are not kept
def _size_with_pictures(path: Path, plan: PicturePlan, posts: int) -> Size:
    corpus = PictureCorpus(path, plan)
    tasks, test = len(corpus.task_sizes), sum(map(len, corpus.tasks.test))
    looked_at = sum(corpus.task_sizes) + (POINTS + tasks) * test
    return Size(len(corpus.stream(posts)), looked_at, tasks, corpus.tasks.pixels + 17)


def _limit(settings: Choice, users: int) -> int:
    """The posts of a full buffer."""
    per_user, posts = (getattr(settings, name, None) for name in ("per_user", "posts"))
    return int(posts if posts is not None else (per_user or 0) * users)


def _measured(path: str, settings: Settings, step_size: int) -> Pace:
    corpus = open_any(path, settings)
    model = make_model(corpus, settings)
    if isinstance(corpus, Corpus) and model.users is not None:
        model.users.take(np.arange(corpus.manifest.users), learn=True)
    rule, generator = RULES.make(settings.play.rule, model), np.random.default_rng(0)
    train = corpus.splits["train"] if isinstance(corpus, Corpus) else corpus.tasks.train[0]
    take = train.batch if isinstance(train, Split) else train.select

    def some(count: int) -> Batch:
        return take(generator.integers(0, len(train), count))

    def step() -> None:
        model.train()
        rule.step(model.gradient(some(step_size)))

    def score() -> None:
        model.pay(some(AT_ONCE))

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
    _path, _recipe, _posts = sys.argv[1:]
    sys.stdout.write(json.dumps(_measured(_path, make_settings(Path(_recipe)), int(_posts))))
