"""A trained model that goes on learning from texts as they come."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.game.assembly import Game
from firehose.game.settings import Playing, make_settings
from firehose.models import store
from firehose.models.model import Paid

LEARNING = make_settings("laptop", ["play.optimizer=online-gd", "play.rule.warmup=0"]).play


@dataclass
class Trained(store.Trained):
    """A model, the words it speaks, and whom it knows; it predicts, pays and learns.

    >>> model = firehose.load("oracle")  # doctest: +SKIP
    >>> model.pay([Post("alice", "fix the typo")])  # doctest: +SKIP
    >>> model.learn([Post("alice", "fix the typo")])  # doctest: +SKIP

    Each call of ``learn`` is a round of the game: the posts are paid for, then learned from with
    ``playing``, which remembers some of them.
    """

    playing: Playing = LEARNING

    @cached_property
    def game(self) -> Game:
        """The game that ``learn`` plays."""
        return Game(self.model, self.playing)

    def in_use(self, user: str | None = None) -> AbstractContextManager[None]:
        """Let the model have the weights inside that its game predicts with."""
        if "game" not in vars(self):  # nothing was learned
            return super().in_use(user)
        users = None if user is None else np.array([self.number(user)])
        return self.game.predictor.in_use(users)

    def pay(self, posts: Sequence[Post]) -> Paid:
        """What these texts cost, each with its user's vector; users who have none are nobody."""
        if "game" not in vars(self):
            return super().pay(posts)
        return self.game.predictor.pay(self.encoder.encode(posts, self.users, grow=False))

    def learn(self, posts: Sequence[Post]) -> Paid:
        """Predict these posts, pay for them, and then learn from them; returns what they cost.

        Who is new gets a number and a vector.
        """
        batch = self.encoder.encode(posts, self.users, grow=True)
        (played,) = self.game.rounds([batch])
        return played.paid

    def forget(self, user: str) -> dict[str, int]:
        """Erase a user's vector, moments, remembered posts and name; returns their numbers."""
        number = self.users.number(user)
        if number is None:
            raise FirehoseError(f"There is no user {user!r} in this model.")
        erased = self.game.forget(number)
        self.users.forget(user)
        return erased | {"names": 1}


def load(path: str | Path, corpus: Corpus | None = None, playing: Playing | None = None) -> Trained:
    """Open the folder of a model, or of the run that made it; raises FirehoseError for any other.

    With a ``corpus`` the users are numbered as there, by their names; others follow. ``playing``
    says how it goes on learning.
    """
    found = store.load(path, corpus)
    return Trained(found.model, found.encoder, found.users, found.origin, playing or LEARNING)
