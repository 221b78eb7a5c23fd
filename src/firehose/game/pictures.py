"""What came of a game with pictures: the accuracy on every task as the stream goes on."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.game.folder import read_result
from firehose.game.log import read_rounds, spent
from firehose.models.perceptron import labels
from firehose.report.tables import Table
from firehose.storage.files import write_whole

AT_ONCE = 1000  # pictures that are tested at once


@dataclass(frozen=True)
class PictureOutcome:
    """Accuracies through time, and what the game cost."""

    seen: NDArray[np.int64]  # [points], pictures
    accuracy: NDArray[np.float64]  # [points, tasks], from 0 to 1
    ends: NDArray[np.int64]  # [tasks], the point at which each task was over
    kept: list[int]  # rounds, by the number of steps that were kept
    compute: dict[str, float]  # gradient steps, tokens trained on, seconds by phase

    @classmethod
    def of(
        cls, folder: Path, seen: list[int], accuracy: list[list[float]], ends: list[int]
    ) -> "PictureOutcome":
        """From what was measured when so many pictures were ``seen``, and the log of the run."""
        rounds = read_rounds(folder)
        kept = np.bincount([line["kept"] for line in rounds]).tolist()
        points = np.searchsorted(seen, ends)
        return cls(np.array(seen), np.array(accuracy), points, kept, spent(rounds))

    @classmethod
    def read(cls, folder: Path) -> "PictureOutcome":
        """What a game that is over has left in its folder."""
        found = read_result(folder)
        arrays = {name: np.array(found[name]) for name in ("seen", "accuracy", "ends")}
        return cls(**arrays, kept=found["kept"], compute=found["compute"])

    def public(self) -> dict[str, Any]:
        """As plain values."""
        arrays = {name: getattr(self, name).tolist() for name in ("seen", "accuracy", "ends")}
        return arrays | {"kept": self.kept, "compute": self.compute}

    def write(self, folder: Path) -> None:
        """Write ``result.json``."""
        write_whole(folder / "result.json", (json.dumps(self.public()) + "\n").encode())

    def tables(self) -> list[Table]:
        """The result for people."""
        tasks = [
            [str(number), f"{100 * value:.1f}"] for number, value in enumerate(self.accuracy[-1], 1)
        ]
        tasks.append(["all", f"{100 * self.accuracy[-1].mean():.1f}"])
        return [Table(["task", "accuracy in the end, %"], tasks)]


def accuracies(
    classify: Callable[[Batch], NDArray[np.int64]], tasks: Sequence[Batch]
) -> list[float]:
    """The share of each task's test pictures that is classified rightly."""
    shares = []
    for posts in tasks:
        cuts = range(AT_ONCE, len(posts), AT_ONCE)
        parts = [posts.select(part) for part in np.split(np.arange(len(posts)), cuts)]
        right = sum(int((classify(part) == labels(part).numpy()).sum()) for part in parts)
        shares.append(right / len(posts))
    return shares
