"""Progress in narrow terminals, and in logs."""

import io
import re

import pytest
from rich.console import Console

from firehose import progress


@pytest.mark.parametrize(("width", "has_bar"), [(60, False), (80, False), (140, True)])
def test_in_a_narrow_terminal_the_bar_gives_way(
    monkeypatch: pytest.MonkeyPatch, width: int, has_bar: bool
) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(progress, "console", console)
    clock = iter(range(0, 100_000, 5))
    monkeypatch.setattr(console, "get_time", lambda: float(next(clock)))
    with progress.measure(12_345, "playing") as show:
        for done in range(1_000, 6_000, 500):
            show(done, "perplexity 1234.5 · 123 posts/s")
    drawn = [line for line in re.split(r"[\r\n]", file.getvalue()) if "/12345" in line]
    assert drawn and all(len(re.sub(r"\x1b\[.*?[A-Za-z]", "", line)) <= width for line in drawn)
    assert any("━" in line for line in drawn) == has_bar
    assert re.search(r"\d\d:\d\d", drawn[-1]), drawn[-1]  # the estimate stays


def test_in_a_log_there_is_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    file, now = io.StringIO(), [0.0]
    monkeypatch.setattr(progress, "console", Console(file=file))
    monkeypatch.setattr("firehose.progress.time.monotonic", lambda: now[0])
    with progress.measure(1_000, "playing") as show:
        for done in range(1, 301):
            now[0] += 0.5
            show(done, "perplexity 9")
    assert file.getvalue().splitlines() == [
        "playing: 120 of 1,000, 7 min left; perplexity 9",
        "playing: 240 of 1,000, 6 min left; perplexity 9",
    ]


@pytest.mark.parametrize(
    ("seconds", "told"), [(45, "45 s"), (89, "89 s"), (600, "10 min"), (12_000, "3 h 20 min")]
)
def test_what_is_left_is_told_in_few_words(seconds: float, told: str) -> None:
    assert progress._clock(seconds) == told
