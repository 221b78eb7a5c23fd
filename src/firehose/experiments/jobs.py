"""The runs of experiments as jobs: each known by what it is, so that none is done twice."""

import hashlib
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from firehose.config import flattened, merge, nested, read_recipe
from firehose.data.corpus import Corpus, open_corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.errors import FirehoseError
from firehose.experiments.recipe import Experiment
from firehose.game.assembly import AnyCorpus
from firehose.game.folder import read_run
from firehose.game.settings import Kind, Settings
from firehose.machine import code_version
from firehose.models.device import Compute
from firehose.plugins import checksum, own_kinds

USERS = "{users}"  # as a value in a recipe: the number of the corpus' users
# Settings that a pretrained model hands on to all that begin with it.
PRETRAINED = ("model.shape.", "model.max_tokens", "pretrain.", "compute.")


@dataclass(frozen=True)
class Job:
    """One training or one game."""

    kind: Kind
    settings: Settings
    corpus: AnyCorpus
    store: Path  # the folder of all jobs
    start: "Job | None" = None  # makes the model that this one begins with
    older: str | None = None  # the folder of the same job, done by another version of the code

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that its result depends on, but the code."""
        tables = self.settings.public()
        identity: dict[str, Any] = {
            "kind": self.kind,
            "corpus": self.corpus.seal(),
            "start": self.start.identity if self.start else None,
            self.kind: tables[self.kind],
        }
        if isinstance(self.corpus, PictureCorpus):
            identity["perceptron"] = tables["perceptron"]
        else:
            identity["model"] = dict(tables["model"])
            if self.kind == "pretrain":
                del identity["model"]["architecture"]
        if self.settings.compute != Compute():
            identity["compute"] = tables["compute"]
        if self.kind == "play":
            identity["plugins"] = {own: checksum(own) for own in own_kinds(tables["play"])}
        return identity

    @cached_property
    def key(self) -> str:
        """A short name for the identity and the code."""
        text = json.dumps([self.identity, code_version()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def seed(self) -> int:
        """The seed of everything random in it."""
        seed: int = getattr(self.settings, self.kind).seed
        return seed

    @cached_property
    def label(self) -> str:
        """What is run, for people and folders, without the key."""
        play, architecture = self.settings.play, self.settings.model.architecture
        learner = play.learner.kind.rpartition(":")[2]
        parts = {
            "pretrain": ["pretrain"],
            "offline": ["offline", architecture],
            "play": [learner, play.optimizer.kind.rpartition(":")[2], f"{play.steps}-steps"],
        }[self.kind]
        if isinstance(self.corpus, PictureCorpus):
            parts = [self.corpus.name, *parts]
        return "-".join([*parts, f"seed-{self.seed}"])

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.older or f"{self.label}-{self.key}"

    @cached_property
    def facts(self) -> dict[str, str]:
        """The settings that it depends on, by their dotted names, as texts; without the seed.

        The kind of a plug-in has two names: ``play.learner`` is short for ``play.learner.kind``.
        """
        pictures = isinstance(self.corpus, PictureCorpus)
        names = ["pictures", "perceptron"] if pictures else ["model", "compute"]
        names += [self.kind, *(["pretrain"] if self.start else [])]
        tables = {name: self.settings.public()[name] for name in names}
        flat = {name: str(value) for name, value in flattened(tables).items()}
        del flat[f"{self.kind}.seed"]
        kinds = {name[:-5]: value for name, value in flat.items() if name.endswith(".kind")}
        return {"kind": self.kind} | flat | kinds

    @property
    def folder(self) -> Path:
        """The folder of its run."""
        return self.store / self.name

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return (self.folder / "result.json").is_file()

    @property
    def checkpoints(self) -> Path:
        """Where its state is while it is being done."""
        return self.folder / "checkpoints"

    @property
    def recipe(self) -> Path:
        """Its settings, for anybody to run it by hand."""
        return self.store / f"{self.name}.toml"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.store / f"{self.name}.log"

    def command(self) -> list[str]:
        """The command that does it."""
        begin = ["--from", str(self.start.folder)] if self.start else []
        recipe = ["--recipe", str(self.recipe)]
        return [self.kind, str(self.corpus.path), *begin, *recipe, "--out", str(self.folder)]

    def left(self) -> list[str]:
        """The command that does what an earlier attempt has left."""
        if (self.folder / "run.json").is_file():
            return ["resume", str(self.folder), "--corpus", str(self.corpus.path)]
        return self.command()

    def done_before(self) -> str | None:
        """The folder's name of the same job, not done yet, as another version of the code did it.

        The newest, if there are several; None: there is none.
        """
        if self.is_done:
            return None
        recipes = [
            recipe
            for recipe in self.store.glob(f"{self.label}-*.toml")
            if recipe.read_text(encoding="utf-8") == self.settings.to_toml()
        ]
        results = [recipe.with_suffix("") / "result.json" for recipe in recipes]
        fitting = [each for each in results if each.is_file() and self._is_in(each.parent)]
        newest = max(fitting, key=lambda each: each.stat().st_mtime, default=None)
        return newest.parent.name if newest else None

    def with_older(self, older: Mapping[str, str]) -> "Job":
        """The job, and the one it begins with, as older versions of the code did them, by key."""
        start = self.start and self.start.with_older(older)
        return replace(self, start=start, older=older.get(self.key))

    def _is_in(self, folder: Path) -> bool:
        """Whether a run with the same settings had the same corpus and files of the user's."""
        try:
            card = read_run(folder)
        except FirehoseError:  # its version had another kind of folder
            return False
        plugins = {kind: place.seal for kind, place in card.plugins.items()}
        return card.corpus.seal == self.corpus.seal() and plugins == self.identity.get(
            "plugins", {}
        )


