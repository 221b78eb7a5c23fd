"""The game: predict, pay, release, descend, remember."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from firehose.batch import Batch
from firehose.methods.buffers.storage import Buffer
from firehose.methods.learners.all import Learner
from firehose.methods.optimizers.all import Optimizer, Steps
from firehose.models.model import Model, Paid

Result = TypeVar("Result")


class Round(NamedTuple):
    """What one round came to."""

    batch: Batch
    paid: Paid
    released: int  # posts
    steps: Steps
    seconds: dict[str, float]  # by phase


class Clock:
    """How long each phase takes, from one to the next."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def __call__(self, phase: str, result: Result) -> Result:
        """Take the time of a phase that has just ended with a result."""
        now = time.perf_counter()
        self.seconds[phase], self.last = now - self.last, now
        return result


class Broken(ArithmeticError):  # noqa: N818
    """The last round left a model whose predictions cost no finite number."""


def sound(paid: Paid) -> Paid:
    """What was paid, if it can be paid."""
    if not np.isfinite(paid.nats).all():
        raise Broken
    return paid


def play(
    stream: Iterable[Batch],
    model: Model,
    learner: Learner,
    optimizer: Optimizer,
    memory: Buffer,
    generator: np.random.Generator,
) -> Iterator[Round]:
    """Round by round, for as long as the stream lasts."""
    model.train()
    for batch in stream:  # nature reveals contexts and users
        clock = Clock()
        paid = clock("pay", sound(model.pay(batch)))  # predict, see the words, and pay at once
        released = clock("admit", optimizer.admit(batch, generator))
        steps = clock("descend", optimizer.descend(model, learner, released, memory, generator))
        clock("remember", memory.push(released, generator))
        yield Round(batch, paid, len(released), steps, clock.seconds)
