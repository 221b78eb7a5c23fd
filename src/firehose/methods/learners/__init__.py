"""Learners: what data the gradient of a step sees. One file a method."""

from collections.abc import Sequence

import numpy as np

from firehose.batch import Batch
from firehose.methods.buffers import Buffer
from firehose.methods.optimizers import Optimizer
from firehose.methods.step import Setup, Step, Steps
from firehose.optim.gradient import Gradient
from firehose.plugins import Choice, Plugin, Registry


class Learner(Plugin):
    """Computes the gradient of a step from released and remembered posts.

    It changes neither the model nor the memory, and draws only from the step's generator. What it
    keeps between rounds it returns from ``state`` and takes back in ``restore``. The hooks are
    called by the game; most learners need none.
    """

    def __init__(self, settings: Choice, setup: Setup) -> None:
        self.settings = settings
        self.step_size = setup.step_size

    def refuse(self, memory: Buffer, optimizer: Optimizer) -> None:
        """Raise FirehoseError if the learner cannot play with these parts."""

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient of one step; None where there is nothing to learn from."""
        raise NotImplementedError

    def begin_round(self, step: Step) -> None:
        """Called before the first step of a round."""

    def after_step(self, step: Step) -> None:
        """Called after each step that was taken, whether or not it will be kept."""

    def to_remember(self, step: Step) -> Batch:
        """The posts that go into the memory after a round, with columns that are kept beside."""
        return step.released

    def end_round(self, step: Step, steps: Steps) -> None:
        """Called when a round is over; ``steps`` says how many steps were taken and kept."""

    def forget(self, user: int) -> int:
        """Erase what the learner keeps of a user; returns how many things there were."""
        return 0


def draw(batch: Batch, count: int, generator: np.random.Generator) -> Batch:
    """``count`` different posts of a batch, or all it has."""
    if len(batch) <= count:
        return batch
    return batch.select(generator.choice(len(batch), count, replace=False, shuffle=False))


def recall(memory: Buffer, count: int, generator: np.random.Generator) -> list[Batch]:
    """A batch of ``count`` remembered posts, drawn with replacement; none from an empty memory."""
    return [memory.sample(count, generator)] if len(memory) and count else []


def draw_both(step: Step, count: int) -> tuple[Batch, list[Batch]]:
    """Different released posts for half of ``count``, and a batch of remembered ones for the rest.

    Where there are too few of the ones, the others top them up. There are fewer in all only where
    nothing is remembered and no more are released.
    """
    half = count // 2 if len(step.memory) else 0
    fresh = draw(step.released, count - half, step.generator)
    return fresh, recall(step.memory, count - len(fresh), step.generator)


def weighted_sum(parts: Sequence[tuple[Gradient, float]]) -> Gradient:
    """Gradients, each times its weight, added up; the first one is changed, and returned."""
    (total, weight), *others = parts
    total.scale(weight)
    total.loss *= weight
    for gradient, factor in others:
        total.add(gradient, factor)
        total.loss += factor * gradient.loss
        total.tokens += gradient.tokens
    return total


LEARNERS = Registry(
    "learner",
    Learner,
    {
        "online-only": "firehose.methods.learners.online_only:OnlineOnly",
        "replay-only": "firehose.methods.learners.replay_only:ReplayOnly",
        "mixed-replay": "firehose.methods.learners.mixed_replay:MixedReplay",
        "a-gem": "firehose.methods.learners.a_gem:AGEM",
        "gem": "firehose.methods.learners.gem:GEM",
        "online-ewc": "firehose.methods.learners.online_ewc:OnlineEWC",
        "der": "firehose.methods.learners.der:DER",
        "mir": "firehose.methods.learners.mir:MIR",
        "distill": "firehose.methods.learners.distill:Distill",
        "icarl": "firehose.methods.learners.icarl:ICaRL",
    },
    default="mixed-replay",
)
