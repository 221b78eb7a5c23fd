"""The log of a game: what its notes say."""

import math

import pytest

from firehose.game.log import perplexity


def test_a_perplexity_that_no_float_can_hold_is_infinite() -> None:
    assert perplexity(2 * math.log(8), 2) == pytest.approx(8)
    assert perplexity(0.0, 0) == 1
    assert perplexity(800.0, 1) == math.inf
