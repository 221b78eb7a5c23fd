"""Optimizers: how many of the steps that a learner proposes are taken, and kept. One file each."""

from collections.abc import Sequence

import numpy as np

from firehose.batch import Batch
from firehose.methods.predictor import RawWeights
from firehose.methods.step import Setup, Step, Steps
from firehose.models.model import WeightSet
from firehose.optim.rule import UpdateRule
from firehose.plugins import Choice, Plugin, Registry


class Optimizer(Plugin):
    """Decides what may be learned, and takes the steps of a round with its update rule."""

    holds_back = False  # whether posts wait in it before they are released
    takes_steps = True  # or the model stays as it is, and needs no rate
    weights: Sequence[WeightSet] = (RawWeights(),)  # to predict with; the first ones pay

    def __init__(self, settings: Choice, setup: Setup, rule: UpdateRule) -> None:
        self.settings = settings
        self.steps = setup.steps
        self.rule = rule

    def admit(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Take the posts that just arrived; returns those that are released for training."""
        return batch

    def descend(self, step: Step) -> Steps:
        """Take the steps of a round."""
        raise NotImplementedError

    def forget(self, user: int) -> int:
        """Erase a user's posts that wait in it; returns how many there were."""
        return 0


OPTIMIZERS = Registry(
    "optimizer",
    Optimizer,
    {
        "online-gd": "firehose.methods.optimizers.online_gd:OnlineGD",
        "congrad": "firehose.methods.optimizers.congrad:ConGraD",
        "frozen": "firehose.methods.optimizers.frozen:Frozen",
        "averaged": "firehose.methods.optimizers.averaged:Averaged",
    },
    default="congrad",
)
