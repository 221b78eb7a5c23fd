"""A-GEM: averaged gradient episodic memory (Chaudhry et al. 2019)."""

from firehose.methods.learners import Learner, draw_both
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
        fresh, remembered = draw_both(step, self.step_size)
        gradient = step.model.gradient(fresh)
        for posts in remembered:
            reference = step.model.gradient(posts)
            gradient.tokens += reference.tokens
            conflict = gradient.dot(reference)
            if conflict < 0:
                gradient.add(reference, -conflict / reference.dot(reference))
        return gradient
