"""The work of a run that plays: rounds, their log, and in the end the result."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from firehose.data.corpus import Corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.game.assembly import Game, make_game, open_stream
from firehose.game.folder import AnyCorpus, Options, RunCard, open_any
from firehose.game.log import Log
from firehose.game.outcome import Outcome, TaskOutcome
from firehose.game.run import begin
from firehose.game.scoring import accuracies, score_held_out, score_past, seen, write_costs
from firehose.game.settings import Settings
from firehose.models.personal import Personal
from firehose.models.store import Trained, save

POINTS = 20  # of a curve of accuracies, beside the ends of tasks


class Playing:
    """A game on a corpus, in the folder of its run."""

    unit = "round"

    def __init__(
        self, folder: Path, card: RunCard, corpus: AnyCorpus, settings: Settings, game: Game
    ) -> None:
        self.folder = folder
        self.card = card
        self.corpus = corpus
        self.settings = settings
        self.game = game
        self.stream = open_stream(corpus, settings)
        self.total = len(self.stream)
        self.log: Log | None = None

    @property
    def done(self) -> int:
        """Rounds that were played."""
        return self.game.played

    def units(self) -> Generator[None]:
        """Play the rounds that are left; yields after each."""
        game = self.game
        self.stream.seek(game.posts)
        with Log(self.folder, game.played, game.posts, self.card.tensorboard) as log:
            self.log = log
            try:
                for played in game.rounds(self.stream):
                    log.add(game.played, played)
                    self.after_round()
                    yield
            finally:
                self.log = None

    def after_round(self) -> None:
        """Look at the model after a round, where a kind of game does."""

    def note(self) -> str:
        """How things stand."""
        return self.log.note() if self.log else ""

    def flush(self) -> None:
        """Bring the log of the rounds to where the next checkpoint counts on it."""
        if self.log:
            self.log.flush()

    def state(self) -> dict[str, Any]:
        """The state of all parts of the game."""
        return self.game.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.game.restore(state)

    def forget(self, user: int) -> dict[str, int]:
        """Erase all that is kept of a user; returns how much of what there was."""
        return self.game.forget(user)

    def finish(self) -> Any:
        """Save the model and score it on held-out and past posts."""
        assert isinstance(self.corpus, Corpus) and isinstance(self.game.model, Personal)
        model = self.game.model.eval()
        save(
            Trained.of_corpus(model, self.corpus, self.card.origin()),
            self.folder / "model",
            replace=True,
        )
        score_held_out(self.folder, self.corpus, model)
        past = score_past(model, self.corpus.splits["train"], seen(self.folder))
        write_costs(self.folder, "past", past)
        outcome = Outcome.of(self.folder, self.corpus)
        outcome.write(self.folder)
        return outcome


class PlayingPictures(Playing):
    """A game on tasks with pictures: what is known of every task is measured on the way."""

    def __init__(
        self, folder: Path, card: RunCard, corpus: PictureCorpus, settings: Settings, game: Game
    ) -> None:
        super().__init__(folder, card, corpus, settings, game)
        self.title = corpus.title
        self.tasks = corpus.tasks.test
        ends = np.cumsum(corpus.task_sizes)
        self.ends = ends.tolist()
        self.looks = np.union1d(np.linspace(0, ends[-1], POINTS + 1).astype(int), ends)
        self.seen: list[int] = []  # pictures, at each look
        self.accuracy: list[list[float]] = []  # of each task, at each look

    def units(self) -> Generator[None]:
        """Play the rounds that are left; yields after each."""
        if not self.seen:
            self._look()
        yield from super().units()

    def after_round(self) -> None:
        """Measure the accuracy on all tasks when a point of the curve has been reached."""
        if ((self.seen[-1] < self.looks) & (self.looks <= self.game.posts)).any():
            self._look()

    def _look(self) -> None:
        game: Any = self.game
        classify = getattr(game.memory, "classify", None) or game.model.classify
        self.seen.append(self.game.posts)
        self.accuracy.append(accuracies(classify, self.tasks))

    def state(self) -> dict[str, Any]:
        """The state of the game, and what was measured so far."""
        return super().state() | {"measured": {"seen": self.seen, "accuracy": self.accuracy}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        super().restore(state)
        measured = state["measured"]
        self.seen, self.accuracy = list(measured["seen"]), list(measured["accuracy"])

    def finish(self) -> Any:
        """Write the accuracies of all tasks through time."""
        outcome = TaskOutcome.of(
            self.folder,
            benchmark=self.title,
            seen=np.array(self.seen),
            accuracy=np.array(self.accuracy),
            ends=np.searchsorted(self.seen, self.ends),
        )
        outcome.write(self.folder)
        return outcome


def make_playing(
    folder: Path,
    card: RunCard,
    corpus: AnyCorpus,
    settings: Settings,
    start: str | Path | None,
) -> Playing:
    """The work of a game before its first round."""
    game = make_game(corpus, settings, start)
    if isinstance(corpus, PictureCorpus):
        return PlayingPictures(folder, card, corpus, settings, game)
    assert isinstance(game.model, Personal)
    resolved = settings.model_copy(update={"model": game.model.plan})
    return Playing(folder, card, corpus, resolved, game)


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
    opened = open_any(corpus, settings) if isinstance(corpus, str | Path) else corpus
    options = Options(replace, checkpoint_every, tensorboard)
    return begin("play", opened, out, settings, start, "train", options)
