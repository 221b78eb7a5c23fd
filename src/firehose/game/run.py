"""A game or a training in a folder: logged, checkpointed, resumable to the same bits.

::

    run/
      run.json       what is run: kind, settings, corpus, start, code
      progress.json  how far it is
      rounds.jsonl   a line for each round of a game (epochs.jsonl: for each epoch of a training)
      paid.f32       what each post of a game's stream cost when it came, in nats
      checkpoints/   the state of everything, the newest two
      tensorboard/   the rounds of a game as curves, if asked for
      model/         the final model, when it is over
      *.f32          what held-out posts, and posts of the past, cost the final model
      result.json    what came of it; it appears last
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Protocol

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.folder import (
    AnyCorpus,
    Options,
    RunCard,
    make_card,
    open_corpus_of,
    read_run,
    run_settings,
)
from firehose.game.round import Broken
from firehose.game.settings import Kind, Settings
from firehose.interrupts import stop_requests
from firehose.machine import code_version
from firehose.optim.clipping import NotFinite
from firehose.progress import measure, say
from firehose.storage.checkpoints import Checkpoints
from firehose.storage.files import write_whole

PROGRESS_EVERY = 1.0  # seconds between two versions of progress.json


class Work(Protocol):
    """What is done in a run's folder: the rounds of a game, or the steps of a training."""

    unit: str  # "round" or "step"

    @property
    def done(self) -> int:
        """Units that are done."""

    @property
    def total(self) -> int:
        """Units in all."""

    def units(self) -> Generator[None]:
        """Do the units that are left; yields after each."""

    def note(self) -> str:
        """How things stand, in a few words."""

    def flush(self) -> None:
        """Bring the logs to where the next checkpoint counts on them."""

    def state(self) -> dict[str, Any]:
        """The state between two units."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; the logs are cut to it."""

    def finish(self) -> Any:
        """Write the model and the result; returns the result."""


def begin(
    kind: Kind,
    corpus: AnyCorpus,
    out: str | Path,
    settings: Settings,
    start: str | Path | None = None,
    split: str = "train",
    options: Options = Options(),  # noqa: B008 (it cannot be changed)
) -> Any:
    """Begin a run in a new folder, and carry it out to its result."""
    folder = Path(out)
    card = make_card(folder, kind, corpus, settings, start, split, options)
    work = make_work(folder, card, corpus, settings, start)  # or say what is wrong before writing
    if isinstance(corpus, Corpus):
        _warn_of_cuts(corpus, work.settings.model.max_tokens)
    if folder.exists():
        if not (folder / "run.json").is_file():
            raise FirehoseError(f"{folder} exists and is not a run; choose another --out.")
        if not options.replace:
            raise FirehoseError(
                f"{folder} exists already; go on with `firehose resume {folder}`, choose another "
                "--out, or add --replace."
            )
        shutil.rmtree(folder)
    # From here on the sizes are the model's, whatever it began with: the start is not needed again.
    card = work.card = card.model_copy(update={"settings": work.settings.public()})
    card.write(folder)
    return _carry_out(folder, card, work, lambda: make_work(folder, card, corpus, work.settings))


def _warn_of_cuts(corpus: Corpus, max_tokens: int) -> None:
    """Say so where more than 1 % of the posts are longer than what is trained on."""
    share = corpus.share_longer(max_tokens)
    if share > 0.01:
        say(
            f"{100 * share:.0f} % of the posts are longer than model.max_tokens = {max_tokens}, "
            "and only their beginnings are learned from; "
            f"--set model.max_tokens={corpus.tokens_covering()} covers 99 % of them."
        )


