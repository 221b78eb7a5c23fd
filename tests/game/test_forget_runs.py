"""Forgetting in runs: whatever is left of a user, and that the rest can still be reported."""

from pathlib import Path

import numpy as np
import pytest

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game.forget import forget
from firehose.game.outcome import Outcome
from firehose.game.run import offline, play
from firehose.game.scoring import Measure, read_costs
from firehose.game.settings import make_settings
from firehose.models.store import load
from small_models import TINY_GAME

ONCE = ["offline.epochs=1", "offline.posts=8"]


@pytest.mark.parametrize("kind", ["play", "offline"])
def test_nothing_of_a_user_is_left_in_a_run_that_is_over(
    tmp_path: Path, small_corpus: Corpus, kind: str
) -> None:
    settings, run = make_settings(assignments=[*TINY_GAME, *ONCE]), tmp_path / "run"
    (play if kind == "play" else offline)(small_corpus, run, settings)
    measures: dict[str, list[Measure]] = {
        "play": ["online", "past", "validation", "test"],
        "offline": ["validation", "test", "crossed"],
    }
    before = {measure: read_costs(run, small_corpus, measure) for measure in measures[kind]}
    erased = forget(run, "user1")
    gone = 0
    for measure, paid in before.items():
        left = read_costs(run, small_corpus, measure)
        others = paid.user != small_corpus.users.index("user1")
        assert left.nats.tolist() == paid.nats[others].tolist()
        assert left.user.tolist() == paid.user[others].tolist()
        gone += int((~others).sum())
    assert erased["costs of posts"] == gone > 0
    assert load(run).users.number("user1") is None
    assert load(run).users.number("user2") is not None
    if kind == "play":
        online = read_costs(run, small_corpus, "online")
        assert Outcome.read(run).online.value == pytest.approx(online.perplexity())
        assert np.isfinite(Outcome.read(run).retention.bucket).all()
    with pytest.raises(FirehoseError, match="has no user 'nobody'"):
        forget(run, "nobody")
