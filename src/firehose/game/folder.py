"""The folder of a run, and ``run.json`` in it: what is run, on what, from where, by which code.

What a run depends on is known by content, and found by a path that is relative to the run's folder,
or else by the absolute one: a run can be moved, alone or together with its corpus.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import firehose
from firehose.config import marked
from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game.assembly import AnyCorpus, open_any
from firehose.game.scoring import costs, write_costs
from firehose.game.settings import Kind, Settings
from firehose.machine import code_version, machine
from firehose.models.companion import Companion
from firehose.models.model import Payer
from firehose.models.personal import ModelPlan, Personal
from firehose.models.store import WEIGHTS, Trained, find_model, read_card, save
from firehose.parallel.group import first
from firehose.plugins import checksum, own_kinds, source_file
from firehose.storage.checkpoints import Checkpoints
from firehose.storage.files import sync, write_whole
from firehose.storage.locks import LockedError, unchanged
from firehose.storage.seals import Record

FORMAT: Literal["firehose run"] = "firehose run"
SCHEMA = 3
REPLACED = ".run.json.replaced"  # run.json while what it describes is being removed
# Of the machine: the last bits depend on them.
DECISIVE = ("processor", "gpu", "processes", "threads", "torch")


class Place(Record):
    """Something that a run depends on: where it is, and the checksum it must have."""

    relative: str  # to the run's folder
    absolute: str
    seal: str

    @classmethod
    def of(cls, path: Path, seal: str, folder: Path) -> "Place":
        """Describe the place of ``path`` for a run in ``folder``."""
        relative = os.path.relpath(path.resolve(), folder.resolve())
        return cls(relative=relative, absolute=str(path.resolve()), seal=seal)

    def candidates(self, folder: Path) -> list[Path]:
        """The paths at which it may be now that the run is in ``folder``."""
        return [path for path in (folder / self.relative, Path(self.absolute)) if path.exists()]


class RunCard(Record):
    """What ``run.json`` says."""

    format: Literal["firehose run"] = FORMAT
    schema_version: int = SCHEMA
    kind: Kind
    version: str
    code: str  # the version of the sources that decide results; several, if it went on with others
    machine: dict[str, str | int]
    device: str
    split: str  # the posts that are learned from
    corpus: Place
    start: Place | None  # the pretrained model that it began with; not needed to go on
    plugins: dict[str, Place]  # files of the user's, by the kind that names them
    settings: dict[str, dict[str, Any]]
    checkpoint_every: float
    tensorboard: bool

    def origin(self) -> dict[str, Any]:
        """How a model was made, for its own card: nothing about where things lie."""
        where = {"corpus": self.corpus.seal, "start": self.start and self.start.seal}
        names = ("kind", "version", "code", "machine", "device", "split", "settings")
        return {name: getattr(self, name) for name in names} | where

    def write(self, folder: Path) -> None:
        """Write ``run.json``."""
        write_json(folder / "run.json", self.model_dump(mode="json"))

    def differences(self, device: str) -> list[str]:
        """What the run was begun with that is otherwise here, and may decide the last bits."""
        alone: dict[str, str | int] = {"processes": 1}
        then = alone | self.machine | {"device": self.device}
        now = alone | machine() | {"device": device}
        return [
            f"{name} {then.get(name, 'none')} (here {now.get(name, 'none')})"
            for name in (*DECISIVE, "device")
            if then.get(name) != now.get(name)
        ]


class Run(NamedTuple):
    """A run: its folder, what ``run.json`` says, and what it depends on."""

    folder: Path
    card: RunCard
    corpus: AnyCorpus
    settings: Settings
    start: str | Path | None = None  # a pretrained model to begin with

    def with_model(self, plan: ModelPlan) -> "Run":
        """The run with the sizes of its model: what it began with is not needed again."""
        tables = self.card.settings | {"model": plan.public()}
        return self._replace(
            card=self.card.model_copy(update={"settings": tables}),
            settings=self.settings.model_copy(update={"model": plan}),
            start=None,
        )

    def save_model(self, model: Personal, beside: Companion | None = None) -> None:
        """Save the final model, and what predicts with it, if more does."""
        assert isinstance(self.corpus, Corpus)
        trained = Trained.of_corpus(model.eval(), self.corpus, self.card.origin(), beside)
        save(trained, self.folder / "model", replace=True)

    def score(self, payer: Payer) -> None:
        """Write what held-out posts cost the final model, or a predictor around it."""
        assert isinstance(self.corpus, Corpus)
        for split in ("validation", "test"):
            paid = costs(payer, self.corpus.splits[split], f"{split} posts")
            first(write_costs, self.folder, split, paid)


def new_run(  # noqa: PLR0913, PLR0917 (a field each)
    kind: Kind,
    corpus: AnyCorpus | str | Path,
    out: str | Path,
    settings: Settings,
    start: str | Path | None = None,
    split: str = "train",
    checkpoint_every: float = 300,
    tensorboard: bool = False,
) -> Run:
    """Describe a run that is about to begin; writes nothing."""
    folder, opened, begun = Path(out), open_any(corpus, settings), None
    if start is not None:
        found = find_model(Path(start))
        begun = Place.of(found, read_card(found).files[WEIGHTS].sha256, folder)
    kinds = own_kinds(settings.public()["play"]) if kind == "play" else []
    card = RunCard(
        kind=kind,
        version=firehose.__version__,
        code=code_version(),
        machine=machine(),
        device=str(settings.compute.find_device()),
        split=split,
        corpus=Place.of(opened.path, opened.seal(), folder),
        start=begun,
        plugins={own: Place.of(source_file(own), checksum(own), folder) for own in kinds},
        settings=settings.public(),
        checkpoint_every=checkpoint_every,
        tensorboard=tensorboard,
    )
    return Run(folder, card, opened, settings, start)


def checkpoints_of(folder: Path) -> Checkpoints:
    """The checkpoints of a run; who holds them is the only one to change anything in the folder."""
    return Checkpoints(folder / "checkpoints")


def refuse_taken(folder: Path, replace: bool) -> None:
    """Refuse a folder that has anything in it but a run that may be replaced, or its leftovers."""
    if (folder / "run.json").is_file():
        if not replace:
            raise FirehoseError(
                f"{folder} exists already; go on with `firehose resume {folder}`, choose another "
                "--out, or add --replace."
            )
    elif folder.exists() and not is_leftover(folder):
        raise FirehoseError(f"{folder} exists and is not a run; choose another --out.")


def is_leftover(folder: Path) -> bool:
    """Whether a folder holds nothing, or what is left of a run that never began or was removed.

    A run begins with its first checkpoint; ``run.json`` appears when that is on disk.
    """
    checkpoints = checkpoints_of(folder)
    ours = {checkpoints.folder, *folder.glob(".run.json.*")}
    states = {checkpoints.folder / "partial", *checkpoints.places()}
    within = checkpoints.folder.iterdir() if checkpoints.folder.is_dir() else ()
    is_unbegun = folder.is_dir() and set(folder.iterdir()) <= ours and set(within) <= states
    return is_unbegun or (folder / REPLACED).is_file()


def clear(folder: Path) -> None:
    """Remove the run in a folder whose lock is held; the folder of checkpoints, locked, stays.

    First ``run.json`` gets another name, by which a folder that is half empty is known as a
    leftover: a run can be begun in it.
    """
    replaced = folder / REPLACED
    if (folder / "run.json").exists():
        (folder / "run.json").replace(replaced)
        sync(folder)
    checkpoints = checkpoints_of(folder).folder
    for path in {*folder.iterdir(), *checkpoints.iterdir()} - {checkpoints, replaced}:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    sync(folder)
    replaced.unlink(missing_ok=True)


def refuse_own_parts(run: Run) -> None:
    """Refuse to replace a folder that has something in it that the new run needs."""
    folder, card = run.folder.resolve(), run.card
    needed = [card.corpus, *([card.start] if card.start else []), *card.plugins.values()]
    for place in needed:
        if Path(place.absolute).is_relative_to(folder):
            raise FirehoseError(
                f"{place.absolute}, which the run needs, is in {run.folder} and would be removed "
                "with what is there; choose another --out."
            )


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Let nobody change a run while it is read; raises an error where it is going on."""
    with ExitStack() as lock:
        try:
            lock.enter_context(unchanged(checkpoints_of(folder).folder))
        except LockedError:
            raise FirehoseError(f"{folder} is going on: wait until it is over.") from None
        yield