def resume(run: str | Path, previous: bool = False, corpus: str | Path | None = None) -> Any:
    """Go on with a run from its last checkpoint, to the same bits as if it had never stopped.

    With ``previous``, from the checkpoint before it. ``corpus`` says where the corpus is now, if it
    was moved.
    """
    folder = Path(run)
    card = read_run(folder)
    if (folder / "result.json").is_file():
        raise FirehoseError(f"{folder} is over; its result is {folder / 'result.json'}.")
    if card.code.split()[-1] != (code := code_version()):
        say(f"{folder} was begun by another version of Firehose; this one goes on with it.")
        card = card.model_copy(update={"code": f"{card.code} {code}"})
    settings = run_settings(folder, card)
    opened = open_corpus_of(folder, card, settings, corpus)
    if previous:
        Checkpoints(folder / "checkpoints").drop_newest()

    def make() -> Any:
        return make_work(folder, card, opened, settings)

    return _carry_out(folder, card, make(), make)


def make_work(
    folder: Path,
    card: RunCard,
    corpus: AnyCorpus,
    settings: Settings,
    start: str | Path | None = None,
) -> Any:
    """The work of a run, before its first unit."""
    from firehose.game.playing import make_playing
    from firehose.game.training import Fit

    if card.kind == "play":
        return make_playing(folder, card, corpus, settings, start)
    assert isinstance(corpus, Corpus)
    return Fit.make(folder, card, corpus, settings, start)


def _carry_out(folder: Path, card: RunCard, work: Any, again: Callable[[], Any]) -> Any:
    """Do what the last checkpoint leaves of a run, and finish it."""
    checkpoints = Checkpoints(folder / "checkpoints")
    with checkpoints.held():
        if found := checkpoints.latest():
            card.write(folder)  # it may say that another version of the code goes on
            work.restore(found)
            say(f"Going on after {work.unit} {work.done:,}.")
        else:
            checkpoints.write(0, work.state())
        try:
            _advance(folder, card, work, checkpoints)
        except (NotFinite, Broken) as error:
            good = max(work.done - isinstance(error, Broken), 0)
            raise _rescue(folder, card, again(), checkpoints, good) from None
        return work.finish()


def _advance(
    folder: Path, card: RunCard, work: Work, checkpoints: Checkpoints, until: int | None = None
) -> None:
    """Do the units that are left, or until so many are done, with checkpoints on the way."""
    saved = shown = time.monotonic()
    doing = {"play": "playing", "pretrain": "pretraining", "offline": "training"}[card.kind]
    with (
        measure(work.total, doing) as show,
        stop_requests() as request,
        contextlib.closing(work.units()) as units,
    ):
        for _ in units:
            now = time.monotonic()
            show(work.done, work.note())
            if now - shown >= PROGRESS_EVERY:
                write_progress(folder, work.done, work.total)
                shown = now
            if request.made or now - saved >= card.checkpoint_every:
                _save(work, checkpoints)
                saved = now
            if request.made:
                raise Stopped(
                    f"Stopped after {work.unit} {work.done:,}; `firehose resume {folder}` goes on "
                    "from there."
                )
            if work.done == until:
                break
    _save(work, checkpoints)
    write_progress(folder, work.done, work.total)


def _save(work: Work, checkpoints: Checkpoints) -> None:
    work.flush()
    checkpoints.write(work.done, work.state())


def _rescue(
    folder: Path, card: RunCard, work: Work, checkpoints: Checkpoints, good: int
) -> FirehoseError:
    """Leave a checkpoint of the last unit that was good, by doing all up to it once more."""
    checkpoints.drop_after(good)
    found = checkpoints.latest()
    assert found is not None
    work.restore(found)
    if work.done < good:
        _advance(folder, card, work, checkpoints, good)
    rate = "play.rule.rate" if card.kind == "play" else f"{card.kind}.rate"
    return FirehoseError(
        f"The loss of {work.unit} {good + 1:,} is not a finite number; {folder / 'checkpoints'} "
        f"has the state after {work.unit} {good:,}. Begin again with a lower rate (--set {rate}=…)."
    )


def write_progress(folder: Path, done: int, total: int) -> None:
    """Say in ``progress.json`` how far a run is, for whoever watches from outside."""
    write_whole(folder / "progress.json", json.dumps({"done": done, "total": total}).encode())


def read_progress(folder: Path) -> float:
    """How much of a run is done, from 0 to 1."""
    try:
        found = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
        return float(found["done"] / max(found["total"], 1))
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
