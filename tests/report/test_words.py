"""Numbers in words."""

import pytest

from firehose.report.words import duration, interval, perplexity


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (12.4, "12 s"),
        (60, "1.0 min"),
        (3000, "50.0 min"),
        (5400, "1.5 h"),
        (1e8, "27,777.8 h"),
    ],
)
def test_durations_have_a_fitting_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ((17.3214, 15.2, 19.1), ("17", "15", "19")),
        ((17.3214, 17.05, 17.61), ("17.3", "17.1", "17.6")),
        ((0.01, -0.04, 1.8), ("0.0", "0.0", "1.8")),  # no negative zero
        ((-1234.5, -1300.0, -1100.0), ("−1,234", "−1,300", "−1,100")),
        ((5.0, 5.0, 5.0), ("5.00", "5.00", "5.00")),
    ],
)
def test_an_interval_decides_the_digits(
    numbers: tuple[float, float, float], told: tuple[str, str, str]
) -> None:
    assert interval(*numbers) == told


@pytest.mark.parametrize(
    ("value", "told"), [(3.14159, "3.142"), (86.54, "86.5"), (295.31, "295.3"), (1568.5, "1,568")]
)
def test_perplexities_have_about_four_digits(value: float, told: str) -> None:
    assert perplexity(value) == told
