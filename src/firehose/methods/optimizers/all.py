"""Two optimizers: how many of the steps that a learner proposes are taken, and kept."""

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from firehose.batch import Batch
from firehose.methods.buffers.storage import Buffer
from firehose.methods.learners.all import Learner
from firehose.models.model import Model
from firehose.models.users import COLUMNS
from firehose.optim.gradient import Gradient


class Steps(NamedTuple):
    """What became of the steps of one round."""

    taken: int = 0
    kept: int = 0
    tokens: int = 0  # trained on, steps that were taken back included
    norm: float = 0.0  # of the last gradient, before clipping
    losses: tuple[float, ...] = ()  # of the candidates on the validation posts


class Optimizer(Protocol):
    """Two methods: what may be learned, and the descent itself."""

    def admit(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Take the posts that just arrived; returns those that are released for training."""

    def descend(
        self,
        model: Model,
        learner: Learner,
        released: Batch,
        memory: Buffer,
        generator: np.random.Generator,
    ) -> Steps:
        """Take the steps of a round."""


class Rule(Protocol):
    """How a model moves along a gradient: Adam, or plain descent."""

    model: Model
    parameters: list[nn.Parameter]

    def new_round(self) -> None:
        """Count the rounds, for what depends on them."""

    def step(self, gradient: Gradient) -> float:
        """Move; returns the norm of the gradient as it came."""

    def moments(self) -> list[Tensor]:
        """What the rule remembers of earlier steps, for each shared weight."""


class OnlineGD:
    """A fixed number of steps."""

    def __init__(self, rule: Rule, steps: int) -> None:
        self.rule = rule
        self.steps = steps

    def admit(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Everything may be learned at once."""
        return batch

    def descend(
        self,
        model: Model,
        learner: Learner,
        released: Batch,
        memory: Buffer,
        generator: np.random.Generator,
    ) -> Steps:
        """Take all steps."""
        self.rule.new_round()
        taken, tokens, norm = 0, 0, 0.0
        for _ in range(self.steps):
            gradient = learner.gradient(model, released, memory, generator)
            if gradient is None:
                break
            norm = self.rule.step(gradient)
            taken, tokens = taken + 1, tokens + gradient.tokens
        return Steps(taken, taken, tokens, norm)


class ConGraD:
    """Up to so many steps; of the candidates on the way, the best on held-back posts is kept.

    What arrives goes into a validation buffer, and may be learned when it leaves. ``zero`` lets the
    candidate without any step win, too; with ``moments``, what the rule remembers goes back, too.
    """

    def __init__(
        self,
        rule: Rule,
        steps: int,
        validation: Buffer,
        posts: int,
        zero: bool = True,
        moments: bool = False,
    ) -> None:
        self.rule = rule
        self.steps = steps
        self.validation = validation
        self.posts = posts  # that every candidate of a round is scored on
        self.zero = zero
        self.anchor = Anchor(rule, moments)

    def admit(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """What the batch drives out of the validation buffer."""
        return self.validation.push(batch, generator)

    def descend(
        self,
        model: Model,
        learner: Learner,
        released: Batch,
        memory: Buffer,
        generator: np.random.Generator,
    ) -> Steps:
        """Take steps, and go back to the best candidate."""
        if not len(self.validation):
            return OnlineGD(self.rule, self.steps).descend(
                model, learner, released, memory, generator
            )
        self.rule.new_round()
        posts, anchor = self.validation.sample(self.posts, generator), self.anchor
        losses = [model.cost(posts) if self.zero else math.inf]
        best, taken, tokens, norm = 0, 0, 0, 0.0
        for number in range(1, self.steps + 1):
            gradient = learner.gradient(model, released, memory, generator)
            if gradient is None:
                break
            if best == taken:
                anchor.drop()
            anchor.spare(gradient.rows)
            norm = self.rule.step(gradient)
            taken, tokens = number, tokens + gradient.tokens
            losses.append(model.cost(posts))
            if losses[number] < losses[best]:
                best = number
        if best < taken:
            anchor.haul()
        return Steps(taken, best, tokens, norm, tuple(losses))


class Anchor:
    """One candidate to come back to: a copy of the shared weights, and of the users who moved."""

    def __init__(self, rule: Rule, moments: bool) -> None:
        self.moments = moments
        self.model = rule.model
        self.moving = [*rule.parameters, *(rule.moments() if moments else [])]
        self.held = [torch.empty_like(value) for value in self.moving]
        self.spared: list[tuple[Tensor, ...]] = []  # rows, and what they were

    @torch.no_grad()
    def drop(self) -> None:
        """Here."""
        torch._foreach_copy_(self.held, self.moving)
        self.spared = []

    def spare(self, rows: Tensor) -> None:
        """Note these users before they move."""
        names = COLUMNS if self.moments else COLUMNS[:1]
        self.spared.append((rows, *(getattr(self.model.users, name)[rows] for name in names)))

    @torch.no_grad()
    def haul(self) -> None:
        """Go back there; who moved several times goes back the same way."""
        torch._foreach_copy_(self.moving, self.held)
        for rows, vectors, *moments in reversed(self.spared):
            self.model.users.put(rows, vectors)
            for name, values in zip(COLUMNS[1:], moments, strict=False):
                getattr(self.model.users, name)[rows] = values
