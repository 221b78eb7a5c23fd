"""The runs of experiments as jobs: each known by what it is, so that none is done twice."""

import hashlib
import itertools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from firehose.config import flattened, merge, nested, read_recipe, together
from firehose.data.corpus import Corpus, open_corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.errors import FirehoseError
from firehose.experiments.recipe import Experiment
from firehose.game.assembly import AnyCorpus
from firehose.game.folder import read_run
from firehose.game.result import is_over
from firehose.game.settings import Kind, Settings, kinds_of
from firehose.machine import code_version
from firehose.models.device import Compute
from firehose.plugins import checksum, own_kinds
from firehose.storage.checkpoints import Checkpoints

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
    called: str = ""  # in an experiment; no part of what it is

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that its result depends on, but the code."""
        tables = self.settings.public()
        identity = self._decisive(tables)
        if self.kind == "play":
            identity["plugins"] = {own: checksum(own) for own in own_kinds(tables["play"])}
        start = self.start.identity if self.start else None
        return {"kind": self.kind, "corpus": self.corpus.seal(), "start": start} | identity

    def _decisive(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Those of all tables of settings that its result depends on."""
        names = [self.kind, "perceptron" if self.settings.pictures else "model"]
        names += ["compute"] if self.settings.compute != Compute() else []
        found = {name: tables.get(name) for name in names}
        if self.kind == "pretrain":  # others begin with it, whatever their architecture is
            found["model"] = {k: v for k, v in tables["model"].items() if k != "architecture"}
        return found

    @cached_property
    def key(self) -> str:
        """A short name for the identity and the code."""
        text = json.dumps([self.identity, code_version()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def seed(self) -> int:
        """The seed of everything random in it."""
        return int(getattr(self.settings, self.kind).seed)

    @cached_property
    def label(self) -> str:
        """What is run, for people and folders, without the key."""
        play = self.settings.play
        kinds = (play.learner.kind, *kinds_of(play.optimizer))
        methods = [kind.rpartition(":")[2] for kind in kinds]
        parts = {
            "pretrain": ["pretrain"],
            "offline": ["offline", self.settings.model.architecture],
            "play": [*methods, f"{play.steps}-steps"],
        }[self.kind]
        corpus = [self.corpus.name] if self.settings.pictures else []
        return "-".join([*corpus, *parts, f"seed-{self.seed}"])

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.older or f"{self.label}-{self.key}"

    @cached_property
    def facts(self) -> dict[str, str]:
        """The settings that it depends on, by their dotted names, as texts; without the seed.

        The kind of a plug-in has two names: ``play.learner`` is short for ``play.learner.kind``.
        """
        names = ["pictures", "perceptron"] if self.settings.pictures else ["model", "compute"]
        names += [self.kind, "pretrain"] if self.start else [self.kind]
        tables = self.settings.public()
        chosen = flattened({name: tables[name] for name in names})
        flat = {name: str(value) for name, value in chosen.items()}
        del flat[f"{self.kind}.seed"]
        kinds = {name[:-5]: value for name, value in flat.items() if name.endswith(".kind")}
        called = {"name": self.called} if self.called else {}
        return {"kind": self.kind} | called | flat | kinds

    @property
    def folder(self) -> Path:
        """The folder of its run."""
        return self.store / self.name

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return is_over(self.folder)

    @property
    def is_held(self) -> bool:
        """Whether a process is doing it."""
        return Checkpoints(self.folder / "checkpoints").are_held()

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
        """The command that does what an earlier attempt has left.

        Code of the user's was allowed when the settings were made, for this process and for others.
        """
        trust = ["--trust"] if own_kinds(self.settings.public()["play"]) else []
        if (self.folder / "run.json").is_file():
            return ["resume", str(self.folder), "--corpus", str(self.corpus.path), *trust]
        return [*self.command(), *trust]

    def done_before(self) -> str | None:
        """The folder's name of the same job, not done yet, as another version of the code did it.

        The newest, if there are several; None: there is none.
        """
        if self.is_done:
            return None

        def decisive(recipe: str) -> tuple[Any, ...]:
            tables = tomllib.loads(recipe)
            return self._decisive(tables), tables.get("compute")

        own, fitting = decisive(self.settings.to_toml()), []
        for recipe in self.store.glob(f"{self.label}-*.toml"):
            result = recipe.with_suffix("") / "result.json"
            same = is_over(result.parent) and decisive(recipe.read_text(encoding="utf-8")) == own
            if same and self._is_in(result.parent):
                fitting.append(result)
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
        mine = self.corpus.seal(), self.identity.get("plugins", {})
        return (card.corpus.seal, plugins) == mine


def make_jobs(
    experiment: Experiment,
    corpus: str | Path | Corpus,
    scale: str | Path,
    seeds: int,
    store: Path,
    trust: bool = False,
) -> list[Job]:
    """The jobs of an experiment, or a sentence about what is wrong with one of them."""
    base, origin = read_recipe(scale, trust), f"{experiment.title!r} at scale {scale}"
    path = corpus.path if isinstance(corpus, Corpus) else Path(corpus)
    posts = cache(lambda: open_corpus(corpus))  # not there, where all is played with pictures

    def settings_of(combination: Mapping[str, Any]) -> Settings:
        """The settings of the scale, but for some that are given by their dotted names."""
        known = (
            nested(name, posts().manifest.users if value == USERS else value)
            for name, value in sorted(combination.items(), key=lambda item: item[0].count("."))
        )
        return Settings.of(merge(base, together(*known)), origin)

    jobs = []
    for runs in experiment.runs:
        for combination, seed in itertools.product(runs.combinations(), range(seeds)):
            settings = settings_of(combination | {f"{runs.kind}.seed": seed})
            if plan := settings.pictures:
                if runs.kind != "play":
                    raise FirehoseError(
                        f"{origin}: with pictures there are only runs of kind play."
                    )
                pictures = PictureCorpus(path, plan, settings.play.seed)
                jobs.append(Job("play", settings, pictures, store, called=runs.name))
                continue
            start = None
            if posts().manifest.posts.get("pretrain"):
                shared = {n: v for n, v in combination.items() if n.startswith(PRETRAINED)}
                start = Job("pretrain", settings_of(shared), posts(), store)
            jobs.append(Job(runs.kind, settings, posts(), store, start, called=runs.name))
    return jobs


def with_starts(jobs: list[Job]) -> list[Job]:
    """The jobs and those they begin with, each once, in an order in which they can be done."""
    found: dict[str, Job] = {}
    for job in jobs:
        for each in (job.start, job):
            if each and found.setdefault(each.key, each).identity != each.identity:
                raise FirehoseError(f"Two different jobs are called {each.key}.")
    return sorted(found.values(), key=lambda job: job.start is not None)
