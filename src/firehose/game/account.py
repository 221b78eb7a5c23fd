"""What a run paid, post by post: when they came, and in the end.

In the run's folder, each a column of 32-bit numbers: ``paid.f32`` for the posts of the stream,
when they came; and under the final model ``validation.f32`` and ``test.f32`` for held-out posts,
``past.f32`` for a fixed sample of the stream.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from firehose.data.corpus import Corpus
from firehose.game.metrics import past_sample
from firehose.game.scoring import Costs, costs
from firehose.models.personal import Personal
from firehose.storage.files import write_whole

Measure = Literal["online", "validation", "test", "past"]


def settle(folder: Path, corpus: Corpus, model: Personal) -> None:
    """Let the final model pay for what was held out, and for a sample of what it has seen."""
    for split in ("validation", "test"):
        paid = costs(model, corpus.splits[split], f"{split} posts")
        _write(folder / f"{split}.f32", paid)
    train = corpus.splits["train"]
    sample = past_sample(train.time[: seen(folder)])
    _write(folder / "past.f32", costs(model, train, "the past", places=sample))


def account(folder: Path, corpus: Corpus, measure: Measure) -> Costs:
    """What a run that is over paid."""
    nats: NDArray[np.float32] = np.fromfile(folder / _file(measure), "<f4")
    if measure in ("validation", "test"):
        return Costs.of(corpus.splits[measure], nats)
    train = corpus.splits["train"]
    if measure == "online":
        return Costs.of(train, nats)
    return Costs.of(train, nats, past_sample(train.time[: seen(folder)]))


def _file(measure: Measure) -> str:
    return "paid.f32" if measure == "online" else f"{measure}.f32"


def seen(folder: Path) -> int:
    """The posts of the stream that were played."""
    return (folder / "paid.f32").stat().st_size // 4


def _write(path: Path, paid: Costs) -> None:
    write_whole(path, paid.nats.astype("<f4").tobytes())
