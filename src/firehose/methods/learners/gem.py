"""Gradient episodic memory (Lopez-Paz and Ranzato 2017)."""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import nnls

from firehose.methods.learners import Learner, draw
from firehose.methods.step import Step
from firehose.optim.clipping import NotFinite
from firehose.optim.gradient import Gradient
from firehose.plugins import Choice

ROUNDING = 1e-6  # of a cosine between gradients: they are float32
TINY = 1e-30  # the square of a gradient's length that stands for none


class GEM(Learner):
    """The gradient on stream data, made not to conflict with that of any earlier task.

    A task is a user. Where it conflicts with one, it moves by the least that mends all conflicts,
    and by ``margin`` times each task's gradient beyond that. It learns from the stream's posts, so
    that a step has up to ``step_size`` of them, and looks at all that is remembered of other tasks.
    """

    class Settings(Choice):
        """What GEM looks at, and how far it goes."""

        kind: str = "gem"
        margin: float = Field(default=0.5, ge=0)
        tasks: int = Field(default=10, ge=1)  # looked at in a step, drawn where there are more

    settings: Settings

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on released posts, corrected by all that is remembered of other tasks."""
        if not step.released:
            return None
        posts = draw(step.released, self.step_size, step.generator)
        gradient, past = step.model.gradient(posts), self._by_task(step)
        conflict = np.array([gradient.dot(each) for each in past])
        if (conflict < 0).any():
            between = np.array([[a.dot(b) for b in past] for a in past])
            if not np.isfinite(between).all():
                raise NotFinite("gradients of earlier tasks that are too long to be multiplied")
            margin = self.settings.margin
            for each, weight in zip(past, weights(between, conflict, margin), strict=True):
                gradient.add(each, float(weight))
        gradient.tokens += sum(each.tokens for each in past)
        return gradient

    def _by_task(self, step: Step) -> list[Gradient]:
        """The gradient on what is remembered of each task but the present ones."""
        if not len(step.memory):
            return []
        held = step.memory.all()
        tasks = np.setdiff1d(held.user, step.released.user)
        if len(tasks) > self.settings.tasks:
            tasks = step.generator.choice(tasks, self.settings.tasks, replace=False)
        groups = (held.select(np.flatnonzero(held.user == task)) for task in tasks)
        return [step.model.gradient(group) for group in groups]


def weights(
    between: NDArray[np.float64], conflict: NDArray[np.float64], margin: float
) -> NDArray[np.float64]:
    """How much of each task's gradient to add: the v ≥ margin that minimizes ½ vᵀPv + qᵀv.

    ``between`` is P, the inner products of the tasks' gradients, ``conflict`` is q, those with the
    present one. A task that is well known has a gradient that is a thousandth of another's, so all
    are made of the same length first: P becomes C = RᵀR, the cosines between tasks, and what is
    left is a non-negative least squares problem in (v − margin) · length.
    """
    lengths = np.sqrt(np.maximum(np.diag(between), TINY))
    sizes, directions = np.linalg.eigh(between / np.outer(lengths, lengths))
    scales = np.sqrt(np.maximum(sizes, ROUNDING))
    root = scales[:, None] * directions.T
    wanted = -(directions.T @ (conflict / lengths)) / scales
    beyond, _ = nnls(root, wanted - root @ (margin * lengths))
    total: NDArray[np.float64] = beyond / lengths + margin
    return total
