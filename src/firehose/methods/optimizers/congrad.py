"""ConGraD: of the candidates of a round, the best on held-back posts is kept (Hu et al.)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor

from firehose.batch import Batch
from firehose.methods.buffers import BUFFERS, BufferChoice, BufferSettings
from firehose.methods.optimizers.online_gd import OnlineGD
from firehose.methods.snapshot import Snapshot
from firehose.methods.step import Setup, Step, Steps
from firehose.optim.average import Average
from firehose.optim.rule import UpdateRule
from firehose.plugins import Choice


class ConGraD(OnlineGD):
    """Takes up to K steps, and goes back to the candidate that is best on held-back posts.

    What arrives goes into a validation buffer, and may be learned from when it leaves. The
    candidates are the weights before the first step (with ``allow_no_step``) and after each step,
    and averages of the weights, where an optimizer around it has some to offer.
    """

    class Settings(Choice):
        """The defaults are the paper's."""

        kind: str = "congrad"
        validation: BufferChoice = BufferSettings(per_user=1)
        validation_batch: int = Field(default=128, ge=1)  # posts that candidates are compared on
        allow_no_step: bool = True  # whether a round may end where it began
        restore_moments: bool = False  # whether the rule's moments go back with the weights

    holds_back = True
    averages: Sequence[Average] = ()  # more candidates
    settings: Settings

    def __init__(self, settings: Settings, setup: Setup, rule: UpdateRule) -> None:
        super().__init__(settings, setup, rule)
        self.validation = BUFFERS.make(settings.validation, setup)
        self.snapshot = Snapshot(rule, settings.restore_moments)

    def admit(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Hold the batch back; returns the posts that leave the validation buffer for it."""
        return self.validation.push(batch, generator)

    def descend(self, step: Step) -> Steps:
        """Take steps, and go back to the best candidate; keep all where no posts are held back."""
        if not len(self.validation):
            return super().descend(step)
        self.rule.begin_round()
        model, snapshot = step.model, self.snapshot
        posts = self.validation.sample(self.settings.validation_batch, step.generator)
        losses = [model.cost(posts) if self.settings.allow_no_step else math.inf]
        best, taken, tokens, norm = 0, 0, 0, 0.0
        moved: list[Tensor] = []  # rows of users
        for number in range(1, self.steps + 1):
            gradient = step.learner.gradient(step)
            if gradient is None:
                break
            if best == taken:
                snapshot.save()
            snapshot.save_rows(gradient.rows)
            norm = self.rule.step(gradient)
            step.learner.after_step(step)
            taken, tokens = number, tokens + gradient.tokens
            moved.append(gradient.rows)
            losses.append(model.cost(posts))
            if losses[number] < losses[best]:
                best = number
        averaged = [self._cost(average, step, posts) for average in self.averages]
        if min(averaged, default=math.inf) < losses[best]:
            self.averages[int(np.argmin(averaged))].adopt(posts.user, moved)
            best = 0
        elif best < taken:
            snapshot.restore()
        return Steps(taken, best, tokens, norm, (*losses, *averaged))

    @staticmethod
    def _cost(average: Average, step: Step, posts: Batch) -> float:
        with average.in_use(posts.user):
            return step.model.cost(posts)

    def forget(self, user: int) -> int:
        """Erase a user's posts from the validation buffer; returns how many there were."""
        return self.validation.forget(user)

    def state(self) -> dict[str, Any]:
        """The posts that are held back."""
        return {"validation": self.validation.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Hold back the posts that ``state`` has."""
        self.validation.restore(state["validation"])
