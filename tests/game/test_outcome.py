"""What came of games: averaged over seeds, every number of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from firehose.game.outcome import averaged
from small_experiments import outcome


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    else:
        yield value


def test_an_average_over_seeds_has_nothing_of_one_seed_alone() -> None:
    mean = averaged([outcome(20), outcome(80)]).public()
    assert mean.pop("kept") == [2, 4]
    assert list(numbers(mean)) == pytest.approx(
        list(numbers({k: v for k, v in outcome(40).public().items() if k != "kept"}))
    )
