"""Gradient episodic memory (Lopez-Paz and Ranzato 2017)."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from firehose.batch import Batch
from firehose.methods.buffers.storage import Buffer
from firehose.methods.learners.all import draw
from firehose.models.model import Model
from firehose.optim.adam import NotFinite
from firehose.optim.gradient import Gradient

ROUNDING = 1e-6  # of a cosine between gradients: they are float32
TINY = 1e-30  # the square of a gradient's length that stands for none


class GEM:
    """The gradient on stream data, made not to conflict with that of any earlier task.

    A task is a user. Where it conflicts with one, it moves by the least that mends all conflicts,
    and by ``margin`` times each task's gradient beyond that.
    """

    def __init__(self, step_size: int, margin: float = 0.5) -> None:
        self.step_size = step_size
        self.margin = margin

    def gradient(
        self, model: Model, released: Batch, memory: Buffer, generator: np.random.Generator
    ) -> Gradient | None:
        """From released posts, corrected by all that is remembered of other tasks."""
        if not released:
            return None
        gradient = model.gradient(draw(released, self.step_size, generator))
        past = _by_task(model, memory, released)
        conflict = np.array([gradient.dot(each) for each in past])
        if (conflict < 0).any():
            between = np.array([[a.dot(b) for b in past] for a in past])
            if not np.isfinite(between).all():
                raise NotFinite("gradients of earlier tasks that are too long to be multiplied")
            for each, weight in zip(past, weights(between, conflict, self.margin), strict=True):
                gradient.add(each, float(weight))
        return gradient


def _by_task(model: Model, memory: Buffer, released: Batch) -> list[Gradient]:
    """The gradient on what is remembered of each task but the present one."""
    if not len(memory):
        return []
    held = memory.all()
    tasks = np.setdiff1d(held.user, released.user)
    return [model.gradient(held.select(np.flatnonzero(held.user == task))) for task in tasks]


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
