"""Trainings and their evaluation, by as many processes as were started: CORPUS FOLDER"""

import sys
from pathlib import Path

import numpy as np

from firehose.game.evaluate import evaluate
from firehose.game.run import offline, pretrain
from firehose.game.settings import make_settings
from firehose.parallel.group import is_first
from firehose.parallel.joining import joined
from small_models import TINY_GAME

TRAINED = ["pretrain.epochs=2", "pretrain.posts=7", "offline.epochs=2", "offline.posts=7"]
SETTINGS = make_settings(None, [*TINY_GAME, *TRAINED])


def train(corpus: str, folder: Path) -> None:
    """Pretrain, train the oracle, and write what an evaluation of it finds."""
    pretrain(corpus, folder / "pretrained", SETTINGS, split="train")
    offline(corpus, folder / "oracle", SETTINGS, folder / "pretrained")
    found = evaluate(folder / "oracle", corpus, "validation", others=2)
    assert found.crossed is not None
    if is_first():
        np.savez(folder / "evaluation.npz", own=found.own.nats, crossed=found.crossed.nats)


if __name__ == "__main__":
    with joined():
        train(sys.argv[1], Path(sys.argv[2]))
