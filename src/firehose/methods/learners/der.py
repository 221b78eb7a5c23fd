"""DER++: dark experience replay (Buzzega et al. 2020)."""

from pydantic import Field

from firehose.batch import Batch
from firehose.methods.learners import Learner, draw_both, weighted_sum
from firehose.methods.step import Step
from firehose.optim.gradient import Gradient
from firehose.plugins import Choice


class DER(Learner):
    """Mixed replay that also holds on to what the model said of a post when it was remembered.

    Of each prediction the ``top_k`` most probable pieces are kept with the post, and how probable
    all others were together; of a picture, the logits of all classes. To be near them is measured
    by cross-entropy, which needs no more of them than that.
    """

    class Settings(Choice):
        """How much remembered posts weigh, by what they say and by what was said of them."""

        kind: str = "der"
        alpha: float = Field(default=0.5, ge=0)  # of distillation from what was said
        beta: float = Field(default=1.0, ge=0)  # of the words themselves, against new posts
        top_k: int = Field(default=8, ge=1)  # pieces kept of a prediction: 4 bytes each

    settings: Settings

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on released posts, on remembered ones, and toward the model's old words."""
        model, settings = step.model, self.settings
        fresh, remembered = draw_both(step, self.step_size)
        posts = len(fresh) + sum(map(len, remembered))
        parts = [(model.gradient(fresh), len(fresh) / posts)] if len(fresh) else []
        for held in remembered:
            share = len(held) / posts
            parts.append((model.gradient(held), settings.beta * share))
            parts.append((model.gradient_toward_outputs(held), settings.alpha * share))
        return weighted_sum(parts) if parts else None

    def to_remember(self, step: Step) -> Batch:
        """The released posts, with what the model says of them now."""
        return step.model.with_outputs(step.released, self.settings.top_k)
