"""MIR: maximally interfered retrieval (Aljundi et al. 2019)."""

import copy

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from firehose.batch import Batch
from firehose.methods.learners import Learner, draw_both, recall, weighted_sum
from firehose.methods.snapshot import virtual_step
from firehose.methods.step import Step
from firehose.models.model import Model
from firehose.optim.gradient import Gradient
from firehose.plugins import Choice


class MIR(Learner):
    """Mixed replay of the remembered posts that a step on the released ones would harm most."""

    class Settings(Choice):
        """How widely it looks."""

        kind: str = "mir"
        candidates: int = Field(default=3, ge=1)  # remembered posts looked at for each replayed one

    settings: Settings

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on released posts and on those remembered ones whose loss would rise."""
        fresh, remembered = draw_both(step, self.step_size)
        if not len(fresh) or not remembered:
            posts = [fresh] if len(fresh) else remembered
            return step.model.gradient(posts[0]) if posts else None
        (drawn,) = remembered
        count = len(drawn)
        more = recall(step.memory, (self.settings.candidates - 1) * count, step.generator)
        gradient, candidates = step.model.gradient(fresh), Batch.join([drawn, *more])
        chosen = candidates.select(most_harmed(step, gradient, candidates)[:count])
        replayed, posts_in_all = step.model.gradient(chosen), len(fresh) + count
        shares = (len(fresh) / posts_in_all, count / posts_in_all)
        return weighted_sum([(gradient, shares[0]), (replayed, shares[1])])


def most_harmed(step: Step, gradient: Gradient, candidates: Batch) -> NDArray[np.int64]:
    """The candidates in the order of how much a step along a gradient would raise their loss."""
    before = losses(step.model, candidates)
    with virtual_step(step, copy.deepcopy(gradient)):  # a step may clip what it is given
        after = losses(step.model, candidates)
    return np.argsort(before - after, kind="stable")


def losses(model: Model, posts: Batch) -> NDArray[np.float64]:
    """The mean cost of a post's tokens, for each post."""
    return model.pay(posts).nats / np.maximum(posts.lengths - 1, 1)
