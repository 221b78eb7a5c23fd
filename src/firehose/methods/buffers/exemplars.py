"""Exemplars: the most typical pictures of each class, chosen by herding (Rebuffi et al. 2017)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from firehose.batch import Batch, UniformBatch
from firehose.data.pictures.files import CLASSES
from firehose.errors import FirehoseError
from firehose.methods.buffers import Buffer
from firehose.methods.step import Setup
from firehose.models.perceptron import Perceptron, labels
from firehose.plugins import Choice

OUTPUTS = "exemplar outputs"  # the column that keeps them


class Exemplars(Buffer):
    """The pictures whose mean is nearest to that of their class, for each class.

    A class that comes again in another task gets its exemplars from there. Pictures are kept until
    their task is complete; then exemplars are chosen from them, and those of earlier classes make
    room, the least typical first. The model's outputs for all exemplars after each task are kept,
    too: they are what is distilled in the next.
    """

    class Settings(Choice):
        """The limit."""

        kind: str = "exemplars"
        posts: int = Field(default=300, ge=CLASSES)  # exemplars of all classes together

    def __init__(self, settings: Settings, setup: Setup) -> None:
        if not isinstance(setup.model, Perceptron) or not setup.task_sizes:
            raise FirehoseError(
                "Exemplars are pictures of a class, chosen when their task is complete: they need "
                "a stream of tasks with classes, as `firehose classic` has."
            )
        self.model = setup.model
        self.posts = settings.posts
        self.width = setup.max_tokens
        self.tasks = setup.task_sizes  # pictures of each; a batch does not mix them
        self.pending: list[Batch] = []
        # By class, the most typical first; with the model's outputs after the last task.
        self.chosen: dict[int, Batch] = {}

    def __len__(self) -> int:
        return sum(map(len, self.chosen.values()))

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Keep a batch; returns the posts that were not chosen, and those that made room."""
        if not len(batch):
            return batch
        self.pending.append(batch)
        nobody = batch.select(np.zeros(0, np.int64))
        if sum(map(len, self.pending)) < self.tasks[batch.user[0]]:
            return nobody
        task = batch.join(self.pending)
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
        self.chosen = {
            kind: held.with_columns({OUTPUTS: self.model.outputs(held).numpy()})
            for kind, held in self.chosen.items()
            if len(held)
        }
        return batch.join(gone)

    def sample(self, count: int, generator: np.random.Generator) -> Batch:
        """Drawn uniformly, with replacement."""
        return self.all().select(generator.integers(0, len(self), count))

    def all(self) -> Batch:
        """Class by class."""
        held = list(self.chosen.values())
        return held[0].join(held)

    def reminders(self, generator: np.random.Generator) -> tuple[Batch, Tensor]:
        """One exemplar of each class, and the model's outputs for it after the last task."""
        every = self.chosen.values()
        posts = Batch.join([held.select(generator.integers(0, len(held), 1)) for held in every])
        return posts, torch.from_numpy(posts.per_post[OUTPUTS])

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
        """Erase a task's exemplars and pending pictures; returns how many."""
        kinds = [kind for kind, held in self.chosen.items() if held.user[0] == user]
        erased = sum(len(self.chosen.pop(kind)) for kind in kinds)
        pending = sum(map(len, self.pending))
        kept = [batch.select(np.flatnonzero(batch.user != user)) for batch in self.pending]
        self.pending = [batch for batch in kept if len(batch)]
        return erased + pending - sum(map(len, self.pending))

    def state(self) -> dict[str, Any]:
        """Pending pictures, and exemplars class by class, with their outputs."""
        pending = self.pending and self.pending[0].join(self.pending).to_rows(self.width)
        chosen = {str(kind): held.to_rows(self.width) for kind, held in self.chosen.items()}
        return {"pending": pending, "chosen": chosen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.pending = [UniformBatch.from_rows(state["pending"])] if state["pending"] else []
        chosen = state["chosen"].items()
        self.chosen = {int(kind): UniformBatch.from_rows(rows) for kind, rows in chosen}


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
