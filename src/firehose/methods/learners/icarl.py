"""iCaRL: exemplars chosen by herding, distillation, nearest mean (Rebuffi et al. 2017)."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.batch import Batch
from firehose.methods.buffers.storage import Buffer
from firehose.methods.learners.all import draw
from firehose.models.model import Model
from firehose.models.perceptron import Perceptron, labels
from firehose.optim.gradient import Gradient


class Exemplars:
    """The pictures whose mean is nearest to that of their class, for each class.

    A class that comes again in another task gets its exemplars from there.
    What comes is kept until its task has had all its pictures; then exemplars are chosen from it,
    and those of earlier classes make room, the least typical first. What the model makes of
    all of them after each task is kept, too, for it to be reminded of in the next.
    """

    def __init__(self, model: Perceptron, posts: int, tasks: Sequence[int]) -> None:
        self.model = model
        self.posts = posts
        self.tasks = tasks  # the pictures of each; a batch does not mix them
        self.pending: list[Batch] = []
        self.chosen: dict[int, Batch] = {}  # by class, the most typical first
        self.outputs: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return sum(map(len, self.chosen.values()))

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Keep what comes; returns those who were not chosen, and those who made room."""
        self.pending.append(batch)
        nobody = batch.select(np.zeros(0, np.int64))
        if sum(map(len, self.pending)) < self.tasks[batch.user[0]]:
            return nobody
        task = Batch.join(self.pending)
        self.pending = []
        classes = labels(task).numpy()
        kinds = np.unique(classes).tolist()
        each = self.posts // len({*self.chosen, *kinds})
        gone = [nobody, *(self.chosen.pop(kind) for kind in kinds if kind in self.chosen)]
        for kind, held in self.chosen.items():
            gone.append(held.select(np.arange(each, len(held))))
            self.chosen[kind] = held.select(np.arange(min(each, len(held))))
        for kind in kinds:
            found = task.select(np.flatnonzero(classes == kind))
            order = herd(self.model.outputs(found), each)
            self.chosen[kind] = found.select(order)
            gone.append(found.select(np.setdiff1d(np.arange(len(found)), order)))
        self.chosen = {kind: held for kind, held in self.chosen.items() if len(held)}
        self.outputs = {kind: self.model.outputs(held) for kind, held in self.chosen.items()}
        return Batch.join(gone)

    def sample(self, posts: int, generator: np.random.Generator) -> Batch:
        """Drawn uniformly, with replacement."""
        return self.all().select(generator.integers(0, len(self), posts))

    def all(self) -> Batch:
        """Class by class."""
        return Batch.join(list(self.chosen.values()))

    def reminders(self, generator: np.random.Generator) -> tuple[Batch, Tensor]:
        """One exemplar of each class, and what the model made of it after the last task."""
        posts, outputs = [], []
        for kind, held in self.chosen.items():
            place = generator.integers(0, len(held), 1)
            posts.append(held.select(place))
            outputs.append(self.outputs[kind][place])
        return Batch.join(posts), torch.cat(outputs)

    def classify(self, batch: Batch) -> NDArray[np.int64]:
        """The class whose exemplars' mean is nearest; the model's own, while there are none."""
        features = self.model.outputs(batch)
        if not self.chosen:
            return np.asarray(features.argmax(1))
        means = torch.stack([self.model.outputs(held).mean(0) for held in self.chosen.values()])
        kinds = np.array(list(self.chosen), np.int64)
        nearest: NDArray[np.int64] = torch.cdist(features, means).argmin(1).numpy()
        return kinds[nearest]

    def forget(self, user: int) -> int:
        """Erase a task's exemplars, and say how many."""
        kinds = [kind for kind, held in self.chosen.items() if held.user[0] == user]
        self.outputs = {kind: out for kind, out in self.outputs.items() if kind not in kinds}
        return sum(len(self.chosen.pop(kind)) for kind in kinds)


def herd(features: Tensor, number: int) -> NDArray[np.int64]:
    """The pictures that keep the mean of those chosen nearest to that of all, one by one."""
    target, total = features.mean(0), torch.zeros(features.shape[1])
    free = torch.ones(len(features), dtype=torch.bool)
    order = []
    for count in range(1, min(number, len(features)) + 1):
        distance = (target - (total + features) / count).norm(dim=1)
        best = int(distance.masked_fill(~free, float("inf")).argmin())
        free[best] = False
        total = total + features[best]
        order.append(best)
    return np.array(order, np.int64)


class ICaRL:
    """The gradient on stream data, and of what the model no longer makes of its exemplars."""

    def __init__(self, step_size: int, strength: float = 1.0) -> None:
        self.step_size = step_size
        self.strength = strength

    def gradient(
        self, model: Model, released: Batch, memory: Buffer, generator: np.random.Generator
    ) -> Gradient | None:
        """From released posts and one exemplar of each class."""
        assert isinstance(memory, Exemplars) and isinstance(model, Perceptron)
        if not released:
            return None
        posts = draw(released, self.step_size, generator)
        if not len(memory):
            return model.gradient(posts)
        reminders, outputs = memory.reminders(generator)
        shares = (1 / len(posts), self.strength / outputs.numel())
        parts = zip((len(posts), len(reminders)), shares, strict=True)
        return model.gradient_toward(
            torch.cat([model.pixels_of(posts), model.pixels_of(reminders)]),
            torch.cat([model.one_hot[labels(posts)], outputs.softmax(1)]),
            torch.cat([torch.full((number, 1), share) for number, share in parts]),
        )
