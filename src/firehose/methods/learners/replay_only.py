"""Replay only: a step sees remembered posts, and no others."""

from firehose.methods.learners import Learner, recall
from firehose.methods.step import Step
from firehose.optim.gradient import Gradient


class ReplayOnly(Learner):
    """Learns from remembered posts alone."""

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on remembered posts."""
        recalled = recall(step.memory, self.step_size, step.generator)
        return step.model.gradient(recalled[0]) if recalled else None
