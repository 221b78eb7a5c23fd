"""What it is worth to know who writes: by how much perplexity falls, for whom, and when."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.experiments.jobs import Job
from firehose.experiments.ledger import paired
from firehose.game.metrics import Groups
from firehose.game.scoring import Costs, Measure, read_costs
from firehose.game.totals import Measured

FEWEST_USERS = 5  # of a slice: fewer say nothing about others


class Slice(NamedTuple):
    """Some of the posts: what they cost, and what knowing their users was worth."""

    name: str
    posts: int
    users: int
    unknown: float  # word perplexity
    known: float
    gain: Measured  # by what share perplexity falls


class UserGain(NamedTuple):
    """A user's posts: what they cost, and what knowing the user was worth."""

    user: int
    posts: int
    unknown: float  # word perplexity
    known: float

    @property
    def gain(self) -> float:
        """By what share perplexity falls."""
        return 1 - self.known / self.unknown


class Pair(NamedTuple):
    """The same posts, paid for without and with knowing who writes, seed by seed."""

    unknown: Sequence[Costs]
    known: Sequence[Costs]
    users: int  # of the corpus

    @classmethod
    def read(
        cls, unknown: Sequence[Job], known: Sequence[Job], corpus: Corpus, measure: Measure
    ) -> "Pair":
        """Read what runs have paid; they must have been asked for the same posts."""
        sides = [
            [read_costs(job.folder, corpus, measure) for job in jobs] for jobs in (unknown, known)
        ]
        if len({len(costs.nats) for side in sides for costs in side}) > 1:
            raise FirehoseError(
                f"The runs under {known[0].store} were not asked for the same posts: somebody was "
                "forgotten in some of them only; remove that folder, and begin again."
            )
        return cls(sides[0], sides[1], corpus.manifest.users)

    def select(self, chosen: NDArray[np.bool_]) -> "Pair":
        """Only the chosen posts."""
        unknown, known = (
            [costs.select(chosen) for costs in side] for side in (self.unknown, self.known)
        )
        return Pair(unknown, known, self.users)

    def gain(self) -> Measured:
        """By what share perplexity falls, with its interval over users and seeds."""
        pairs = [
            one.totals(users=self.users).less(other.totals(users=self.users))
            for one, other in zip(self.known, self.unknown, strict=True)
        ]
        change = paired(pairs)
        return Measured(-change.value, -change.high, -change.low, len(self.known[0].nats))

    def perplexities(self) -> tuple[float, float]:
        """Without and with knowing the users; losses are averaged over seeds."""
        unknown, known = (
            float(np.exp(np.mean([np.log(costs.perplexity()) for costs in side])))
            for side in (self.unknown, self.known)
        )
        return unknown, known

    def slices(self, groups: Groups) -> list[Slice]:
        """The groups of posts that enough users have written."""
        group, names = groups
        found = []
        for number, name in enumerate(names):
            part = self.select(group == number)
            users = len(np.unique(part.known[0].user))
            if users >= FEWEST_USERS:
                posts = len(part.known[0].nats)
                found.append(Slice(name, posts, users, *part.perplexities(), part.gain()))
        return found

    def by_user(self) -> list[UserGain]:
        """Each user who wrote any of the posts, seeds averaged; whom it helps most comes first."""
        sides = []
        for side in (self.unknown, self.known):
            columns = [costs.by_user() for costs in side]
            sides.append(np.exp(np.mean([each["nats"] / each["words"] for each in columns], 0)))
        own = self.known[0].by_user()
        rows = zip(
            own["user"].tolist(), own["posts"].tolist(), *(s.tolist() for s in sides), strict=True
        )
        return sorted((UserGain(*row) for row in rows), key=lambda each: -each.gain)

    def saved(self) -> NDArray[np.float64]:
        """The nats that knowing the user saved on each post, seeds averaged."""
        differences = [a.nats - b.nats for a, b in zip(self.unknown, self.known, strict=True)]
        return np.asarray(np.mean(differences, 0))


class Method(NamedTuple):
    """One way to predict, without and with knowing who writes; a run for each seed."""

    name: str
    unknown: list[Job]
    known: list[Job]
    online: Pair  # what the posts of the stream cost when they came
    test: Pair  # what held-out posts cost in the end
