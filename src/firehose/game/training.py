"""Training that sees every post many times: pretraining, and the offline oracle.

A killed training goes on when its command is given again: its state is kept beside the model to
be, in ``MODEL.training``, and the model itself appears when it is finished.
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from firehose.data.corpus import Corpus, Split, open_corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.scoring import costs
from firehose.game.settings import Settings, Training
from firehose.interrupts import stop_requests
from firehose.machine import machine
from firehose.models.personal import Personal
from firehose.models.store import (
    WEIGHTS,
    Trained,
    from_pretrained,
    put_weights,
    read_card,
    save,
    weights,
)
from firehose.optim.adam import Adam, NotFinite
from firehose.progress import say, track
from firehose.storage.checkpoints import Checkpoints, State, part, prefixed
from firehose.storage.workspace import refuse_existing


class Epoch(NamedTuple):
    """What one pass over the posts came to."""

    number: int
    loss: float  # mean training loss, nats a token
    validation: float  # word perplexity
    tokens: int
    seconds: float


class Fit:
    """A training in progress: everything that must be saved to go on to the same bits."""

    def __init__(
        self, model: Personal, posts: Split, training: Training, identity: dict[str, Any]
    ) -> None:
        self.model = model
        self.posts = posts
        self.training = training
        self.identity = identity  # what must be the same for a training to go on
        self.adam = Adam(model, training.rate, training.clip, training.user_rate)
        self.steps_per_epoch = math.ceil(len(posts) / training.posts)
        self.step = 0
        self.losses: list[float] = []  # of this epoch
        self.tokens = 0
        self.seconds = 0.0
        self.history: list[Epoch] = []
        self.best: dict[str, Tensor] = {}

    def rate(self) -> float:
        """The learning rate of the next step."""
        training = self.training
        warm = min(1.0, (self.step + 1) / max(training.warmup, 1))
        total = self.steps_per_epoch * training.epochs
        return training.rate * warm * (0.5 + 0.5 * math.cos(math.pi * self.step / total))

    def epoch(self) -> Iterator[float]:
        """Take the steps that are left of this epoch; each yields its loss."""
        size, number = self.training.posts, len(self.history)
        order = np.random.default_rng([self.training.seed, number]).permutation(len(self.posts))
        self.model.train()
        for start in range((self.steps_per_epoch - self.left()) * size, len(order), size):
            begun = time.monotonic()
            batch = self.posts.batch(order[start : start + size])
            gradient = self.model.gradient(batch)
            try:
                self.adam.step(gradient, self.rate())
            except NotFinite as error:
                raise FirehoseError(
                    f"Step {self.step + 1} has {error}; nothing is learned from that. "
                    "Give it a lower rate (--set pretrain.rate=… or offline.rate=…)."
                ) from None
            self.step += 1
            self.losses.append(gradient.loss)
            self.tokens += gradient.tokens
            self.seconds += time.monotonic() - begun
            yield gradient.loss

    def left(self) -> int:
        """The steps of this epoch that are still to be taken."""
        return self.steps_per_epoch * (len(self.history) + 1) - self.step

    def note(self) -> str:
        """How things stand."""
        return f"{self.losses[-1]:.3f} nats/token · {self.tokens / self.seconds:,.0f} tokens/s"

    def end_epoch(self, validation: float) -> Epoch:
        """Note how the epoch went, and the weights if they are the best so far."""
        number = len(self.history) + 1
        loss = float(np.mean(self.losses))
        epoch = Epoch(number, loss, validation, self.tokens, self.seconds)
        if all(validation < earlier.validation for earlier in self.history):
            self.best = {name: value.clone() for name, value in weights(self.model).items()}
        self.history.append(epoch)
        self.losses, self.tokens, self.seconds = [], 0, 0.0
        return epoch

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done, or the last ones were in vain."""
        if len(self.history) == self.training.epochs:
            return True
        values = [epoch.validation for epoch in self.history]
        best = values.index(min(values)) if values else 0
        return len(values) - 1 - best >= self.training.patience

    def state(self) -> State:
        """All of it."""
        tensors = weights(self.model) | prefixed("adam", self.adam.state())
        facts = {
            "identity": self.identity,
            "step": self.step,
            "losses": self.losses,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "history": self.history,
            "random": self.model.random.state(),
        }
        return State(tensors | prefixed("best", self.best), facts)

    def restore(self, state: State) -> None:
        """Go on from there."""
        put_weights(self.model, state.tensors)
        self.adam.restore(part("adam", state.tensors))
        self.best = part("best", state.tensors)
        facts = state.facts
        self.step, self.losses = facts["step"], facts["losses"]
        self.tokens, self.seconds = facts["tokens"], facts["seconds"]
        self.history = [Epoch(*epoch) for epoch in facts["history"]]
        self.model.random.restore(facts["random"])

    def take_best(self) -> None:
        """Put the weights of the best epoch into the model."""
        put_weights(self.model, self.best)


