"""Training that sees every post many times: pretraining, and the offline oracle."""

import copy
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game.evaluate import cross_costs
from firehose.game.folder import Run
from firehose.game.limits import refuse_endless, refuse_too_large
from firehose.game.outcome import Epoch, TrainingOutcome
from firehose.game.scoring import costs, score_past, write_costs
from firehose.game.settings import Training
from firehose.models.data_parallel import plain, spread
from firehose.models.store import from_pretrained, sizes_of
from firehose.optim.adam import Adam
from firehose.optim.schedules import cosine, warmup
from firehose.parallel.group import first
from firehose.parallel.shards import Shards
from firehose.progress import say
from firehose.storage.files import write_whole
from firehose.storage.seals import File


class Fit:
    """A training: steps over all posts in random order, epoch after epoch.

    The rate warms up and then falls to 0 along a cosine, always to its end; the weights of the
    epoch with the best validation perplexity are kept.
    """

    unit, doing = "step", "training"

    def __init__(self, run: Run) -> None:
        if not isinstance(run.corpus, Corpus):
            raise FirehoseError(f"{run.corpus.path} has pictures; models are trained on posts.")
        if Shards.here().parts > 1:
            raise FirehoseError(
                "In a training, every process has all users: leave out --shard-users."
            )
        training: Training = getattr(run.settings, run.card.kind)
        sizes = sizes_of(run.settings.model, run.start)
        settings = run.settings.model_copy(update={"model": sizes})
        refuse_too_large(run.card.kind, settings, run.corpus)
        model = from_pretrained(run.settings.model, run.corpus, run.start, training.seed)
        self.run = run.with_model(model.plan)
        self.model: Any = spread(model.move_to(run.settings.compute.find_device()))
        self.corpus, self.training = run.corpus, training
        self.posts = run.corpus.posts_of(run.card.split)
        rule = Adam.Settings(rate=training.rate, clip=training.clip, user_rate=training.user_rate)
        self.adam = Adam(rule, self.model)
        self.steps_per_epoch = math.ceil(len(self.posts) / training.posts)
        self.total = self.steps_per_epoch * training.epochs
        refuse_endless(self.total)
        self.losses: list[float] = []  # of this epoch
        self.tokens = 0
        self.seconds = 0.0
        self.history: list[Epoch] = []
        self.best: dict[str, Any] = {}

    @property
    def done(self) -> int:
        """Steps that were taken."""
        return len(self.history) * self.steps_per_epoch + len(self.losses)

    def units(self) -> Iterator[None]:
        """Take the steps that are left; yields after each."""
        size = self.training.posts
        while (number := len(self.history)) < self.training.epochs:
            order = np.random.default_rng([self.training.seed, number]).permutation(len(self.posts))
            self.model.train()
            for place in range(len(self.losses) * size, len(order), size):
                self._step(order[place : place + size])
                if place + size < len(order):
                    yield
            self._end_epoch()
            yield

    def _step(self, indices: np.ndarray) -> None:
        """Learn from the posts of these indices."""
        begun = time.monotonic()
        gradient = self.model.gradient(self.posts.batch(indices))
        rate = self.training.rate * warmup(self.done + 1, self.training.warmup)
        self.adam.step(gradient, rate * cosine(self.done, self.total))
        self.losses.append(gradient.loss)
        self.tokens += gradient.tokens
        self.seconds += time.monotonic() - begun

    def _end_epoch(self) -> None:
        """Note how the epoch went, and the weights if they are the best so far."""
        validation = costs(self.model, self.corpus.splits["validation"], None).perplexity()
        if all(validation < earlier.validation for earlier in self.history):
            self.best = copy.deepcopy(self.model.state())
        number, loss = len(self.history) + 1, float(np.mean(self.losses))
        epoch = Epoch(number, loss, validation, self.tokens, self.seconds)
        self.history.append(epoch)
        self.losses, self.tokens, self.seconds = [], 0, 0.0
        say(epoch.sentence())

    def note(self) -> str:
        """The epoch, the loss and the tokens per second, for the progress bar."""
        number = len(self.history) + bool(self.losses)
        told = f"epoch {number} of {self.training.epochs}"
        if self.losses:
            pace = self.tokens / max(self.seconds, 1e-9)
            told += f" · {self.losses[-1]:.3f} nats/token · {pace:,.0f} tokens/s"
        return told

    def flush(self) -> Mapping[str, File]:
        """Write ``epochs.jsonl``, for people to read: no checkpoint counts on it."""
        lines = [json.dumps(asdict(epoch)) + "\n" for epoch in self.history]
        write_whole(self.run.folder / "epochs.jsonl", "".join(lines).encode())
        return {}

    def state(self) -> dict[str, Any]:
        """Model, moments, position, and the best weights so far."""
        return {
            "model": self.model.state(),
            "adam": self.adam.state(),
            "best": self.best,
            "losses": self.losses,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "history": [asdict(epoch) for epoch in self.history],
        }

    def restore(self, state: Mapping[str, Any], _logs: Mapping[str, File]) -> None:
        """Become what ``state`` was taken from."""
        self.model.restore(state["model"])
        self.adam.restore(state["adam"])
        self.best = dict(state["best"])
        self.losses, self.tokens, self.seconds = state["losses"], state["tokens"], state["seconds"]
        self.history = [Epoch(**epoch) for epoch in state["history"]]

    def forget(self, user: int) -> dict[str, int]:
        """Erase a user's vector and moments, also from the best weights; returns the number."""
        if self.best:
            now = copy.deepcopy(self.model.state())
            self.model.restore(self.best)
            self.model.users.forget(user)
            self.best = copy.deepcopy(self.model.state())
            self.model.restore(now)
        return {"vectors": int(self.model.users.forget(user))}

    def finish(self) -> TrainingOutcome:
        """Save the model of the best epoch, and score it on held-out posts."""
        self.model.restore(self.best)
        first(self.run.save_model, plain(self.model))
        self.run.score(self.model)
        if crossed := cross_costs(self.model, self.corpus.splits["test"]):
            first(write_costs, self.run.folder, "crossed", crossed)
        if self.run.card.kind == "offline":
            first(write_costs, self.run.folder, "past", score_past(self.model, self.posts))
        compute = {
            "gradient steps": self.total,
            "tokens trained on": sum(epoch.tokens for epoch in self.history),
            "seconds": sum(epoch.seconds for epoch in self.history),
        }
        return TrainingOutcome(history=self.history, compute=compute)
