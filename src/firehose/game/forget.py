"""Forgetting a user in a model, in a run, or in a corpus."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import get_args

from firehose.data.corpus import Corpus
from firehose.data.forget import forget_in_corpus
from firehose.errors import FirehoseError
from firehose.game.folder import checkpoints_of, open_run
from firehose.game.live import load
from firehose.game.outcome import Outcome, TrainingOutcome
from firehose.game.result import is_over, read_files, read_result, write_result
from firehose.game.results import write_run_results
from firehose.game.run import make_work
from firehose.game.scoring import Measure, cost_file, has_costs, without_user
from firehose.models.store import load as load_model, write
from firehose.storage.files import clear_leftovers, sync, write_whole
from firehose.storage.seals import File
from firehose.storage.workspace import clear_workspaces, workspace


def forget(
    path: str | Path, user: str, corpus: str | Path | None = None, trust: bool = False
) -> dict[str, int]:
    """Erase a user from the folder of a model, a run or a corpus; returns the number of things.

    No vector, moment, post, name or count of the user is left in it. A corpus is another one
    afterwards: runs on the old one cannot go on with it. ``corpus`` says where the corpus of a run
    is now, if it was moved; with ``trust``, code that the run's folder names is run.
    """
    folder = Path(path)
    if (folder / "run.json").is_file():
        return _forget_in_run(folder, user, corpus, trust)
    if (folder / "model.json").is_file():
        return _forget_in_model(folder, user, trust)
    if (folder / "manifest.json").is_file():
        return forget_in_corpus(folder, user)
    raise FirehoseError(f"{folder} is neither a model, nor a run, nor a corpus.")


def _forget_in_model(folder: Path, user: str, trust: bool) -> dict[str, int]:
    with workspace(folder, replace=True) as work:  # its lock is held from here on
        trained = load(folder, min_users=1, trust=trust)
        number = trained.users.number(user)
        if number is None:
            raise FirehoseError(f"{folder} knows no user {user!r}.")
        kept = {}
        if trained.is_mixed:  # before the vector goes: what was saved beside it is by its row
            kept["things a predictor kept"] = trained.game.predictor.forget(number)
        erased = {"vectors": int(trained.model.users.forget(number))} | kept
        trained.users.forget(user)
        (work / "result").mkdir()
        write(trained, work / "result")
    return erased | {"names": 1}


def _forget_in_run(
    folder: Path, user: str, moved: str | Path | None, trust: bool
) -> dict[str, int]:
    """Erase a user from a run, in an order that can be interrupted anywhere and done again.

    The result and the checkpoint are first written so that they accept the files of costs as they
    are and as they will be; then these are replaced.
    """
    checkpoints = checkpoints_of(folder)
    with checkpoints.held():
        run = open_run(folder, moved, trust)
        corpus = run.corpus
        if not isinstance(corpus, Corpus):
            raise FirehoseError(f"{folder} was played with pictures, which have no users.")
        if user not in corpus.users:
            raise FirehoseError(f"{corpus.path}, the corpus of {folder}, has no user {user!r}.")
        number = corpus.users.index(user)
        clear_leftovers(folder)
        clear_workspaces(folder / "model")
        over, found = is_over(folder, contents=True), checkpoints.latest()
        if not over and not found:
            raise FirehoseError(f"{folder} has neither a whole result nor a checkpoint.")
        logs = found.logs if found else {}
        contents, count = _costs_without(folder, corpus, number, None if over else logs)
        if over:
            _accept_in_result(folder, contents)
        erased: dict[str, int] = {}
        if found:
            work = make_work(run)
            work.restore(found.state, logs)
            erased |= work.forget(number)
            checkpoints.write(work.done, work.state(), _old_and_new(logs, contents), kept=1)
        for name, content in contents.items():
            write_whole(folder / name, content)
        erased["costs of posts"] = count
        if not over:
            _remove_unfinished(folder, contents)
            return erased
        model = folder / "model"
        if model.exists() and load_model(model).users.number(user) is not None:
            erased |= _forget_in_model(model, user, trust)
        is_game = run.card.kind == "play"
        result = Outcome.of(folder, corpus) if is_game else TrainingOutcome.read(folder)
        write_run_results(folder, run.card, result)
        result.write(folder)
    return erased


def _costs_without(
    folder: Path, corpus: Corpus, user: int, logs: Mapping[str, File] | None
) -> tuple[dict[str, bytes], int]:
    """The files of a run's costs without a user's, by name, and how many costs those were.

    For a run that is not over, ``logs`` tell how much of what was paid its checkpoint counts on.
    """
    contents: dict[str, bytes] = {}
    count = 0
    for measure in get_args(Measure):
        name, posts = cost_file(measure), None
        if logs is None and not has_costs(folder, measure):
            continue
        if logs is not None:
            if name not in logs:
                continue
            posts = logs[name].bytes // 4
        contents[name], own = without_user(folder, corpus, measure, user, posts)
        count += own
    return contents, count


def _accept_in_result(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Let the result of a run take its files as they are and as they will be."""
    files = {name: list(seals) for name, seals in read_files(folder).items()}
    for name, content in contents.items():
        files[name].append(File.of_content(content))
    write_result(folder, read_result(folder), files)


def _old_and_new(
    logs: Mapping[str, File], contents: Mapping[str, bytes]
) -> dict[str, Sequence[File]]:
    """The seals of logs as they are and as they will be."""
    seals = {name: [old] for name, old in logs.items()}
    for name in logs.keys() & contents.keys():
        seals[name].append(File.of_content(contents[name][: logs[name].bytes]))
    return dict(seals)


def _remove_unfinished(folder: Path, kept: Collection[str]) -> None:
    """Remove what a run that is not over has of its final model: it will be made again."""
    for measure in get_args(Measure):
        if cost_file(measure) not in kept:
            (folder / cost_file(measure)).unlink(missing_ok=True)
    shutil.rmtree(folder / "model", ignore_errors=True)
    sync(folder)
