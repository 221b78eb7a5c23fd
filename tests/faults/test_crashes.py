"""Crashes in the middle of every command that writes: the same bits afterwards, or a sentence.

A sample of the states that a crash may leave; `python benchmarks/crashes.py` tries thousands.
"""

from pathlib import Path

import pytest

from crash_bench import Rehearsal
from scenarios import SCENARIOS

STATES = 6  # of each scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_after_a_crash_there_are_the_same_bits_or_a_sentence(tmp_path: Path, name: str) -> None:
    report = Rehearsal(name, tmp_path).run(STATES, seed=0)
    assert report.faults == {}
    assert report.outcomes.total() == STATES
