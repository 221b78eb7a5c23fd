"""What the demo says it has seen."""

import numpy as np
import pytest

from firehose.data.corpus import Floor
from firehose.experiments.curves import Comparison, Difference
from firehose.experiments.demo import PAIRS, what_was_seen
from firehose.experiments.looks import Run
from firehose.game.totals import Measured
from small_experiments import outcome


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (-0.42, -0.38, "40 % lower (38 to 42 %) with replay"),
        (0.38, 0.42, "40 % higher (38 to 42 %) with replay"),
        (-0.1, 0.2, "no different with replay"),
    ],
)
def test_the_sentence_follows_what_was_measured(low: float, high: float, told: str) -> None:
    values = (180.0, 200.0, 220.0, 300.0)
    runs = [Run(" ".join(p), *p, outcome(v)) for p, v in zip(PAIRS, values, strict=True)]
    change = Measured(float(np.mean([low, high])), low, high)
    steady = Measured(-0.3, -0.31, -0.29)
    found = [steady, change, steady]
    differences = [Difference("", "test", each) for each in found]
    floors = {"test": Floor(personalized=90.0, agnostic=100.0)}
    seen = Comparison("demo", 3, 9, floors, runs, differences=differences)
    sentence = what_was_seen(seen)
    assert told in sentence and "30 % lower (29 to 31 %) with both" in sentence
    assert sentence.endswith("180.0 instead of 300.0, where 90.0 is the best possible.")
