"""The work of a run that plays: rounds, their log, and in the end the result."""

from pathlib import Path

from firehose.game.assembly import Game
from firehose.game.folder import AnyCorpus, RunCard
from firehose.game.log import Log
from firehose.game.settings import Settings


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
