"""Online only: a step sees the posts that the stream has just released, and no others."""

from firehose.methods.learners import Learner, draw
from firehose.methods.step import Step
from firehose.optim.gradient import Gradient


class OnlineOnly(Learner):
    """Learns from released posts alone."""

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on released posts."""
        if not step.released:
            return None
        return step.model.gradient(draw(step.released, self.step_size, step.generator))
