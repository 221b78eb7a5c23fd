"""Settings of a game: one rate, or one for each optimizer."""

import pytest

from firehose.errors import FirehoseError
from firehose.game.settings import make_settings

RATES = {"online-gd": 0.001, "congrad": 0.002}


@pytest.mark.parametrize(("optimizer", "rate"), RATES.items())
def test_an_optimizer_takes_its_own_rate(optimizer: str, rate: float) -> None:
    playing = make_settings(play={"rate": RATES, "optimizer": optimizer}).play
    assert playing.rate == rate
    assert make_settings(play=playing.public()).play == playing  # what is written is one rate


def test_a_rate_that_is_given_counts_for_all() -> None:
    assert make_settings(play={"rate": RATES}).play.rate == 0.002  # ConGraD's, the default
    assert make_settings("laptop", ["play.rate=0.5"]).play.rate == 0.5


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"rate": {"congrad": 0.1}}, "rate is one number, or one for each of online-gd, congrad"),
        ({"rate": {**RATES, "adam": 0.1}}, "one for each of"),
        ({"rate": RATES, "optimizer": "congard"}, "did you mean 'congrad'"),
        ({"rate": {"online-gd": -1, "congrad": 0}, "optimizer": "online-gd"}, "greater than 0"),
    ],
)
def test_wrong_rates_are_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(FirehoseError, match=sentence):
        make_settings(play=values)
