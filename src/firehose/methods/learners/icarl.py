"""iCaRL: distillation from exemplars of each class (Rebuffi et al. 2017)."""

import numpy as np
import torch
from pydantic import Field

from firehose.batch import Batch
from firehose.errors import FirehoseError
from firehose.methods.buffers import Buffer
from firehose.methods.buffers.exemplars import Exemplars
from firehose.methods.learners import Learner, draw
from firehose.methods.optimizers import Optimizer
from firehose.methods.step import Setup, Step
from firehose.models.perceptron import Perceptron, labels
from firehose.optim.gradient import Gradient
from firehose.plugins import Choice


class ICaRL(Learner):
    """The gradient on stream data, and of distilling what the model once made of its exemplars."""

    class Settings(Choice):
        """How strongly it learns and distils."""

        kind: str = "icarl"
        pace: float = Field(default=1.0, gt=0)  # times the gradient: a rate of its own
        strength: float = Field(default=1.0, ge=0)  # of distillation

    settings: Settings

    def __init__(self, settings: Settings, setup: Setup) -> None:
        super().__init__(settings, setup)
        if not isinstance(setup.model, Perceptron):
            raise FirehoseError(
                "iCaRL needs classes, and posts have none: it plays with pictures, as in "
                "`firehose classic run all --method iCaRL`."
            )

    def refuse(self, memory: Buffer, optimizer: Optimizer) -> None:
        """Refuse a memory without exemplars, and an optimizer that breaks tasks up."""
        if not isinstance(memory, Exemplars):
            raise FirehoseError("iCaRL needs exemplars: --set play.memory.kind=exemplars.")
        if optimizer.holds_back:
            raise FirehoseError(
                "iCaRL needs a task's pictures together, and ConGraD holds some back: choose "
                "Online GD."
            )

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on released posts and one exemplar of each class."""
        model, memory = step.model, step.memory
        assert isinstance(memory, Exemplars) and isinstance(model, Perceptron)
        if not step.released:
            return None
        posts = draw(step.released, self.step_size, step.generator)
        if len(memory):
            gradient = self._distilling(model, memory, posts, step.generator)
        else:
            gradient = model.gradient(posts)
        gradient.scale(self.settings.pace)
        return gradient

    def _distilling(
        self, model: Perceptron, memory: Exemplars, posts: Batch, generator: np.random.Generator
    ) -> Gradient:
        reminders, outputs = memory.reminders(generator)
        shares = (1 / len(posts), self.settings.strength / outputs.numel())
        parts = zip((len(posts), len(reminders)), shares, strict=True)
        return model.gradient_toward(
            torch.cat([model.pixels_of(posts), model.pixels_of(reminders)]),
            torch.cat([model.one_hot[labels(posts)], outputs.softmax(1)]),
            torch.cat([torch.full((number, 1), share) for number, share in parts]),
        )
