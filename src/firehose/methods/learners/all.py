"""Four learners: what data the gradient of a step sees."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from firehose.batch import Batch
from firehose.config import refuse_unknown
from firehose.errors import FirehoseError
from firehose.methods.buffers.storage import Buffer
from firehose.models.model import Model
from firehose.optim.gradient import Gradient
from firehose.plugins import load_class


class Learner(Protocol):
    """One method: the gradient of one step."""

    def gradient(
        self, model: Model, released: Batch, memory: Buffer, generator: np.random.Generator
    ) -> Gradient | None:
        """From what was just released and what is remembered; None: from nothing, no step."""


def draw(batch: Batch, posts: int, generator: np.random.Generator) -> Batch:
    """So many different posts of a batch, or all it has."""
    if len(batch) <= posts:
        return batch
    return batch.select(generator.choice(len(batch), posts, replace=False, shuffle=False))


def recall(memory: Buffer, posts: int, generator: np.random.Generator) -> list[Batch]:
    """So many posts of a memory that has any."""
    return [memory.sample(posts, generator)] if len(memory) and posts else []


class OnlineOnly:
    """Only the data just released by the stream."""

    def __init__(self, step_size: int) -> None:
        self.step_size = step_size

    def gradient(
        self, model: Model, released: Batch, memory: Buffer, generator: np.random.Generator
    ) -> Gradient | None:
        """From released posts."""
        return model.gradient(draw(released, self.step_size, generator)) if released else None


class ReplayOnly:
    """Only what is remembered."""

    def __init__(self, step_size: int) -> None:
        self.step_size = step_size

    def gradient(
        self, model: Model, released: Batch, memory: Buffer, generator: np.random.Generator
    ) -> Gradient | None:
        """From remembered posts."""
        recalled = recall(memory, self.step_size, generator)
        return model.gradient(recalled[0]) if recalled else None


class MixedReplay:
    """Half of a step's posts from the stream, half from the memory."""

    def __init__(self, step_size: int) -> None:
        self.step_size = step_size

    def gradient(
        self, model: Model, released: Batch, memory: Buffer, generator: np.random.Generator
    ) -> Gradient | None:
        """From both at once."""
        half = self.step_size // 2
        fresh = [draw(released, self.step_size - half, generator)] if released else []
        posts = [*fresh, *recall(memory, half, generator)]
        return model.gradient(Batch.join(posts)) if posts else None


class AGEM:
    """The gradient on stream data, made not to conflict with the one on remembered data.

    Where g · r < 0, what is opposed to r is taken out: g − (g · r / r · r) r, over all trained
    parameters, the users' vectors included (Chaudhry et al. 2019).
    """

    def __init__(self, step_size: int) -> None:
        self.step_size = step_size

    def gradient(
        self, model: Model, released: Batch, memory: Buffer, generator: np.random.Generator
    ) -> Gradient | None:
        """From released posts, corrected by remembered ones."""
        if not released:
            return None
        half = self.step_size // 2
        gradient = model.gradient(draw(released, self.step_size - half, generator))
        for remembered in recall(memory, half, generator):
            reference = model.gradient(remembered)
            gradient.tokens += reference.tokens
            conflict = gradient.dot(reference)
            if conflict < 0:
                gradient.add(reference, -conflict / reference.dot(reference))
        return gradient


LEARNERS: dict[str, Callable[[int], Learner]] = {  # from the posts of a step
    "online-only": OnlineOnly,
    "replay-only": ReplayOnly,
    "mixed-replay": MixedReplay,
    "a-gem": AGEM,
}


def make_learner(name: str, step_size: int) -> Learner:
    """One of the four, or a class of the user's."""
    if name in LEARNERS:
        return LEARNERS[name](step_size)
    if ":" not in name:
        refuse_unknown("learner", name, list(LEARNERS), "One of your own is FILE.py:Class.")
    found = load_class(name, "learner")
    if not hasattr(found, "gradient"):
        raise FirehoseError(f"{name} is not a learner: it has no method gradient.")
    try:
        made: Learner = found(step_size)
    except TypeError as error:
        raise FirehoseError(f"{name} cannot be made from the posts of a step: {error}.") from error
    return made
