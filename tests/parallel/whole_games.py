"""Whole games in float64, played by as many processes as were started: FOLDER PORT PORT …

Each process writes what it has seen of every game into a file of its own, so that they can be
compared: those of one number of processes with each other, and with those of another number.
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.game.assembly import Game
from firehose.game.settings import make_settings
from firehose.models.data_parallel import spread
from firehose.models.device import Device
from firehose.parallel import group
from firehose.parallel.joining import joined
from firehose.parallel.shards import sharding
from small_models import PIECES, TINY_GAME, batch_of, tiny

LEARNERS = ("online-only", "replay-only", "mixed-replay", "a-gem")
OPTIMIZERS = ("online-gd", "congrad")
STRONGER = ("der", "mir", "gem", "online-ewc", "distill")
GAMES: dict[str, list[str]] = {
    **{
        f"{learner} × {optimizer}": [f"play.learner={learner}", f"play.optimizer={optimizer}"]
        for learner in LEARNERS
        for optimizer in OPTIMIZERS
    },
    **{f"{learner} × online-gd": [f"play.learner={learner}"] for learner in STRONGER},
    "mixed-replay × averaged": ["play.optimizer=averaged"],
    "mixed-replay × congrad, pools": [
        "play.optimizer=congrad",
        "play.optimizer.validation.kind=stratified-reservoir",
        "play.optimizer.validation.posts=7",
        "play.memory.kind=fifo",
    ],
    "mixed-replay × online-gd, a mixture": [
        "play.predictor=mixture",
        "play.predictor.weighing=posterior",
    ],
    "mixed-replay × online-gd, a mixture by a network": ["play.predictor=mixture"],
}
SHARDED = [
    "online-only × congrad",
    "mixed-replay × congrad",
    "a-gem × online-gd",
    "der × online-gd",
    "mixed-replay × averaged",
    "mixed-replay × congrad, pools",
    "mixed-replay × online-gd, a mixture",
    "mixed-replay × online-gd, a mixture by a network",
]
Seen = dict[str, NDArray[Any]]


def stream() -> list[Batch]:
    """Posts of uneven length, some cut; new users come; once there is but one post."""
    generator = np.random.default_rng(7)
    batches = []
    for number, posts in enumerate((9, 8, 1, 9, 2, 8, 10)):
        lengths = generator.integers(2, 14, posts)
        users = generator.integers(0, 3 + 2 * number, posts).tolist()
        batches.append(
            batch_of([generator.integers(0, PIECES, each).tolist() for each in lengths], users)
        )
    return batches


def play(choices: list[str]) -> Seen:
    """What is seen of a game: costs, choices and losses of all rounds, and all that was learned."""
    settings = make_settings(None, [*TINY_GAME, "play.optimizer=online-gd", *choices])
    model = tiny("adapters", shape={**dict(tiny("adapters").plan.shape), "dropout": 0.2})
    model.max_tokens = 10
    game = Game(spread(model.move_to(Device(precision=torch.float64))), settings.play)
    rounds = list(game.rounds(stream()))
    return {
        "paid": np.concatenate([each.paid.nats for each in rounds]),
        "kept": np.array([each.steps.kept for each in rounds]),
        "tokens": np.array([each.steps.tokens for each in rounds]),
        "losses": np.array([loss for each in rounds for loss in each.steps.losses]),
        "norms": np.array([each.steps.norm for each in rounds]),
        "weights": torch.cat([each.detach().flatten() for each in model.parameters()]).numpy(),
        "users": model.users.everybody().numpy(),
        "numbers": model.users.numbers(),
        "random": np.array(model.random.state(), np.uint64),
    }


def main() -> None:
    """Play all games with all processes, then without the last one, and so on to the first alone.

    The processes are started but once, as that takes longer than the games. All three share memory
    for their sums; without the last one they take themselves for processes of several machines.
    """
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    folder, *ports = sys.argv[1:]
    own = int(os.environ["RANK"])
    for size, port in zip(range(int(os.environ["WORLD_SIZE"]), own, -1), ports, strict=False):
        os.environ |= {"WORLD_SIZE": str(size), "MASTER_PORT": port}
        with joined():
            assert group.size() == size
            for game, choices in GAMES.items():
                seen: Any = play(choices)
                np.savez(Path(folder) / f"{game}-{own}-of-{size}.npz", **seen)
            for game in SHARDED if size > 1 else ():
                with sharding():
                    shared: dict[str, Any] = play(GAMES[game])
                np.savez(Path(folder) / f"{game}-{own}-of-{size}-sharded.npz", **shared)


if __name__ == "__main__":
    main()
