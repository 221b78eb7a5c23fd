"""Mixed replay: half of a step's posts from the stream, half from the memory."""

from firehose.batch import Batch
from firehose.methods.learners import Learner, draw, recall
from firehose.methods.step import Step
from firehose.optim.gradient import Gradient


class MixedReplay(Learner):
    """Learns from released and remembered posts together."""

    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on both halves at once."""
        half = self.step_size // 2
        released, generator = step.released, step.generator
        fresh = [draw(released, self.step_size - half, generator)] if released else []
        posts = [*fresh, *recall(step.memory, half, generator)]
        return step.model.gradient(Batch.join(posts)) if posts else None
