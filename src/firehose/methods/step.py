"""What a method is given: the set-up of its game, a step to compute, and what became of steps."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from firehose.batch import Batch

if TYPE_CHECKING:
    from firehose.methods.buffers import Buffer
    from firehose.methods.learners import Learner
    from firehose.models.model import Model
    from firehose.optim.rule import UpdateRule


class Setup(NamedTuple):
    """What a method may know of its game when it is made."""

    model: "Model | Any" = None
    step_size: int = 128  # posts of a step, in all, whatever the learner
    steps: int = 5  # of a round, at most: the paper's K
    max_tokens: int = 50  # of a post that is kept in a buffer
    task_sizes: tuple[int, ...] = ()  # posts of each task, where tasks come one after another
    seed: int = 0  # of the game, from which all random numbers come


class Step(NamedTuple):
    """All that the gradient of one step may depend on."""

    model: "Model"
    learner: "Learner"
    released: Batch  # posts that may be learned from now
    memory: "Buffer"
    generator: np.random.Generator  # the only source of random numbers
    rule: "UpdateRule"


class Steps(NamedTuple):
    """What became of the steps of one round."""

    taken: int = 0
    kept: int = 0
    tokens: int = 0  # trained on, steps that were taken back included
    norm: float = 0.0  # of the last gradient, before clipping
    losses: tuple[float, ...] = ()  # of the candidates on the validation posts
