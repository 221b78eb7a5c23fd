"""The round: predict, pay, release, descend, remember."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from firehose.batch import Batch
from firehose.methods.buffers import Buffer
from firehose.methods.learners import Learner
from firehose.methods.optimizers import Optimizer
from firehose.methods.predictor import Predictor
from firehose.methods.step import Step, Steps
from firehose.models.model import Model, Paid

Result = TypeVar("Result")


class Round(NamedTuple):
    """The result of one round."""

    batch: Batch
    paid: Paid
    released: int  # posts
    steps: Steps
    seconds: dict[str, float]  # by phase


class Clock:
    """Measures how long each phase of a round takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def __call__(self, phase: str, result: Result) -> Result:
        """Note the seconds since the last phase ended; returns the result of this one."""
        now = time.perf_counter()
        self.seconds[phase], self.last = now - self.last, now
        return result


class Broken(ArithmeticError):  # noqa: N818
    """The costs of a batch are not finite: the round before it has broken the model."""


def play(
    stream: Iterable[Batch],
    predictor: Predictor,
    model: Model,
    learner: Learner,
    optimizer: Optimizer,
    memory: Buffer,
    generator: np.random.Generator,
) -> Iterator[Round]:
    """Play round by round, for as long as the stream of batches lasts.

    Raises Broken where what a batch costs is not finite, NotFinite where a gradient is not.
    """
    model.train()
    for batch in stream:  # nature reveals contexts and users
        clock = Clock()
        paid = clock("pay", predictor.pay(batch))  # predict, see the words, and pay at once
        if not np.isfinite(paid.nats).all():
            raise Broken
        lesson = predictor.to_learn_from(batch)
        released = clock("admit", optimizer.admit(lesson, generator))
        step = Step(model, learner, released, memory, generator, optimizer.rule)
        learner.begin_round(step)
        steps = clock("descend", optimizer.descend(step))
        memory.push(learner.to_remember(step), generator)
        learner.end_round(step, steps)
        predictor.learn(batch)  # what was paid for may be remembered
        clock("remember", None)
        yield Round(batch, paid, len(released), steps, clock.seconds)
