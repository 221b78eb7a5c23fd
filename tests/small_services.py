"""Services so small that a test can afford them: a model, its state, and posts for it."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn

from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.game.settings import Playing, make_settings
from firehose.generation.suggest import QUICK
from firehose.models.store import save
from firehose.serving.access import Token
from firehose.serving.desk import Desk
from firehose.serving.learner import Learner, Pace
from firehose.serving.state import begin, restore, state_of
from firehose.serving.web import make_app
from small_models import trained_on

TEXT = "the quick brown fox jumps over a lazy dog while nobody in the house is looking"
WORDS = TEXT.split()
GAME = ["play.posts=6", "play.step_size=4", "play.rule.rate=0.01", "play.steps=2"]
MIXTURE = ["play.predictor=mixture", "play.predictor.hidden=4"]
UNHURRIED = QUICK._replace(seconds=None)  # what is suggested does not depend on the machine
PACE = Pace(posts=6, seconds=0.0)


def playing(*more: str) -> Playing:
    """A game with small rounds."""
    return make_settings("laptop", ["play.optimizer=online-gd", *GAME, *more]).play


def posts(count: int, first: int = 0, users: int = 4) -> list[Post]:
    """Posts of the words that the small corpus has, by users old and new."""
    return [
        Post(
            f"user{number % users}",
            " ".join(WORDS[(number * 5 + k * (number % 3 + 1)) % 16] for k in range(5)),
            1_500_000_000_000 + number,
            f"post-{number}",
        )
        for number in range(first, first + count)
    ]


def begun(folder: Path, corpus: Corpus, *more: str, min_users: int = 3) -> Path:
    """The state of a service that was begun with a small model; returns its folder."""
    if not (folder / "model").exists():
        save(trained_on(corpus), folder / "model")
    state = folder / "state"
    state.mkdir()
    begin(state, folder / "model", playing(*more), min_users)
    return state


def drained(state: Path, pace: Pace = PACE) -> Learner:
    """A learner that has done all there is to do, and has written it down."""
    learner = Learner(state, pace)
    while learner.advance():
        pass
    learner.save()
    return learner


def final_state(state: Path) -> dict[str, Any]:
    """All that the newest checkpoint has."""
    return state_of(*restore(state))


def differing(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two states are not the same to the bit."""
    if isinstance(first, dict):
        if first.keys() != second.keys():
            return [f"{path}: {first.keys() ^ second.keys()}"]
        return [each for k in first for each in differing(first[k], second[k], f"{path}/{k}")]
    if isinstance(first, torch.Tensor):
        is_same = first.dtype == second.dtype and torch.equal(first, second)
    elif isinstance(first, np.ndarray):
        is_same = bool(np.array_equal(first, second))
    else:
        is_same = bool(first == second)
    return [] if is_same else [path]


def holds(folder: Path, *texts: str) -> list[str]:
    """The files below a folder that have one of these texts in them."""
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    found = [path for path, content in files.items() if any(t.encode() in content for t in texts)]
    return [str(path.relative_to(folder)) for path in found]


@contextlib.contextmanager
def live(state: Path, tokens: Sequence[Token] = ()) -> Iterator[str]:
    """A service in threads of this process, which answers over HTTP and learns; its address."""
    learner, ended = drained(state), threading.Event()
    learner.publish()
    desk = Desk(state, budget=UNHURRIED)
    config = uvicorn.Config(
        make_app(desk, tokens, ["127.0.0.1"]), port=0, log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)

    def learn() -> None:
        while not ended.wait(0.05):
            learner.advance()

    threads = [threading.Thread(target=server.run), threading.Thread(target=learn)]
    for thread in threads:
        thread.start()
    try:
        assert desk.wait_for(1, 60)
        while not server.started:
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        ended.set()
        desk.ending.set()
        server.should_exit = True
        for thread in threads:
            thread.join()
        desk.close()
        learner.inbox.close()
