"""All parts of a game put together, and the state they are in together."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from firehose.data.corpus import Corpus
from firehose.game import round as game
from firehose.game.round import Round
from firehose.game.settings import Playing, Settings
from firehose.methods.buffers.all import make_buffer
from firehose.methods.buffers.storage import SavedBuffer
from firehose.methods.learners.all import make_learner
from firehose.methods.optimizers.all import ConGraD, OnlineGD
from firehose.models.personal import Personal
from firehose.models.store import from_pretrained, put_weights, weights
from firehose.optim.adam import Adam
from firehose.storage.checkpoints import State, part, prefixed


class Game:
    """All parts of a game, and the state they are in together."""

    def __init__(self, corpus: Corpus, playing: Playing, model: Personal) -> None:
        max_tokens = model.plan.max_tokens
        self.model = model
        self.adam = Adam(
            model, playing.rate, playing.clip, playing.user_rate, warmup=playing.warmup
        )
        self.learner = make_learner(playing.learner, playing.step_size)
        self.memory = make_buffer(playing.memory, max_tokens)
        self.validation = make_buffer(playing.validation, max_tokens)
        self.optimizer = (
            OnlineGD(self.adam, playing.steps)
            if playing.optimizer == "online-gd"
            else ConGraD(
                self.adam,
                playing.steps,
                self.validation,
                playing.scored,
                playing.zero,
                playing.moments,
            )
        )
        self.generator = np.random.default_rng(playing.seed)
        self.stream = corpus.stream(playing.posts, playing.hours)
        self.played = 0  # rounds

    def rounds(self) -> Iterator[Round]:
        """The rounds that are left."""
        parts = (self.model, self.learner, self.optimizer, self.memory, self.generator)
        for played in game.play(self.stream, *parts):
            self.played += 1
            yield played

    def state(self) -> State:
        """All of it, as it is between two rounds."""
        tensors = (
            weights(self.model)
            | prefixed("adam", self.adam.state())
            | prefixed("memory", _as_tensors(self.memory))
            | prefixed("validation", _as_tensors(self.validation))
        )
        facts = {
            "played": self.played,
            "position": self.stream.position,
            "generator": self.generator.bit_generator.state,
            "random": self.model.random.state(),
        }
        return State(tensors, facts)

    def restore(self, state: State) -> None:
        """Go on from there."""
        tensors, facts = state
        put_weights(self.model, tensors)
        self.adam.restore(part("adam", tensors))
        for name, buffer in (("memory", self.memory), ("validation", self.validation)):
            buffer.restore({key: value.numpy() for key, value in part(name, tensors).items()})
        self.played = facts["played"]
        self.stream.seek(facts["position"])
        self.generator.bit_generator.state = facts["generator"]
        self.model.random.restore(facts["random"])


def _as_tensors(buffer: SavedBuffer) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in buffer.state().items()}


def make_game(corpus: Corpus, settings: Settings, start: str | Path | None = None) -> Game:
    """A game before its first round; a pretrained model to ``start`` with gives the sizes."""
    model = from_pretrained(settings.model, corpus, start, settings.play.seed)
    return Game(corpus, settings.play, model.move_to(settings.compute.find_device()))
