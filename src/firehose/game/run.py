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
      results.csv    its numbers, a row each, for other tools; results.parquet: the same
      *.f32          what held-out posts, and posts of the past, cost the final model; of the past
                     also while memories leave them out (past-left-out.f32)
      result.json    what came of it, sealed; it appears last

A log is on disk before a checkpoint counts on it; the first checkpoint before ``run.json``; and all
else before ``result.json``. Where several processes play together, only the first one writes.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from firehose.data.corpus import Corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.assembly import AnyCorpus
from firehose.game.folder import (
    Run,
    checkpoints_of,
    clear,
    new_run,
    open_run,
    read_run,
    refuse_own_parts,
    refuse_taken,
    write_json,
)
from firehose.game.outcome import TrainingOutcome
from firehose.game.playing import Playing, PlayingPictures
from firehose.game.result import is_over
from firehose.game.results import write_run_results
from firehose.game.round import Broken
from firehose.game.settings import Settings
from firehose.game.training import Fit
from firehose.interrupts import stop_requests
from firehose.machine import code_version
from firehose.optim.clipping import NotFinite
from firehose.parallel.group import anybody, first, first_in, is_first
from firehose.progress import measure, say
from firehose.storage.checkpoints import Checkpoint, Checkpoints
from firehose.storage.files import clear_leftovers

Work = Playing | Fit
PROGRESS_EVERY = 1.0  # seconds between two versions of progress.json


def play(
    corpus: AnyCorpus | str | Path,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot be changed)
    start: str | Path | None = None,
    replace: bool = False,
    checkpoint_every: float = 300,
    tensorboard: bool = False,
) -> Any:
    """Play a whole stream in the new folder ``out``; returns what came of it.

    ``start`` is a pretrained model to begin with: it gives the sizes and the shared weights. With
    ``settings.pictures`` the corpus is a folder with the files of a data set.
    """
    more = (start, "train", checkpoint_every, tensorboard)
    return _begin(new_run("play", corpus, out, settings, *more), replace)


def pretrain(
    corpus: Corpus | str | Path,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot be changed)
    split: str = "pretrain",
    replace: bool = False,
    checkpoint_every: float = 300,
) -> TrainingOutcome:
    """Train a user-agnostic model for every later one to begin with.

    The model is in ``out/model`` when it is over; ``split`` names the posts that it learns from.
    """
    model = settings.model.model_copy(update={"architecture": "agnostic"})
    agnostic = settings.model_copy(update={"model": model})
    run = new_run("pretrain", corpus, out, agnostic, None, split, checkpoint_every)
    made: TrainingOutcome = _begin(run, replace)
    return made


def offline(
    corpus: Corpus | str | Path,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot be changed)
    start: str | Path | None = None,
    replace: bool = False,
    checkpoint_every: float = 300,
) -> TrainingOutcome:
    """Train a model on all training posts, many times over, which no learner of a stream can do.

    With ``start``, a pretrained model gives the sizes and the shared weights.
    """
    run = new_run("offline", corpus, out, settings, start, "train", checkpoint_every)
    made: TrainingOutcome = _begin(run, replace)
    return made


def _begin(run: Run, replace: bool) -> Any:
    """Begin a run in a new folder, and carry it out to its result."""
    work, folder = make_work(run), run.folder  # made first, as it may refuse the settings
    if isinstance(run.corpus, Corpus):
        _warn_of_cuts(run.corpus, work.run.settings.model.max_tokens)
    first(refuse_taken, folder, replace)
    refuse_own_parts(work.run)
    with first_in(checkpoints_of(folder).held()):
        first(refuse_taken, folder, replace)  # it may have appeared meanwhile
        first(clear, folder)
        return _carry_out(work, is_new=True)


def _warn_of_cuts(corpus: Corpus, max_tokens: int) -> None:
    """Warn where more than 1 % of the posts are longer than what is trained on."""
    train = corpus.splits["train"]
    if (share := train.share_longer(max_tokens)) > 0.01:
        say(
            f"{100 * share:.0f} % of the posts are longer than model.max_tokens = {max_tokens}, "
            "and only their beginnings are learned from; "
            f"--set model.max_tokens={train.tokens_covering()} covers 99 % of them."
        )


def resume(
    run: str | Path,
    previous: bool = False,
    corpus: str | Path | None = None,
    trust: bool = False,
) -> Any:
    """Go on with a run from its last checkpoint, to the same bits as if it had never stopped.

    With ``previous``, from the checkpoint before it. ``corpus`` says where the corpus is now, if it
    was moved. With ``trust``, code that the run's folder names is run as if it were named here.
    """
    folder = Path(run)
    read_run(folder)  # or a sentence, before anything is made in a folder that is no run
    checkpoints = checkpoints_of(folder)
    with first_in(checkpoints.held()), _kept(folder):
        first(_refuse_over, folder)
        work = make_work(_told_what_differs(open_run(folder, corpus, trust)))
        if previous:
            first(_step_back, checkpoints)
        return _carry_out(work)


def _refuse_over(folder: Path) -> None:
    """Refuse to go on with a run that has its result."""
    if is_over(folder, contents=True):
        raise FirehoseError(f"{folder} is over; its result is {folder / 'result.json'}.")