def pretrain(
    corpus: Corpus | str | Path,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot be changed)
    split: str = "pretrain",
    replace: bool = False,
    checkpoint_every: float = 300,
) -> Trained:
    """Train a user-agnostic model for every later one to begin with."""
    opened = open_corpus(corpus)
    plan = settings.model.model_copy(update={"architecture": "agnostic"})
    model = Personal(plan, opened.vocabulary.size, settings.pretrain.seed)
    model.move_to(settings.compute.find_device())
    trained = Trained.of_corpus(model, opened)
    run = Run("pretrain", opened, split, settings.pretrain, None)
    return run.finish(trained, Path(out), replace, checkpoint_every)


def offline(
    corpus: Corpus | str | Path,
    out: str | Path,
    start: str | Path | None = None,
    settings: Settings = Settings(),  # noqa: B008 (it cannot be changed)
    replace: bool = False,
    checkpoint_every: float = 300,
) -> Trained:
    """Train a model on all training posts, many times over: what no continual learner can do.

    With ``start``, a pretrained model gives the sizes and the shared weights.
    """
    opened = open_corpus(corpus)
    model = from_pretrained(settings.model, opened, start, settings.offline.seed)
    model.move_to(settings.compute.find_device())
    trained = Trained.of_corpus(model, opened)
    run = Run("offline", opened, "train", settings.offline, start)
    return run.finish(trained, Path(out), replace, checkpoint_every)


class Run(NamedTuple):
    """One training from its command to its model."""

    kind: str
    corpus: Corpus
    split: str
    training: Training
    start: str | Path | None

    def posts(self) -> Split:
        """What is trained on."""
        found = self.corpus.splits.get(self.split)
        if found is None or not len(found):
            raise FirehoseError(
                f"{self.corpus.path} has no posts in {self.split!r}; prepare it with "
                "--pretrain-before, or train on others: --split train."
            )
        return found

    def finish(self, trained: Trained, out: Path, replace: bool, every: float) -> Trained:
        """Train, from where an earlier attempt was stopped if there is one, and save."""
        refuse_existing(out, replace)
        checkpoints = Checkpoints(out.parent / f"{out.name}.training")
        identity = self._identity(trained.model)
        fit = Fit(trained.model, self.posts(), self.training, identity)
        with checkpoints.held():
            if (found := checkpoints.latest()) and found.facts["identity"] == identity:
                fit.restore(found)
                say(f"Going on from step {fit.step:,}, as {checkpoints.folder} has it.")
            elif found:
                if not replace:
                    raise FirehoseError(
                        f"{checkpoints.folder} is of a training with other settings; choose "
                        "another --out, or add --replace to begin again."
                    )
                checkpoints.drop_after(-1)  # or they would pass for newer ones of this training
            self._train(fit, checkpoints, every)
            fit.take_best()
            trained.model.eval()
            trained.origin = identity | {
                "history": [epoch._asdict() for epoch in fit.history],
                "machine": machine(),
                "place": str(trained.model.device),
            }
            save(trained, out, replace)
            checkpoints.remove()
        return trained

    def _train(self, fit: Fit, checkpoints: Checkpoints, every: float) -> None:
        """Epoch after epoch, with a checkpoint after each, from time to time, and on request."""
        validation = self.corpus.splits["validation"]
        written = time.monotonic()
        with stop_requests() as request:
            while not fit.is_over:
                doing = f"epoch {len(fit.history) + 1} of {self.training.epochs}"
                for _ in track(fit.epoch(), fit.left(), doing, fit.note):
                    if request.made or time.monotonic() - written >= every:
                        checkpoints.write(fit.step, fit.state())
                        written = time.monotonic()
                    if request.made:
                        raise Stopped(
                            f"Stopped after step {fit.step:,}; the same command goes on from there."
                        )
                epoch = fit.end_epoch(costs(fit.model, validation, "validation").per_word())
                say(sentence(epoch))
                checkpoints.write(fit.step, fit.state())

    def _identity(self, model: Personal) -> dict[str, Any]:
        """What must be the same for a training to go on."""
        return {
            "kind": self.kind,
            "corpus": {name: file.sha256 for name, file in self.corpus.manifest.files.items()},
            "split": self.split,
            "start": read_card(Path(self.start)).files[WEIGHTS].sha256 if self.start else None,
            "model": model.plan.public(),
            "training": self.training.public(),
        }


def sentence(epoch: Epoch) -> str:
    """How an epoch went, for people."""
    rate = epoch.tokens / max(epoch.seconds, 1e-9)
    return (
        f"epoch {epoch.number}: {epoch.loss:.3f} nats a token in training, word perplexity "
        f"{epoch.validation:.1f} on validation posts; {rate:,.0f} tokens/s, {epoch.seconds:.0f} s"
    )
