"""How well a model knows its users: held-out posts under their own vector, and under others'."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.data.corpus import Corpus, Floor, Split, open_corpus
from firehose.errors import FirehoseError
from firehose.game.live import load
from firehose.game.scoring import Costs, costs
from firehose.methods.predictor import Predictor
from firehose.models.data_parallel import spread
from firehose.models.device import Compute
from firehose.models.model import Payer
from firehose.models.personal import Personal
from firehose.models.store import Trained
from firehose.models.users import NOBODY
from firehose.report.tables import Table
from firehose.report.words import perplexity
from firehose.storage.files import write_whole

OTHERS = 5  # users whose vectors each user's posts are also scored with, as in the paper


@dataclass(frozen=True)
class Evaluation:
    """What the posts of a split cost, with each user's own vector and with those of others."""

    split: str
    own: Costs
    crossed: Costs | None  # every post once for each other user; None: nobody else is known
    names: list[str]  # of users, by number
    unknown: int  # users of the split who are new to the model, and got the population's vector
    floor: Floor | None  # the best possible, where the true model is known

    @property
    def users(self) -> int:
        """The number of users who wrote the posts."""
        return len(np.unique(self.own.user))

    def public(self) -> dict[str, Any]:
        """As plain values, by the words of the table."""
        about = {"posts": len(self.own.nats), "users": self.users, "new users": self.unknown}
        return {"split": self.split, **about, **self._values()}

    def table(self) -> Table:
        """The table that shows the result."""
        rows = [[name, perplexity(value)] for name, value in self._values().items()]
        return Table(["", self.split], rows)

    def _values(self) -> dict[str, float]:
        found = {
            "word perplexity": self.own.perplexity(),
            "… every user counted alike": self.own.perplexity("user"),
            "token perplexity": self.own.perplexity("token"),
        }
        if self.crossed:
            found["word perplexity as other users"] = self.crossed.perplexity()
        if self.floor:
            found["best possible, knowing the user"] = self.floor.personalized
            found["best possible, not knowing the user"] = self.floor.agnostic
        return found

    def per_user(self) -> pa.Table:
        """A row for each user: what their posts cost, as theirs and as those of others."""
        own = self.own.by_user()
        columns = {
            "user": [self.names[user] if user >= 0 else None for user in own["user"]],
            "posts": own["posts"],
            "words": own["words"].astype(np.int64),
            "tokens": own["tokens"].astype(np.int64),
            "nats": own["nats"],
            "word_perplexity": np.exp(own["nats"] / own["words"]),
            "token_perplexity": np.exp(own["nats"] / own["tokens"]),
        }
        if self.crossed:
            others = self.crossed.by_user()
            columns["cross_word_perplexity"] = np.exp(others["nats"] / others["words"])
        return pa.table(columns)


def evaluate(
    model: Trained | str | Path,
    corpus: Corpus | str | Path,
    split: str = "test",
    others: int = OTHERS,
    seed: int = 0,
    device: str | None = None,
    trust: bool = False,
) -> Evaluation:
    """Score every post of a split, as its user and as ``others`` other users each.

    A model that is loaded for it is computed on the best device there is, or on ``device``; with
    ``trust``, code that it names is run. A mixture is asked for all it knows, as when it played.
    """
    opened = open_corpus(corpus)
    trained = model if isinstance(model, Trained) else load(model, opened, min_users=1, trust=trust)
    if device or trained is not model:
        trained.model.move_to(Compute.of({"device": device or "auto"}).find_device())
    if trained is not model:
        trained.model = cast(Personal, spread(trained.model))
    posts = opened.splits.get(split)
    if posts is None or not len(posts):
        raise FirehoseError(
            f"{opened.path} has no posts in {split!r}; there are {', '.join(opened.splits)}."
        )
    personal = trained.model
    with trained.in_use():
        own = costs(trained.payer, posts, "as themselves")
        crossed = cross_costs(personal, posts, others, seed, trained.payer)
    known, writers = known_users(personal, trained.payer), np.unique(own.user)
    is_unknown = ~np.isin(writers, known) & (writers != NOBODY)
    unknown = int(is_unknown.sum()) if personal.is_personal or len(known) else 0
    floor = (opened.manifest.floor or {}).get(split)
    return Evaluation(split, own, crossed, opened.users, unknown, floor)


def cross_costs(
    model: Personal,
    posts: Split,
    others: int = OTHERS,
    seed: int = 0,
    payer: Payer | None = None,
) -> Costs | None:
    """What posts cost as if other users had written them, each once for every such user.

    None where nobody else is known. ``payer`` is what pays, if that is not the model alone.
    """
    known = known_users(model, payer)
    strangers = choose_others(np.asarray(posts.user, np.int64), known, others, seed)
    parts = [
        costs(payer or model, posts, f"as other users, {number} of {others}", column)
        for number, column in enumerate(strangers.T, 1)
    ]
    return Costs(*map(np.concatenate, zip(*parts, strict=True))) if parts else None


def known_users(model: Personal, payer: Payer | None) -> NDArray[np.int64]:
    """The numbers of the users who have a vector, or of whom what pays keeps something."""
    nobody = np.zeros(0, np.int64)
    with_vector = model.users.numbers() if model.is_personal else nobody
    return np.union1d(with_vector, payer.users() if isinstance(payer, Predictor) else nobody)


def choose_others(
    users: NDArray[np.int64], known: NDArray[np.int64], others: int, seed: int
) -> NDArray[np.int64]:
    """For each post ``others`` users who did not write it, the same ones for all of a user's.

    Fewer, where not so many are known.
    """
    generator = np.random.default_rng(seed)
    known = np.sort(known)
    writers, which = np.unique(users, return_inverse=True)
    others = min(others, len(known) - int(np.isin(known, writers).any()))
    chosen = np.empty((len(writers), others), np.int64)
    for row, writer in enumerate(writers):
        drawn = generator.choice(len(known), min(others + 1, len(known)), replace=False)
        chosen[row] = known[drawn][known[drawn] != writer][:others]
    return chosen[which]


def write(evaluation: Evaluation, out: Path) -> None:
    """Write the values of each user as Parquet."""
    buffer = pa.BufferOutputStream()
    pq.write_table(evaluation.per_user(), buffer)
    write_whole(out, buffer.getvalue().to_pybytes())
