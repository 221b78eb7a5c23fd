"""Distillation from averaged weights: a mean teacher (Tarvainen and Valpola 2017) of old posts."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from firehose.batch import Batch
from firehose.methods.learners import Learner, draw_both, weighted_sum
from firehose.methods.step import Setup, Step, Steps
from firehose.optim.average import Average, Horizon
from firehose.optim.gradient import Gradient
from firehose.plugins import Choice


class Distill(Learner):
    """Mixed replay that is also drawn to what an average of its weights says of remembered posts.

    The teacher is the learner's own, and follows the steps that are kept, whatever the optimizer.
    """

    class Settings(Choice):
        """The teacher, and how much it is listened to."""

        kind: str = "distill"
        strength: float = Field(default=1.0, ge=0)  # of distillation, against the words themselves
        horizon: Horizon = 0.15  # of the average: steps, or below 1 a share of the steps so far
        top_k: int = Field(default=16, ge=1)  # pieces of a prediction that are taught

    settings: Settings

    def __init__(self, settings: Settings, setup: Setup) -> None:
        super().__init__(settings, setup)
        self.teacher = Average(setup.model, settings.horizon)

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on both halves at once, and on the remembered one toward the teacher."""
        model = step.model
        fresh, remembered = draw_both(step, self.step_size)
        posts = [fresh, *remembered] if len(fresh) else remembered
        if not posts:
            return None
        parts = [(model.gradient(Batch.join(posts)), 1.0)]
        for held in remembered:
            with self.teacher.in_use(held.user):
                taught = model.with_outputs(held, self.settings.top_k)
            share = len(held) / sum(map(len, posts))
            parts.append((model.gradient_toward_outputs(taught), self.settings.strength * share))
        return weighted_sum(parts)

    def end_round(self, step: Step, steps: Steps) -> None:
        """Let the teacher follow."""
        self.teacher.follow(steps.kept)

    def state(self) -> dict[str, Any]:
        """The teacher."""
        return self.teacher.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the teacher of ``state``."""
        self.teacher.restore(state)
