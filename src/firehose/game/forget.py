"""Forgetting a user in a model, in a run, or in a corpus."""

from pathlib import Path

from firehose.data.corpus import Corpus
from firehose.data.forget import forget_in_corpus
from firehose.errors import FirehoseError
from firehose.game.folder import checkpoints_of, open_run
from firehose.game.outcome import Outcome
from firehose.game.run import make_work
from firehose.game.scoring import erase_costs
from firehose.models.store import load, write
from firehose.storage.workspace import workspace


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
        return _forget_in_model(folder, user)
    if (folder / "manifest.json").is_file():
        return forget_in_corpus(folder, user)
    raise FirehoseError(f"{folder} is neither a model, nor a run, nor a corpus.")


def _forget_in_model(folder: Path, user: str) -> dict[str, int]:
    with workspace(folder, replace=True) as work:  # its lock is held from here on
        trained = load(folder)
        number = trained.users.number(user)
        if number is None:
            raise FirehoseError(f"{folder} knows no user {user!r}.")
        erased = int(trained.model.users.forget(number))
        trained.users.forget(user)
        (work / "result").mkdir()
        write(trained, work / "result")
    return {"vectors": erased, "names": 1}


def _forget_in_run(
    folder: Path, user: str, moved: str | Path | None, trust: bool
) -> dict[str, int]:
    checkpoints = checkpoints_of(folder)
    erased: dict[str, int] = {}
    with checkpoints.held():
        run = open_run(folder, moved, trust)
        corpus = run.corpus
        if not isinstance(corpus, Corpus):
            raise FirehoseError(f"{folder} was played with pictures, which have no users.")
        if user not in corpus.users:
            raise FirehoseError(f"{corpus.path}, the corpus of {folder}, has no user {user!r}.")
        number = corpus.users.index(user)
        if found := checkpoints.latest():
            work = make_work(run)
            work.restore(found)
            erased |= work.forget(number)
            checkpoints.write(work.done, work.state())
            checkpoints.drop_before(work.done)
        erased["costs of posts"] = erase_costs(folder, corpus, number)
        model = folder / "model"
        if model.exists() and load(model).users.number(user) is not None:
            erased |= _forget_in_model(model, user)
        if (folder / "result.json").is_file() and run.card.kind == "play":
            Outcome.of(folder, corpus).write(folder)
    return erased
