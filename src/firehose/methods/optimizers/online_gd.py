"""Online GD: a fixed number of gradient steps in every round."""

from firehose.methods.optimizers import Optimizer
from firehose.methods.step import Step, Steps


class OnlineGD(Optimizer):
    """Takes and keeps all K steps of a round."""

    def descend(self, step: Step) -> Steps:
        """Take all steps, or as many as the learner has a gradient for."""
        self.rule.begin_round()
        taken, tokens, norm = 0, 0, 0.0
        for _ in range(self.steps):
            gradient = step.learner.gradient(step)
            if gradient is None:
                break
            norm = self.rule.step(gradient)
            step.learner.after_step(step)
            taken, tokens = taken + 1, tokens + gradient.tokens
        return Steps(taken, taken, tokens, norm)
