"""Training that sees every post many times: pretraining, and the offline oracle."""

import copy
import json
import math
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from firehose.data.corpus import Corpus, open_corpus
from firehose.game.evaluate import cross_costs
from firehose.game.folder import Options, RunCard, read_result
from firehose.game.run import begin
from firehose.game.scoring import costs, score_held_out, write_costs
from firehose.game.settings import Settings, Training
from firehose.models.personal import Personal
from firehose.models.store import Trained, from_pretrained, save
from firehose.optim.adam import Adam
from firehose.optim.schedules import cosine, warmup
from firehose.progress import say
from firehose.report.tables import Table
from firehose.storage.files import write_whole


class Epoch(NamedTuple):
    """What one pass over the posts came to."""

    number: int
    loss: float  # mean training loss, nats a token
    validation: float  # word perplexity
    tokens: int
    seconds: float

    def sentence(self) -> str:
        """How the epoch went, for people."""
        return (
            f"epoch {self.number}: {self.loss:.3f} nats a token in training, word perplexity "
            f"{self.validation:.1f} on validation posts; "
            f"{self.tokens / max(self.seconds, 1e-9):,.0f} tokens/s, {self.seconds:.0f} s"
        )


class Fit:
    """A training in a run's folder: steps over all posts in random order, epoch after epoch.

    The rate warms up and then falls to 0 along a cosine, always to its end; the weights of the
    epoch with the best validation perplexity are kept.
    """

    unit = "step"

    def __init__(
        self, folder: Path, card: RunCard, corpus: Corpus, settings: Settings, model: Personal
    ) -> None:
        self.folder = folder
        self.card = card
        self.corpus = corpus
        self.settings = settings
        self.model = model
        self.training: Training = getattr(settings, card.kind)
        self.posts = corpus.posts_of(card.split)
        training = self.training
        rule = Adam.Settings(rate=training.rate, clip=training.clip, user_rate=training.user_rate)
        self.adam = Adam(rule, model)
        self.steps_per_epoch = math.ceil(len(self.posts) / training.posts)
        self.done = 0  # steps
        self.total = self.steps_per_epoch * training.epochs
        self.losses: list[float] = []  # of this epoch
        self.tokens = 0
        self.seconds = 0.0
        self.history: list[Epoch] = []
        self.best: dict[str, Any] = {}

    @classmethod
    def make(
        cls,
        folder: Path,
        card: RunCard,
        corpus: Corpus,
        settings: Settings,
        start: str | Path | None,
    ) -> "Fit":
        """A training before its first step, with a fresh or a pretrained model."""
        training: Training = getattr(settings, card.kind)
        model = from_pretrained(settings.model, corpus, start, training.seed)
        resolved = settings.model_copy(update={"model": model.plan})
        return cls(folder, card, corpus, resolved, model.move_to(settings.compute.find_device()))

    def units(self) -> Generator[None]:
        """Take the steps that are left; yields after each."""
        size = self.training.posts
        while len(self.history) < self.training.epochs:
            number = len(self.history)
            order = np.random.default_rng([self.training.seed, number]).permutation(len(self.posts))
            self.model.train()
            first = self.done - number * self.steps_per_epoch
            for place in range(first * size, len(order), size):
                self._step(order[place : place + size])
                if place + size < len(order):
                    yield
            self._end_epoch()
            yield

    def _step(self, indices: np.ndarray) -> None:
        """Learn from the posts of these indices."""
        begun = time.monotonic()
        gradient = self.model.gradient(self.posts.batch(indices))
        training = self.training
        rate = training.rate * warmup(self.done + 1, training.warmup)
        self.adam.step(gradient, rate * cosine(self.done, self.total))
        self.done += 1
        self.losses.append(gradient.loss)
        self.tokens += gradient.tokens
        self.seconds += time.monotonic() - begun

    def _end_epoch(self) -> None:
        """Note how the epoch went, and the weights if they are the best so far."""
        validation = costs(self.model, self.corpus.splits["validation"], None).perplexity()
        number, loss = len(self.history) + 1, float(np.mean(self.losses))
        epoch = Epoch(number, loss, validation, self.tokens, self.seconds)
        if all(validation < earlier.validation for earlier in self.history):
            self.best = copy.deepcopy(self.model.state())
        self.history.append(epoch)
        self.losses, self.tokens, self.seconds = [], 0, 0.0
        say(epoch.sentence())

    def note(self) -> str:
        """How things stand."""
        if not self.losses:
            return f"epoch {len(self.history)} of {self.training.epochs}"
        pace = self.tokens / max(self.seconds, 1e-9)
        return (
            f"epoch {len(self.history) + 1} of {self.training.epochs} · "
            f"{self.losses[-1]:.3f} nats/token · {pace:,.0f} tokens/s"
        )

    def flush(self) -> None:
        """Write the epochs that are over."""
        lines = [json.dumps(epoch._asdict()) + "\n" for epoch in self.history]
        write_whole(self.folder / "epochs.jsonl", "".join(lines).encode())

    def state(self) -> dict[str, Any]:
        """Model, moments, position, and the best weights so far."""
        return {
            "model": self.model.state(),
            "adam": self.adam.state(),
            "best": self.best,
            "done": self.done,
            "losses": self.losses,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "history": [epoch._asdict() for epoch in self.history],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.model.restore(state["model"])
        self.adam.restore(state["adam"])
        self.best = dict(state["best"])
        self.done, self.losses = state["done"], state["losses"]
        self.tokens, self.seconds = state["tokens"], state["seconds"]
        self.history = [Epoch(**epoch) for epoch in state["history"]]

    def forget(self, user: int) -> dict[str, int]:
        """Erase a user's vector and moments, also from the best weights; returns what there was."""
        if self.best:
            now = copy.deepcopy(self.model.state())
            self.model.restore(self.best)
            self.model.users.forget(user)
            self.best = copy.deepcopy(self.model.state())
            self.model.restore(now)
        return {"vectors": int(self.model.users.forget(user))}

    def finish(self) -> "TrainingOutcome":
        """Save the model of the best epoch, score it on held-out posts, and say what came of it."""
        self.model.restore(self.best)
        trained = Trained.of_corpus(self.model.eval(), self.corpus, self.card.origin())
        save(trained, self.folder / "model", replace=True)
        score_held_out(self.folder, self.corpus, self.model)
        if self.model.is_personal and (
            crossed := cross_costs(self.model, self.corpus.splits["test"])
        ):
            write_costs(self.folder, "crossed", crossed)
        outcome = TrainingOutcome(self.history, self.steps_per_epoch)
        text = json.dumps(outcome.public(), indent=1)
        write_whole(self.folder / "result.json", f"{text}\n".encode())
        return outcome


class TrainingOutcome(NamedTuple):
    """What came of a training."""

    history: list[Epoch]
    steps_per_epoch: int

    def best(self) -> Epoch:
        """The epoch whose weights were kept."""
        return min(self.history, key=lambda epoch: epoch.validation)

    def tables(self) -> list[Table]:
        """The result for people."""
        rows = [
            [
                str(epoch.number),
                f"{epoch.loss:.3f}",
                f"{epoch.validation:.1f}",
                "kept" if epoch == self.best() else "",
            ]
            for epoch in self.history
        ]
        heads = ["epoch", "nats a token, training", "word perplexity, validation", ""]
        return [Table(heads, rows)]

    @property
    def compute(self) -> dict[str, float]:
        """Gradient steps, tokens trained on, and seconds in all."""
        return {
            "gradient steps": len(self.history) * self.steps_per_epoch,
            "tokens trained on": sum(epoch.tokens for epoch in self.history),
            "seconds": sum(epoch.seconds for epoch in self.history),
        }

    def public(self) -> dict[str, Any]:
        """As plain values."""
        history = [epoch._asdict() for epoch in self.history]
        return {
            "history": history,
            "steps_per_epoch": self.steps_per_epoch,
            "compute": self.compute,
        }

    @classmethod
    def read(cls, folder: Path) -> "TrainingOutcome":
        """What a training that is over has left in its folder."""
        found = read_result(folder)
        return cls([Epoch(**epoch) for epoch in found["history"]], found["steps_per_epoch"])


def pretrain(
    corpus: Corpus | str | Path,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot be changed)
    split: str = "pretrain",
    replace: bool = False,
    checkpoint_every: float = 300,
) -> TrainingOutcome:
    """Train a user-agnostic model for every later one to begin with.

    The model is in ``out/model`` when it is over; ``split`` names the posts that it learns from.
    """
    model = settings.model.model_copy(update={"architecture": "agnostic"})
    agnostic = settings.model_copy(update={"model": model})
    opened = open_corpus(corpus)
    options = Options(replace, checkpoint_every)
    made: TrainingOutcome = begin("pretrain", opened, out, agnostic, None, split, options)
    return made


def offline(
    corpus: Corpus | str | Path,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot be changed)
    start: str | Path | None = None,
    replace: bool = False,
    checkpoint_every: float = 300,
) -> TrainingOutcome:
    """Train a model on all training posts, many times over, which no learner of a stream can do.

    With ``start``, a pretrained model gives the sizes and the shared weights.
    """
    opened = open_corpus(corpus)
    options = Options(replace, checkpoint_every)
    made: TrainingOutcome = begin("offline", opened, out, settings, start, "train", options)
    return made
