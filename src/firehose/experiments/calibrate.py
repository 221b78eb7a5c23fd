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
from firehose.game.limits import buffer_bytes
from firehose.game.playing import POINTS
from firehose.game.scoring import AT_ONCE, BUCKETS, EACH
from firehose.game.settings import Settings, make_settings, taking_steps
from firehose.optim.rule import RULES
from firehose.progress import track
from firehose.report.words import duration

REPEATS = 5


class Pace(NamedTuple):
    """What one kind of model costs."""

    step: float  # seconds of a gradient step
    score: float  # seconds to score a post
    memory: int  # bytes, of a whole process


class Estimate(NamedTuple):
    """What a job will cost."""

    seconds: float
    memory: int  # bytes

    def told(self) -> tuple[str, str]:
        """The time, and megabytes."""
        return duration(self.seconds), f"{self.memory / 2**20:,.0f}"


def estimate(jobs: Sequence[Job], threads: int) -> dict[str, Estimate]:
    """Measure each kind of model there is among the jobs once, and reckon the rest; by key."""
    kinds = {_kind(job): job for job in jobs}
    paces = {}
    for kind, job in track(kinds.items(), len(kinds), "measuring"):
        paces[kind] = measure(job, threads)
    return {job.key: _reckon(job, paces[_kind(job)]) for job in jobs}


def _kind(job: Job) -> str:
    """What decides the pace."""
    settings, step_size = _measurable(job)
    return repr((settings.model, settings.perceptron, settings.pictures, step_size))


def _measurable(job: Job) -> tuple[Settings, int]:
    """The settings with the architecture that is trained, and the posts of a step."""
    settings = job.settings
    if job.kind == "play":
        return settings, settings.play.step_size
    if job.kind == "offline":
        return settings, settings.offline.posts
    model = settings.model.model_copy(update={"architecture": "agnostic"})
    return settings.model_copy(update={"model": model}), settings.pretrain.posts


def measure(job: Job, threads: int) -> Pace:
    """In a process of its own."""
    settings, step_size = _measurable(job)
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        recipe.write_text(settings.to_toml(), encoding="utf-8")
        own = [str(job.corpus.path), str(recipe), str(step_size)]
        program = [sys.executable, "-m", __name__, *own]
        env = os.environ | {"OMP_NUM_THREADS": str(threads)}
        done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FirehoseError(f"{job.name} cannot be measured: {done.stderr.strip()[-300:]}")
    return Pace(*json.loads(done.stdout))


def _reckon(job: Job, pace: Pace) -> Estimate:
    steps, scored, room = _game(job) if job.kind == "play" else (*_training(job), 0)
    return Estimate(steps * pace.step + scored * pace.score, pace.memory + room)


def _training(job: Job) -> tuple[int, int]:
    """Steps, and posts that are scored."""
    assert isinstance(job.corpus, Corpus)
    posts, training = job.corpus.manifest.posts, getattr(job.settings, job.kind)
    steps = -(-posts["train" if job.kind == "offline" else "pretrain"] // training.posts)
    tested = posts["test"] * (1 + OTHERS) if job.kind == "offline" else 0
    return training.epochs * steps, training.epochs * posts["validation"] + tested


def _game(job: Job) -> tuple[int, int, int]:
    """Steps, posts that are scored, and bytes of the full buffers."""
    play, corpus = job.settings.play, job.corpus
    if isinstance(corpus, Corpus):
        posts, users = corpus.manifest.posts, corpus.manifest.users
        rounds = len(open_stream(corpus, job.settings))
        room = buffer_bytes(job.settings, users, posts["train"])
        looked_at = sum(posts[split] for split in ("train", "validation", "test")) + BUCKETS * EACH
    else:
        sizes = _size_with_pictures(corpus.path, corpus.plan, play.posts)
        rounds, looked_at, tasks, pictures, width = sizes
        room = buffer_bytes(job.settings, tasks, pictures, width)
    compared = getattr(taking_steps(play.optimizer), "validation_batch", 0)
    candidates = rounds * (play.steps + 1) * compared
    return rounds * play.steps, candidates + looked_at, sum(room.values())


@cache  # the same for every method and seed, and the pictures themselves are not kept
def _size_with_pictures(path: Path, plan: PicturePlan, posts: int) -> tuple[int, ...]:
    """Rounds, pictures that are scored, tasks, pictures, and bytes of a picture in a buffer."""
    corpus = PictureCorpus(path, plan)
    tasks, test = len(corpus.task_sizes), sum(map(len, corpus.tasks.test))
    looked_at = sum(corpus.task_sizes) + (POINTS + tasks) * test
    pictures = sum(corpus.task_sizes)
    return len(corpus.stream(posts)), looked_at, tasks, pictures, corpus.tasks.pixels + 17


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

    seconds = _time(step), _time(lambda: model.pay(some(AT_ONCE))) / AT_ONCE
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Pace(*seconds, kilobytes * (1 if sys.platform == "darwin" else 1024))


def _time(work: Callable[[], object]) -> float:
    """The median of a few times, once it is warm."""
    times = []
    for _ in range(REPEATS + 2):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return float(np.median(times[2:]))


if __name__ == "__main__":
    _path, _recipe, _posts = sys.argv[1:]
    sys.stdout.write(
        json.dumps(_measured(_path, make_settings(Path(_recipe), trust=True), int(_posts)))
    )
