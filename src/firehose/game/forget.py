"""Forgetting a user in a model, in a run, or in a corpus."""

from pathlib import Path

from firehose.data.corpus import Corpus
from firehose.data.forget import forget_in_corpus
from firehose.errors import FirehoseError
from firehose.game.folder import open_run
from firehose.game.outcome import Outcome
from firehose.game.run import make_work
from firehose.game.scoring import erase_costs
from firehose.models.store import load, save
from firehose.storage.checkpoints import Checkpoints


def forget(path: str | Path, user: str) -> dict[str, int]:
    """Erase a user from the folder of a model, a run or a corpus; returns the number of things.

    No vector, moment, post, name or count of the user is left in it. A corpus is another one
    afterwards: runs on the old one cannot go on with it.
    """
    folder = Path(path)
    if (folder / "run.json").is_file():
        return _forget_in_run(folder, user)
    if (folder / "model.json").is_file():
        return _forget_in_model(folder, user)
    if (folder / "manifest.json").is_file():
        return forget_in_corpus(folder, user)
    raise FirehoseError(f"{folder} is neither a model, nor a run, nor a corpus.")


def _forget_in_model(folder: Path, user: str) -> dict[str, int]:
    trained = load(folder)
    number = trained.users.number(user)
    if number is None:
        raise FirehoseError(f"{folder} knows no user {user!r}.")
    erased = int(trained.model.users.forget(number))
    trained.users.forget(user)
    save(trained, folder, replace=True)
    return {"vectors": erased, "names": 1}


def _forget_in_run(folder: Path, user: str) -> dict[str, int]:
    run = open_run(folder)
    corpus = run.corpus
    if not isinstance(corpus, Corpus):
        raise FirehoseError(f"{folder} was played with pictures, which have no users.")
    if user not in corpus.users:
        raise FirehoseError(f"{corpus.path}, the corpus of {folder}, has no user {user!r}.")
    number = corpus.users.index(user)
    checkpoints = Checkpoints(folder / "checkpoints")
    erased: dict[str, int] = {}
    with checkpoints.held():
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
