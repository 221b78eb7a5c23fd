"""Frozen: no step is ever taken, so that all that is learned is learned by memories."""

from firehose.methods.optimizers import Optimizer
from firehose.methods.step import Step, Steps


class Frozen(Optimizer):
    """Leaves the model as it began."""

    takes_steps = False

    def descend(self, step: Step) -> Steps:
        """Take no step."""
        return Steps()
