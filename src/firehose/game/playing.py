"""The work of a run that plays: rounds, their log, and in the end the result."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.data.corpus import Corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.errors import FirehoseError
from firehose.game.assembly import Game, make_game
from firehose.game.folder import AnyCorpus, RunCard, open_any
from firehose.game.log import Log
from firehose.game.outcome import Outcome
from firehose.game.run import begin
from firehose.game.scoring import score_final_model
from firehose.game.settings import Settings
from firehose.models.personal import Personal
from firehose.progress import say


class Playing:
    """A game on a corpus of posts, in a folder."""

    unit = "round"

    def __init__(
        self, folder: Path, card: RunCard, corpus: AnyCorpus, settings: Settings, game: Game
    ) -> None:
        self.folder = folder
        self.card = card
        self.corpus = corpus
        self.settings = settings
        self.game = game
        self.stream = corpus.stream(settings.play.posts, settings.play.hours)
        self.total = len(self.stream)
        self.log: Log | None = None

    @property
    def done(self) -> int:
        """Rounds that were played."""
        return self.game.played
