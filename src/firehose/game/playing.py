"""The work of a run that plays a game: rounds, their log, and in the end the result."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from firehose.data.corpus import Corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.game.assembly import make_game, open_stream
from firehose.game.folder import Run
from firehose.game.log import Log, summary, write_table
from firehose.game.outcome import GameResult, Outcome, TaskOutcome
from firehose.game.scoring import accuracies, score_past, score_past_left_out, write_costs
from firehose.methods.predictor import companion_of
from firehose.models.data_parallel import plain
from firehose.models.personal import Personal
from firehose.parallel.group import first, is_first
from firehose.storage.seals import File

POINTS = 20  # of a curve of accuracies, beside the ends of tasks


class Playing:
    """A game on a corpus of posts."""

    unit, doing = "round", "playing"
    log: Log | None = None  # while rounds are played, in the process that writes

    def __init__(self, run: Run) -> None:
        self.game = make_game(run.corpus, run.settings, run.start)
        self.stream = open_stream(run.corpus, run.settings)
        self.total = len(self.stream)
        model = plain(self.game.model)
        self.run = run.with_model(model.plan) if isinstance(model, Personal) else run
        self.seals: Mapping[str, File] = {}  # of the log, where it is to go on

    @property
    def done(self) -> int:
        """Rounds that were played."""
        return self.game.played

    def units(self) -> Iterator[None]:
        """Play the rounds that are left; yields after each."""
        game = self.game
        self.stream.seek(game.posts)
        if is_first():
            self.log = Log(self.run.folder, self.seals, self.run.card.tensorboard)
        for played in game.rounds(self.stream):
            if self.log:
                self.log.add(game.played, played)
            yield

    def note(self) -> str:
        """The state of the game, for the progress bar."""
        return self.log.note() if self.log else ""

    def flush(self) -> Mapping[str, File]:
        """Bring the log of the rounds to disk; returns the seals for a checkpoint of it."""
        assert self.log is not None  # only the process that writes is asked
        return self.log.flush()

    def state(self) -> dict[str, Any]:
        """The state of all parts of the game."""
        return self.game.state()

    def restore(self, state: Mapping[str, Any], logs: Mapping[str, File]) -> None:
        """Become what ``state`` was taken from; the log goes on where ``logs`` says."""
        self.game.restore(state)
        self.seals = logs

    def forget(self, user: int) -> dict[str, int]:
        """Erase all that is kept of a user; returns how many things of each kind there were."""
        return self.game.forget(user)

    def finish(self) -> GameResult:
        """Save the model, and score the predictor on held-out and past posts."""
        model, corpus = plain(self.game.model), self.run.corpus
        assert isinstance(model, Personal) and isinstance(corpus, Corpus)
        predictor = self.game.predictor
        beside = companion_of(predictor, corpus.users.__getitem__)
        with predictor.in_use():
            first(self.run.save_model, model, beside)
        self.run.score(predictor)
        seen = corpus.splits["train"], self.game.posts
        first(write_costs, self.run.folder, "past", score_past(predictor, *seen))
        if predictor.leaves_out:
            left_out = score_past_left_out(predictor, *seen)
            first(write_costs, self.run.folder, "past-left-out", left_out)
        first(write_table, self.run.folder)
        return Outcome.model_validate(first(lambda: Outcome.of(self.run.folder, corpus).public()))


class PlayingPictures(Playing):
    """A game on tasks with pictures: the accuracy on every task is measured on the way."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        assert isinstance(run.corpus, PictureCorpus)
        self.pictures = run.corpus
        self.ends = np.cumsum(run.corpus.task_sizes)
        self.looks = np.union1d(np.linspace(0, self.ends[-1], POINTS + 1).astype(int), self.ends)
        self.seen: list[int] = []  # pictures, at each look
        self.accuracy: list[list[float]] = []  # of each task, at each look

    def units(self) -> Iterator[None]:
        """Play the rounds that are left; measures all tasks where a point of the curve is due."""
        if not self.seen:
            self._look()
        for _ in super().units():
            if ((self.seen[-1] < self.looks) & (self.looks <= self.game.posts)).any():
                self._look()
            yield

    def _look(self) -> None:
        game: Any = self.game
        classify = getattr(game.memory, "classify", None) or game.model.classify
        self.seen.append(self.game.posts)
        with game.predictor.in_use():
            self.accuracy.append(accuracies(classify, self.pictures.tasks.test))

    def state(self) -> dict[str, Any]:
        """The state of the game, and what was measured so far."""
        return super().state() | {"measured": {"seen": self.seen, "accuracy": self.accuracy}}

    def restore(self, state: Mapping[str, Any], logs: Mapping[str, File]) -> None:
        """Become what ``state`` was taken from; the log goes on where ``logs`` says."""
        super().restore(state, logs)
        measured = state["measured"]
        self.seen, self.accuracy = list(measured["seen"]), list(measured["accuracy"])

    def finish(self) -> GameResult:
        """Collect the accuracies on all tasks through time."""
        write_table(self.run.folder)
        return TaskOutcome(
            benchmark=self.pictures.title,
            seen=np.array(self.seen),
            accuracy=np.array(self.accuracy),
            ends=np.searchsorted(self.seen, self.ends),
            **summary(self.run.folder),
        )
