"""Crashes in the middle of every command that writes: the same bits afterwards, or a sentence.

A sample of the states that a crash may leave; `python benchmarks/crashes.py` tries thousands.
"""

from pathlib import Path

import pytest

from aftermath import crashes
from crash_bench import WRONG, Rehearsal
from firehose.storage.workspace import workspace
from recorder import Recorder
from scenarios import SCENARIOS

STATES = 4  # of each scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_after_a_crash_there_are_the_same_bits_or_a_sentence(tmp_path: Path, name: str) -> None:
    report = Rehearsal(name, tmp_path).run(STATES, seed=0)
    assert report.faults == {}
    assert report.outcomes.total() == STATES


def test_commands_that_do_not_synchronise_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "_note_synced", lambda *_: None)
    report = Rehearsal("save", tmp_path).run(20, seed=0)
    assert report.outcomes[WRONG] > 0


def test_what_is_replaced_is_there_at_every_moment_and_then_gone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_bytes(b"old")
    with Recorder(tmp_path) as recorder, workspace(tmp_path / "out", replace=True) as work:
        (work / "result").mkdir()
        (work / "result" / "file").write_bytes(b"new")
    found = crashes(recorder.moments)
    assert {crash.files.get("out/file") for crash in found} == {b"old", b"new"}
    last = [crash.files for crash in found if crash.after == len(recorder.moments) - 1]
    assert last == [{".": None, "out": None, "out/file": b"new"}]
