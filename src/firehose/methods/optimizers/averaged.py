"""Averaged: predictions come from averages of the weights, and learning goes on from the raw ones.

An average of many steps at a constant rate does what a falling rate does, and needs no end to fall
towards (Polyak and Juditsky 1992); one over the latest steps also follows the stream.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny

from firehose.batch import Batch
from firehose.errors import FirehoseError
from firehose.methods.optimizers import OPTIMIZERS, Optimizer
from firehose.methods.optimizers.congrad import ConGraD
from firehose.methods.predictor import RawWeights
from firehose.methods.step import Setup, Step, Steps
from firehose.optim.average import Average, Horizon
from firehose.optim.rule import UpdateRule
from firehose.plugins import Choice

Inner = Annotated[SerializeAsAny[Choice], BeforeValidator(OPTIMIZERS.settings)]


class Averaged(Optimizer):
    """Leaves the steps to another optimizer, and averages the weights that each round ends with.

    A horizon above 1 is a number of steps (500: a decay of 0.998), which the average grows into;
    one below 1 is a share of the steps so far, and means the same at every length of a stream and
    number of steps a round. The first average pays, is scored, and is saved.
    """

    class Settings(Choice):
        """One average, of the last tenth of the steps, around Online GD."""

        kind: str = "averaged"
        inner: Inner = Field(default="online-gd", validate_default=True)
        horizons: tuple[Horizon, ...] = Field(default=(0.1,), min_length=1)
        users: bool = True  # whether the vectors of users are averaged, too
        candidates: bool = False  # whether ConGraD inside may go on from an average

    settings: Settings

    def __init__(self, settings: Settings, setup: Setup, rule: UpdateRule) -> None:
        super().__init__(settings, setup, rule)
        self.inner = OPTIMIZERS.make(settings.inner, setup, rule)
        self.holds_back = self.inner.holds_back
        made = (Average(rule.model, horizon, settings.users) for horizon in settings.horizons)
        self.averages = list(made)
        self.weights = (*self.averages, RawWeights())
        if settings.candidates:
            if not isinstance(self.inner, ConGraD):
                raise FirehoseError(
                    f"{settings.inner.kind} has no candidates: play.optimizer.candidates needs "
                    "--set play.optimizer.inner=congrad."
                )
            self.inner.averages = self.averages

    def admit(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """What the inner optimizer releases."""
        return self.inner.admit(batch, generator)

    def descend(self, step: Step) -> Steps:
        """Let the inner optimizer take its steps; those that are kept move the averages."""
        steps = self.inner.descend(step)
        for average in self.averages:
            average.follow(steps.kept)
        return steps

    def forget(self, user: int) -> int:
        """Erase a user's posts that wait; the average of a vector goes with the vector."""
        return self.inner.forget(user)

    def state(self) -> dict[str, Any]:
        """The averages, and what the inner optimizer keeps."""
        averages = {str(number): each.state() for number, each in enumerate(self.averages)}
        return {"inner": self.inner.state(), "averages": averages}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.inner.restore(state["inner"])
        for number, average in enumerate(self.averages):
            average.restore(state["averages"][str(number)])
