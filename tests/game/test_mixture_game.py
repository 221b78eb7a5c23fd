"""Games with a mixture: resumed to the same bits, and against the truth of a simulated world."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_run import left_behind, stop_after, tiny

from conftest import INLINE
from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import prepare
from firehose.errors import Stopped
from firehose.game.assembly import make_game
from firehose.game.run import play, resume
from firehose.game.settings import make_settings
from small_models import TINY_GAME

MIXED = [
    "play.predictor.kind=mixture",
    "play.predictor.experts=[{kind = 'memory', min_users = 2, tokens = 200, matches = 4}]",
]


@pytest.mark.parametrize("weighing", ["network", "posterior"])
def test_a_resumed_run_pays_the_same_to_the_bit(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, weighing: str
) -> None:
    settings = tiny(*MIXED, f"play.predictor.weighing={weighing}")
    play(small_corpus, tmp_path / "whole", settings)
    play(small_corpus, tmp_path / "plain", tiny())
    stop_after(monkeypatch, 5, sign=signal.SIGTERM)
    with pytest.raises(Stopped):
        play(small_corpus, tmp_path / "run", settings)
    monkeypatch.undo()
    resume(tmp_path / "run")
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")
    assert left_behind(tmp_path / "plain")["paid"] != left_behind(tmp_path / "whole")["paid"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A simulated population with a known truth, a few words each."""
    sizes = ["source.users=12", "source.posts=1500", "source.years=1.0", "vocabulary.size=400"]
    plan = make_plan(source="nature", assignments=sizes)
    return prepare(plan, tmp_path_factory.mktemp("world") / "corpus", INLINE).corpora[0]


def over_the_floor(corpus: Corpus, **predictor: Any) -> NDArray[np.float64]:
    """What each post costs online, over the least that is possible in expectation."""
    sizes = [*TINY_GAME, "play.posts=16", "play.steps=1", "play.optimizer=online-gd"]
    settings = make_settings(assignments=sizes, play={"predictor": predictor})
    rounds = make_game(corpus, settings).rounds(corpus.stream(16))
    floor = corpus.splits["train"].floor
    assert floor is not None
    return np.concatenate([played.paid.nats for played in rounds]) - floor[:, 0]


def test_it_comes_nearer_to_the_truth_than_any_part_and_not_beyond(world: Corpus) -> None:
    parts = {
        "model": over_the_floor(world, kind="model"),
        "own": over_the_floor(
            world, kind="mixture", weight_sets=0, experts=[{"kind": "memory", "everybody": False}]
        ),
        "everybody's": over_the_floor(
            world, kind="mixture", weight_sets=0, experts=[{"kind": "memory", "own": False}]
        ),
    }
    mixed = over_the_floor(world, kind="mixture")
    for name, alone in parts.items():
        less = alone - mixed
        assert less.sum() > 3 * less.std() * len(less) ** 0.5, name
    # Knowing the truth is best, but for chance.
    assert mixed.sum() > -3 * mixed.std() * len(mixed) ** 0.5
