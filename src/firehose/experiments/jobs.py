"""The runs of experiments as jobs: each known by what it is, so that none is done twice."""

import hashlib
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from firehose.config import merge, read_recipe
from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.experiments.recipe import Experiment
from firehose.game.settings import Settings
from firehose.methods.learners.all import make_learner
from firehose.models.device import Compute
from firehose.plugins import checksum

# Settings that a pretrained model hands on to all that begin with it.
PRETRAINED = ("model.shape.", "model.max_tokens", "pretrain.", "compute.")


@dataclass(frozen=True)
class Job:
    """One training or one game."""

    kind: Literal["pretrain", "offline", "play"]
    settings: Settings
    corpus: Corpus
    store: Path  # the folder of all jobs
    start: "Job | None" = None  # makes the model that this one begins with

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that its result depends on."""
        tables, files = self.settings.public(), self.corpus.manifest.files
        model = dict(tables["model"])
        if self.kind == "pretrain":
            del model["architecture"]
        identity = {
            "kind": self.kind,
            "corpus": {name: f.sha256 for name, f in files.items() if name != "config.toml"},
            "start": self.start.key if self.start else None,
            "model": model,
            self.kind: tables[self.kind],
        }
        if self.settings.compute != Compute():
            identity["compute"] = tables["compute"]
        learner = self.settings.play.learner
        if self.kind == "play" and ":" in learner:
            identity["learner"] = checksum(learner, "learner")
        return identity

    @cached_property
    def key(self) -> str:
        """A short name for the identity."""
        text = json.dumps(self.identity, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def seed(self) -> int:
        """Of everything random in it."""
        seed: int = getattr(self.settings, self.kind).seed
        return seed

    @cached_property
    def name(self) -> str:
        """For people and folders."""
        play, architecture = self.settings.play, self.settings.model.architecture
        learner = play.learner.rpartition(":")[2]
        parts = {
            "pretrain": ["pretrain"],
            "offline": ["offline", architecture],
            "play": [learner, play.optimizer, f"{play.steps}-steps"],
        }[self.kind]
        return "-".join([*parts, f"seed-{self.seed}", self.key])

    @cached_property
    def facts(self) -> dict[str, str]:
        """The settings that it depends on, by their dotted names, as texts; without the seed."""
        names = ("model", self.kind, "compute", *(["pretrain"] if self.start else []))
        tables = {name: self.settings.public()[name] for name in names}
        flat = dict(_flat(tables))
        del flat[f"{self.kind}.seed"]
        return {"kind": self.kind} | flat

    @property
    def folder(self) -> Path:
        """Where its result is."""
        return self.store / self.name

    @property
    def model(self) -> Path:
        """Where the model it makes is."""
        return self.folder if self.kind == "pretrain" else self.folder / "model"

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        last = {"pretrain": "model.json", "offline": "users.parquet", "play": "result.json"}
        return (self.folder / last[self.kind]).is_file()

    @property
    def checkpoints(self) -> Path:
        """Where its state is while it is being done."""
        if self.kind == "play":
            return self.folder / "checkpoints"
        return self.model.parent / f"{self.model.name}.training"

    @property
    def recipe(self) -> Path:
        """Its settings, for anybody to run it by hand."""
        return self.store / f"{self.name}.toml"

    @property
    def log(self) -> Path:
        """What it said."""
        return self.store / f"{self.name}.log"

    def commands(self) -> list[list[str]]:
        """What does it, one after another."""
        corpus, recipe = str(self.corpus.path), ["--recipe", str(self.recipe)]
        begin = ["--from", str(self.start.model)] if self.start else []
        out = self.folder if self.kind == "play" else self.model
        make = [self.kind, corpus, *begin, *recipe, "--out", str(out)]
        if self.kind != "offline":
            return [make]
        values = ["--out", str(self.folder / "users.parquet")]
        device = ["--device", self.settings.compute.device]
        return [make, ["evaluate", str(self.model), corpus, *device, *values]]

    def left(self) -> list[list[str]]:
        """What is left of that after an earlier attempt; a training goes on by itself."""
        if self.kind == "play" and (self.folder / "run.json").is_file():
            return [["resume", str(self.folder)]]
        trained = self.kind == "offline" and (self.model / "model.json").is_file()
        return self.commands()[int(trained) :]


def program(command: list[str]) -> list[str]:
    """A command of Firehose as a process to start."""
    return [sys.executable, "-m", "firehose", *command]


def spelled(command: list[str]) -> str:
    """A command as one would type it."""
    return shlex.join(["firehose", *command])


def make_jobs(
    experiment: Experiment, corpus: Corpus, scale: str | Path, seeds: int, store: Path
) -> list[Job]:
    """The jobs of an experiment, or a sentence about what is wrong with one of them."""
    base = read_recipe(scale)
    origin = f"{experiment.title!r} at scale {scale}"
    jobs = []
    for runs in experiment.runs:
        for combination in runs.combinations():
            start = None
            if corpus.manifest.posts.get("pretrain"):
                shared = {n: value for n, value in combination.items() if n.startswith(PRETRAINED)}
                start = Job("pretrain", _settings(base, shared, origin), corpus, store)
            for seed in range(seeds):
                seeded = combination | {f"{runs.kind}.seed": seed}
                settings = _settings(base, seeded, origin)
                if runs.kind == "play":
                    play = settings.play
                    make_learner(play.learner, play.step_size)  # or say what is wrong with it
                jobs.append(Job(runs.kind, settings, corpus, store, start))
    return jobs


def _settings(base: Mapping[str, Any], combination: Mapping[str, Any], origin: str) -> Settings:
    """Those of a scale, but for some that are given by their dotted names."""
    values = dict(base)
    for name, value in combination.items():
        nested: Any = value
        for part in reversed(name.split(".")):
            nested = {part: nested}
        values = merge(values, nested)
    return Settings.of(values, origin)


def with_starts(jobs: list[Job]) -> list[Job]:
    """The jobs and those they begin with, each once, in an order in which they can be done."""
    found: dict[str, Job] = {}
    for job in jobs:
        for each in (job.start, job):
            if each and found.setdefault(each.key, each).identity != each.identity:
                raise FirehoseError(f"Two different jobs are called {each.key}.")
    return sorted(found.values(), key=lambda job: job.start is not None)


def _flat(tables: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    flat = []
    for name, value in tables.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{name}.")
        else:
            flat.append((prefix + name, str(value)))
    return flat
