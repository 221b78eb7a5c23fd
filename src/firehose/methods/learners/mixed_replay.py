"""Mixed replay: half of a step's posts from the stream, half from the memory."""

from firehose.batch import Batch
from firehose.methods.learners import Learner, draw_both
from firehose.methods.step import Step
from firehose.optim.gradient import Gradient


class MixedReplay(Learner):
    """Learns from released and remembered posts together."""

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on both halves at once."""
        fresh, remembered = draw_both(step, self.step_size)
        posts = [fresh, *remembered] if len(fresh) else remembered
        return step.model.gradient(Batch.join(posts)) if posts else None