def program(command: list[str]) -> list[str]:
    """A command of Firehose as a process to start."""
    return [sys.executable, "-m", "firehose", *command]


def spelled(command: list[str]) -> str:
    """A command as one would type it."""
    return shlex.join(["firehose", *command])


def make_jobs(
    experiment: Experiment, corpus: str | Path | Corpus, scale: str | Path, seeds: int, store: Path
) -> list[Job]:
    """The jobs of an experiment, or a sentence about what is wrong with one of them."""
    values, origin = read_recipe(scale), f"{experiment.title!r} at scale {scale}"
    posts = cache(lambda: open_corpus(corpus))  # not there, where all is played with pictures

    def settings_of(combination: Mapping[str, Any]) -> Settings:
        return _settings(values, combination, posts, origin)

    jobs = []
    for runs in experiment.runs:
        for combination in runs.combinations():
            shared = {n: v for n, v in combination.items() if n.startswith(PRETRAINED)}
            for seed in range(seeds):
                settings = settings_of(combination | {f"{runs.kind}.seed": seed})
                if settings.pictures and runs.kind != "play":
                    raise FirehoseError(
                        f"{origin}: with pictures there are only runs of kind play."
                    )
                own = _pictures(settings, corpus) or posts()
                start = None
                if isinstance(own, Corpus) and own.manifest.posts.get("pretrain"):
                    start = Job("pretrain", settings_of(shared), own, store)
                jobs.append(Job(runs.kind, settings, own, store, start))
    return jobs


def _pictures(settings: Settings, corpus: str | Path | Corpus) -> PictureCorpus | None:
    """The tasks that a job is played on, made of the pictures in a folder; None: it has posts."""
    path = corpus.path if isinstance(corpus, Corpus) else Path(corpus)
    plan = settings.pictures
    return PictureCorpus(path, plan, settings.play.seed) if plan else None


def _settings(
    base: Mapping[str, Any],
    combination: Mapping[str, Any],
    posts: Callable[[], Corpus],
    origin: str,
) -> Settings:
    """The settings of a scale, but for some that are given by their dotted names.

    The value ``"{users}"`` stands for the number of users of the corpus.
    """
    values = dict(base)
    for name, value in combination.items():
        known = posts().manifest.users if value == USERS else value
        values = merge(values, nested(name, known))
    return Settings.of(values, origin)


def with_starts(jobs: list[Job]) -> list[Job]:
    """The jobs and those they begin with, each once, in an order in which they can be done."""
    found: dict[str, Job] = {}
    for job in jobs:
        for each in (job.start, job):
            if each and found.setdefault(each.key, each).identity != each.identity:
                raise FirehoseError(f"Two different jobs are called {each.key}.")
    return sorted(found.values(), key=lambda job: job.start is not None)
