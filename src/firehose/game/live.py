"""A trained model that goes on learning from texts as they come."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from firehose.config import marked
from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.game.assembly import Game
from firehose.game.settings import Playing, make_settings
from firehose.methods.predictor import (
    PREDICTORS,
    ModelPredictor,
    Predictor,
    companion_of,
    frozen_weights,
)
from firehose.models import store
from firehose.models.companion import Companion
from firehose.models.model import Paid, Payer, Speaker
from firehose.models.users import NOBODY

ONLINE = ("play.optimizer=online-gd", "play.rule.warmup=0")  # a step at once, at the full rate
LEARNING = make_settings("laptop", ONLINE).play
MIN_USERS = 3  # people are told no words of others that fewer have written


@dataclass
class Trained(store.Trained):
    """A model, the words it speaks, and whom it knows; it predicts, pays and learns.

    >>> model = firehose.load("oracle")  # doctest: +SKIP
    >>> model.pay([Post("alice", "fix the typo")])  # doctest: +SKIP
    >>> model.learn([Post("alice", "fix the typo")])  # doctest: +SKIP

    Each call of ``learn`` is a round of the game: the posts are paid for, then learned from with
    ``playing``, which remembers some of them. Where a mixture predicts, it pays, writes and
    suggests, and ``learn`` lets it remember, too. Of what others wrote it tells only what
    ``min_users`` of them have; ``is_silent`` says that it cannot know that, and tells nothing.
    """

    playing: Playing = LEARNING
    min_users: int = MIN_USERS
    _is_silent: bool = field(default=False, init=False, repr=False)

    @cached_property
    def game(self) -> Game:
        """The game that ``learn`` plays."""
        saved = self.saved
        game = Game(
            self.model, self.playing, frozen=frozen_weights(self.model, saved) if saved else ()
        )
        if saved is not None:
            game.predictor.restore(saved.state["predictor"])
            named = {number: self.users.number(name) for name, number in saved.users.items()}
            moved = {old: new for old, new in named.items() if new is not None}
            if any(old != new for old, new in moved.items()):
                game.predictor.renumber(moved)
            self.saved = None  # from here on that is the game's
        self._is_silent = not game.predictor.protect(self.min_users)
        return game

    @property
    def is_mixed(self) -> bool:
        """Whether more than the model predicts."""
        return self.playing.predictor.kind != ModelPredictor.Settings().kind

    @property
    def is_silent(self) -> bool:
        """Whether a part that predicts says nothing, as it may tell one user's words to another."""
        return self.is_mixed and self._predictor is not None and self._is_silent

    @property
    def _predictor(self) -> Predictor | None:
        """What predicts; None: the model as it was loaded."""
        return self.game.predictor if self.is_mixed or "game" in vars(self) else None

    @property
    def payer(self) -> Payer:
        """What pays for posts: the model, or what predicts with it."""
        return self._predictor or self.model

    @property
    def speaker(self) -> Speaker | None:
        """What has a say beside the model when texts are written, if anything has."""
        return None if self._predictor is None else self._predictor.speaker

    def number(self, user: str | None) -> int:
        """The number of a user of whom anything is known; ``NOBODY`` for anybody else."""
        number, named = super().number(user), None if user is None else self.users.number(user)
        if number == NOBODY and named is not None and self._predictor is not None:
            return named if named in self._predictor.users() else NOBODY
        return number

    def in_use(self, *users: str | None) -> AbstractContextManager[None]:
        """Let the model have the weights inside that its game predicts with.

        Where several are mixed, they are not: each is used in its turn.
        """
        if self._predictor is None or self.speaker is not None:
            return super().in_use(*users)
        numbers = np.array([self.number(user) for user in users]) if users else None
        return self._predictor.in_use(numbers)

    def saving(self) -> AbstractContextManager[None]:
        """Let the model have the weights inside that are to be saved."""
        return super().saving() if self._predictor is None else self._predictor.in_use()

    def companion(self) -> Companion | None:
        """What is saved beside the model."""
        if self._predictor is None:
            return None
        return companion_of(self._predictor, self.users.name)

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


def load(
    path: str | Path,
    corpus: Corpus | None = None,
    playing: Playing | None = None,
    min_users: int = MIN_USERS,
    trust: bool = False,
) -> Trained:
    """Open the folder of a model, or of the run that made it; raises FirehoseError for any other.

    With a ``corpus`` the users are numbered as there, by their names; others follow. ``playing``
    says how it goes on learning; a predictor that was saved with the model predicts, whatever
    ``playing`` says. Of what others wrote, no words are told that fewer than ``min_users`` have
    written. With ``trust``, code that the model names is run as if it were named here.
    """
    found, playing = store.load(path, corpus), playing or LEARNING
    if found.saved is not None:
        settings = found.saved.settings
        origin = str(store.find_model(Path(path)) / "model.json")
        predictor = PREDICTORS.settings(settings if trust else marked(settings, origin))
        playing = playing.model_copy(update={"predictor": predictor})
    made = (found.model, found.encoder, found.users, found.origin, found.saved)
    return Trained(*made, playing, min_users)