def read_run(folder: Path) -> RunCard:
    """Read ``run.json``; raises FirehoseError where there is none, or it cannot be used."""
    file = folder / "run.json"
    if not file.is_file():
        what = "does not exist" if not folder.exists() else "is not a run: no run.json in it"
        raise FirehoseError(f"{folder} {what}; begin one with `firehose play … --out {folder}`.")
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        if body["format"] == FORMAT and body.get("schema_version") != SCHEMA:
            raise FirehoseError(
                f"{folder} is a run of another version of Firehose; run it again, or use the "
                "Firehose that made it."
            )
        return RunCard.model_validate(body)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FirehoseError(f"{file} is not the file of a run: it cannot be read.") from None


def open_run(folder: Path, corpus: str | Path | None = None, trust: bool = False) -> Run:
    """Open a run that was begun; ``corpus`` says where its corpus is now, if it was moved.

    Code that ``run.json`` names must be remembered as this user's, or is run only with ``trust``.
    """
    card = read_run(folder)
    settings = _settings(folder, card, trust)
    return Run(folder, card, find_corpus(folder, card, corpus), settings)


def find_corpus(folder: Path, card: RunCard, corpus: str | Path | None = None) -> AnyCorpus:
    """The corpus of a run, at ``corpus`` if it was moved there; no code of the user's is run."""
    paths = [Path(corpus)] if corpus else card.corpus.candidates(folder)
    if not paths:
        raise FirehoseError(
            f"{card.corpus.absolute}, the corpus of {folder}, is not there any more; "
            "say where it is: --corpus DIR."
        )
    pictures, play = card.settings.get("pictures"), card.settings.get("play", {})
    played = {"pictures": pictures, "play": {"seed": play.get("seed", 0)}}
    settings = Settings.of(played, str(folder / "run.json"))
    for path in paths:
        opened = open_any(path, settings)
        if opened.seal() == card.corpus.seal:
            return opened
    raise FirehoseError(f"{paths[0]} is not the corpus that {folder} was begun with.")


def _settings(folder: Path, card: RunCard, trust: bool) -> Settings:
    """The settings of a run; files of the user's are found where they are now."""
    tables = card.settings
    for kind, place in card.plugins.items():
        _, _, name = kind.rpartition(":")
        found = [f"{path}:{name}" for path in place.candidates(folder) if path.is_file()]
        same = [each for each in found if checksum(each) == place.seal]
        if not same:
            how = "has changed" if found else "is not there any more"
            raise FirehoseError(
                f"{kind}, which {folder} was begun with, {how}; bring it back to go on."
            )
        tables = _renamed(tables, kind, same[0])
    origin = str(folder / "run.json")
    return Settings.of(tables if trust else marked(tables, origin), origin)


def _renamed(value: Any, kind: str, found: str) -> Any:
    """The tables with one kind replaced wherever it is named."""
    if isinstance(value, dict):
        return {name: _renamed(each, kind, found) for name, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, kind, found) for each in value]
    return found if value == kind else value


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write plain values into a file of a run."""
    write_whole(path, f"{json.dumps(values, indent=1)}\n".encode())