def _told_what_differs(run: Run) -> Run:
    """Say what is otherwise than when a run was begun; its card notes another code."""
    folder, card = run.folder, run.card
    if differences := card.differences(str(run.settings.compute.find_device())):
        say(
            f"{folder} was begun with {', '.join(differences)}: from here on the last bits may "
            "differ from those of a run that was never stopped."
        )
    if card.code.split()[-1] == (code := code_version()):
        return run
    say(f"{folder} was begun by another version of Firehose; this one goes on with it.")
    return run._replace(card=card.model_copy(update={"code": f"{card.code} {code}"}))


def _step_back(checkpoints: Checkpoints) -> None:
    """Drop the newest checkpoint, if the one before it is good."""
    before = checkpoints.places()[-2:-1]
    try:
        for place in before:
            checkpoints.read(place)
    except FirehoseError as error:
        why = str(error).partition(";")[0].rstrip(".")
        raise FirehoseError(
            f"{why}; that is the one before the newest, so the newest was kept: go on without "
            "--previous, or begin again with --replace."
        ) from None
    checkpoints.drop_newest()


def make_work(run: Run) -> Work:
    """The work of a run before its first unit."""
    if run.card.kind != "play":
        return Fit(run)
    return PlayingPictures(run) if isinstance(run.corpus, PictureCorpus) else Playing(run)


def _carry_out(work: Work, is_new: bool = False) -> Any:
    """Do what is left of a run, whose lock is held, after its last checkpoint; finish it.

    A new one begins with a checkpoint: ``run.json`` appears when that is on disk, so that whatever
    it began with is not needed again.
    """
    folder = work.run.folder
    checkpoints = checkpoints_of(folder)
    first(clear_leftovers, folder)
    if is_new:
        first(lambda: checkpoints.write(0, work.state(), {}))
    else:
        _go_back(work, checkpoints)
        say(f"Going on after {work.unit} {work.done:,}.")
    first(work.run.card.write, folder)  # it may say that another version of the code goes on
    with _kept(folder):
        try:
            _advance(work, checkpoints)
        except (NotFinite, Broken) as error:
            good = max(work.done - isinstance(error, Broken), 0)
            raise _rescue(make_work(work.run), checkpoints, good) from None
        result = work.finish()
        first(write_run_results, folder, work.run.card, result)
        first(result.write, folder)
        return result


def _go_back(work: Work, checkpoints: Checkpoints) -> None:
    """Bring a run to the state of its newest checkpoint that can be used."""
    read: list[Checkpoint] = []

    def find() -> str | None:
        found = checkpoints.latest()
        if found is None:
            return None
        checkpoints.drop_newer(found)
        read.append(found)
        return found.place.name

    name = first(find)
    if name is None:
        raise FirehoseError(
            f"{work.run.folder} has no checkpoint to go on from; begin again with --replace."
        )
    found = read[0] if read else checkpoints.read(checkpoints.folder / name)
    work.restore(found.state, found.logs)


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Say, where a run is interrupted before or after its units, that it can still go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(
            f"Stopped; `firehose resume {folder}` goes on from the last checkpoint."
        ) from None


def _advance(work: Work, checkpoints: Checkpoints, until: int | None = None) -> None:
    """Do the units that are left, or until so many are done, with checkpoints on the way."""
    folder, saved = work.run.folder, time.monotonic()
    shown = saved
    with measure(work.total, work.doing) as show, stop_requests() as request:
        for _ in work.units():
            now = time.monotonic()
            show(work.done, work.note())
            if is_first() and now - shown >= PROGRESS_EVERY:
                write_progress(folder, work.done, work.total)
                shown = now
            is_due = is_first() and now - saved >= work.run.card.checkpoint_every
            is_asked, is_due = anybody(request.made, is_due)
            if is_due and not is_asked:
                first(_save, work, checkpoints)
                saved = now
            if is_asked:
                first(_save, work, checkpoints)
                raise Stopped(
                    f"Stopped after {work.unit} {work.done:,}; `firehose resume {folder}` goes on "
                    "from there."
                )
            if work.done == until:
                break
    first(_save, work, checkpoints)


def _save(work: Work, checkpoints: Checkpoints) -> None:
    """Write a checkpoint, if there is none, after the logs it counts on; and how far the run is."""
    logs = work.flush()
    if work.done not in checkpoints.numbers():
        checkpoints.write(work.done, work.state(), logs)
    write_progress(work.run.folder, work.done, work.total)


def _rescue(work: Work, checkpoints: Checkpoints, good: int) -> FirehoseError:
    """Leave a checkpoint after the last good unit, by doing the units up to it once more."""
    first(checkpoints.drop_after, good)
    _go_back(work, checkpoints)
    if work.done < good:
        _advance(work, checkpoints, good)
    kind = work.run.card.kind
    rate = "play.rule.rate" if kind == "play" else f"{kind}.rate"
    return FirehoseError(
        f"The loss of {work.unit} {good + 1:,} is not a finite number; {checkpoints.folder} has "
        f"the state after {work.unit} {good:,}. Begin again with a lower rate (--set {rate}=…)."
    )


def write_progress(folder: Path, done: int, total: int) -> None:
    """Write ``progress.json``, which tells other processes how far the run is."""
    write_json(folder / "progress.json", {"done": done, "total": total})


def read_progress(folder: Path) -> float:
    """The share of a run that is done, from 0 to 1; 0 where that is not known."""
    try:
        found = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
        return float(found["done"] / max(found["total"], 1))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0.0
