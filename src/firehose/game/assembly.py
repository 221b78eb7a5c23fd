"""A game put together from its settings: all parts, and the state they are in together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from firehose.batch import Batch
from firehose.data.corpus import Corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.data.stream import BatchStream
from firehose.errors import FirehoseError
from firehose.game import round as rounds
from firehose.game.limits import refuse_endless, refuse_too_large
from firehose.game.round import Round
from firehose.game.settings import Playing, Settings
from firehose.methods.buffers import BUFFERS
from firehose.methods.learners import LEARNERS
from firehose.methods.optimizers import OPTIMIZERS
from firehose.methods.predictor import PREDICTORS, Predictor
from firehose.methods.step import Setup
from firehose.models.data_parallel import spread
from firehose.models.model import Model, WeightSet
from firehose.models.perceptron import Perceptron
from firehose.models.store import from_pretrained, sizes_of
from firehose.optim.rule import RULES
from firehose.parallel import group

PARTS = ("model", "rule", "learner", "optimizer", "memory", "predictor")  # with a state each
AT_ONCE = 2048  # posts from before the stream that are remembered at once
AnyCorpus = Corpus | PictureCorpus


class Game:
    """All parts of a game, and the state they are in together.

    ``task_sizes`` are the posts of each task, where tasks come one after another; ``past`` are
    batches of posts that come before the stream, which the predictor may know; ``frozen`` are
    weights that do not learn, for a predictor that mixes them.
    """

    def __init__(
        self,
        model: Model,
        playing: Playing,
        task_sizes: tuple[int, ...] = (),
        past: Iterable[Batch] = (),
        frozen: Sequence[WeightSet] = (),
    ) -> None:
        sizes = (playing.step_size, playing.steps, model.max_tokens, task_sizes)
        setup = Setup(model, *sizes, playing.seed)
        self.model = model
        self.rule = RULES.make(playing.rule, model)
        self.learner = LEARNERS.make(playing.learner, setup)
        self.memory = BUFFERS.make(playing.memory, setup)
        self.optimizer = OPTIMIZERS.make(playing.optimizer, setup, self.rule)
        self.learner.refuse(self.memory, self.optimizer)
        first, *rest = self.optimizer.weights
        weights = (first, *frozen, *rest)
        self.predictor: Predictor = PREDICTORS.make(playing.predictor, setup, weights)
        self.past = past
        # With tasks, streams 1 and 3 of the seed have drawn the pictures and the order of tasks.
        self.generator = np.random.default_rng([playing.seed, 2] if task_sizes else playing.seed)
        self.played = 0  # rounds
        self.posts = 0  # that were played

    def rounds(self, stream: Iterable[Batch]) -> Iterator[Round]:
        """Play the batches of any stream, one after another."""
        if not self.played:
            self.predictor.prime(self.past)
        parts = (self.learner, self.optimizer, self.memory, self.generator)
        for played in rounds.play(stream, self.predictor, self.model, *parts):
            self.played += 1
            self.posts += len(played.batch)
            yield played

    def forget(self, user: int) -> dict[str, int]:
        """Erase all that is kept of a user; returns how many things of each kind there were."""
        users = self.model.users
        return {
            "remembered posts": self.memory.forget(user),
            "held-back posts": self.optimizer.forget(user),
            "things a learner kept": self.learner.forget(user),
            "things a predictor kept": self.predictor.forget(user),
            "vectors": int(users is not None and users.forget(user)),
        }

    def state(self) -> dict[str, Any]:
        """The state of all parts, between two rounds."""
        return {name: getattr(self, name).state() for name in PARTS} | {
            "generator": self.generator.bit_generator.state,
            "played": self.played,
            "posts": self.posts,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        for name in PARTS:
            getattr(self, name).restore(state.get(name, {}))  # older ones have no predictor
        self.generator.bit_generator.state = state["generator"]
        self.played, self.posts = state["played"], state["posts"]


def open_any(corpus: AnyCorpus | str | Path, settings: Settings) -> AnyCorpus:
    """Open the corpus at a path: of posts, or of pictures where the settings speak of pictures.

    A corpus that is open already is returned as it is.
    """
    if not isinstance(corpus, str | Path):
        return corpus
    if settings.pictures is None:
        return Corpus(corpus)
    return PictureCorpus(corpus, settings.pictures, settings.play.seed)


def make_model(corpus: AnyCorpus, settings: Settings, start: str | Path | None = None) -> Model:
    """Make the model of a game; the model at ``start``, if any, gives sizes and shared weights."""
    seed = settings.play.seed
    if isinstance(corpus, PictureCorpus):
        if group.size() > 1:
            raise FirehoseError("Pictures are played by one process: leave --processes out.")
        tasks = corpus.tasks
        sizes = (tasks.pixels, corpus.classes, tasks.train_pixels)
        return Perceptron.of_plan(settings.perceptron, *sizes, seed)
    model = from_pretrained(settings.model, corpus, start, seed)
    return spread(model.move_to(settings.compute.find_device()))


def open_stream(corpus: AnyCorpus, settings: Settings) -> BatchStream:
    """The batches of a corpus, one for each round."""
    if isinstance(corpus, PictureCorpus):
        return corpus.stream(settings.play.posts)
    return corpus.stream(settings.play.posts, settings.play.hours)


def make_game(corpus: AnyCorpus, settings: Settings, start: str | Path | None = None) -> Game:
    """Make a game; the model at ``start``, if any, gives its sizes and shared weights."""
    refuse_endless(len(open_stream(corpus, settings)) * settings.play.steps)
    if isinstance(corpus, PictureCorpus):
        return Game(make_model(corpus, settings), settings.play, corpus.task_sizes)
    sizes = sizes_of(settings.model, start)
    refuse_too_large("play", settings.model_copy(update={"model": sizes}), corpus)
    return Game(make_model(corpus, settings, start), settings.play, past=past_of(corpus))


def past_of(corpus: Corpus) -> Iterator[Batch]:
    """The posts of a corpus that come before its stream, a block at a time."""
    posts = corpus.splits.get("pretrain", ())
    for start in range(0, len(posts), AT_ONCE):
        yield corpus.splits["pretrain"].between(start, min(start + AT_ONCE, len(posts)))
