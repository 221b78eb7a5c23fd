"""A-GEM: averaged gradient episodic memory (Chaudhry et al. 2019)."""

from firehose.methods.learners import Learner, draw, recall
from firehose.methods.step import Step
from firehose.optim.gradient import Gradient


class AGEM(Learner):
    """The gradient on stream data, made not to conflict with the one on remembered data.

    Where g · r < 0, what is opposed to r is taken out: g − (g · r / r · r) r, over all trained
    parameters, the users' vectors included.
    """

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on released posts, corrected by the one on remembered posts."""
        if not step.released:
            return None
        half = self.step_size // 2
        gradient = step.model.gradient(draw(step.released, self.step_size - half, step.generator))
        for remembered in recall(step.memory, half, step.generator):
            reference = step.model.gradient(remembered)
            gradient.tokens += reference.tokens
            conflict = gradient.dot(reference)
            if conflict < 0:
                gradient.add(reference, -conflict / reference.dot(reference))
        return gradient
