"""Online GD: a fixed number of gradient steps in every round."""

from firehose.methods.optimizers import Optimizer
from firehose.methods.step import Step, Steps
from firehose.optim.rule import UpdateRule


class OnlineGD(Optimizer):
    """Takes and keeps all K steps of a round."""

    def descend(self, step: Step) -> Steps:
        """Take all steps, or as many as the learner has a gradient for."""
        return descend_all(self.rule, self.steps, step)


def descend_all(rule: UpdateRule, steps: int, step: Step) -> Steps:
    """Take up to so many steps, and keep them all."""
    rule.begin_round()
    taken, tokens, norm = 0, 0, 0.0
    for _ in range(steps):
        gradient = step.learner.gradient(step)
        if gradient is None:
            break
        norm = rule.step(gradient)
        step.learner.after_step(step)
        taken, tokens = taken + 1, tokens + gradient.tokens
    return Steps(taken, taken, tokens, norm)
