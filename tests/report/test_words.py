"""Numbers in words."""

import pytest

from firehose.report.words import duration


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
