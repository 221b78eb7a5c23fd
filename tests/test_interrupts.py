"""Signals: what commands end with, what they say, and who ends with whom."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import prepared, simple_posts
from firehose import interrupts
from firehose.data.corpus import Corpus
from firehose.experiments.execute import Slot, Working
from firehose.experiments.jobs import Job
from firehose.game.settings import make_settings
from small_commands import Commands
from small_experiments import TINY_SCALE, tiny_scale

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}
# A parent that starts a process bound to itself, tells its number, and waits.
PARENT = """
import os, subprocess, sys, time
from firehose.interrupts import BOUND
child = "import time, firehose.interrupts as own; own.end_with_parent(); time.sleep(60)"
made = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE,
                        env=os.environ | {BOUND: "1"}, start_new_session=True)
print(made.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def firehose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Commands]:
    """Runs commands in this process."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(interrupts._Received, "number", int(signal.SIGINT))
    yield Commands(monkeypatch, capsys)
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("sign", SIGNALS)
def test_a_command_that_is_stopped_ends_with_the_status_of_the_signal(
    firehose: Commands, monkeypatch: pytest.MonkeyPatch, sign: signal.Signals
) -> None:
    monkeypatch.setattr("firehose.data.corpus.check", lambda _: signal.raise_signal(sign))
    said = firehose("check", "corpus")
    assert said.status == SIGNALS[sign]
    assert said.err == "Error: Stopped; the same command begins again.\n"


@pytest.mark.parametrize("sign", SIGNALS)
@pytest.mark.parametrize("moment", ["opening", "playing", "finishing", "insisting"])
def test_a_run_that_is_stopped_says_how_it_goes_on(
    firehose: Commands,
    small_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sign: signal.Signals,
    moment: str,
) -> None:
    from firehose.game.playing import Playing
    from firehose.game.run import play

    run = tmp_path / "run"
    begin = ["play", small_corpus.path, "--recipe", tiny_scale(tmp_path), "--out", run]
    resume = f"`firehose resume {run}` goes on from"

    def note(self: Playing) -> str:
        if self.done == 2:
            for _ in range(1 + (moment == "insisting")):
                signal.raise_signal(sign)
        return ""

    with monkeypatch.context() as patch:
        if moment == "finishing":
            patch.setattr(Playing, "finish", lambda _: signal.raise_signal(sign))
        else:
            patch.setattr(Playing, "note", note)
        said = firehose(*begin)
    assert said.status == SIGNALS[sign] and resume in said.err
    if moment == "opening":
        with monkeypatch.context() as patch:
            patch.setattr("firehose.game.run.open_run", lambda *_: signal.raise_signal(sign))
            said = firehose("resume", run)
        assert said.status == SIGNALS[sign] and resume in said.err
    assert firehose("resume", run).status == 0
    play(small_corpus, tmp_path / "whole", make_settings(tmp_path / "tiny.toml"))
    assert (run / "paid.f32").read_bytes() == (tmp_path / "whole" / "paid.f32").read_bytes()


def is_there(process: int) -> bool:
    """Whether a process goes on; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_process_ends_with_its_parent_however_that_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_there(child)
        parent.kill()
    for _ in range(200):
        if not is_there(child):
            break
        time.sleep(0.05)
    assert not is_there(child)


def test_a_job_is_bound_to_the_process_that_starts_it(tmp_path: Path) -> None:
    corpus = prepared(tmp_path, simple_posts())
    settings = make_settings(assignments=TINY_SCALE)
    job = Job("play", settings, corpus, tmp_path / "runs")
    job.store.mkdir()
    job.recipe.write_text(settings.to_toml())
    working = Working(job, Slot(1, None))
    try:
        assert working.process.stdin is not None
        working.process.stdin.close()  # as the system does when we end
        working.process.stdin = None
        assert working.process.wait(60) in (143, -signal.SIGTERM)
    finally:
        working.process.kill()
        working.process.wait()
    assert not job.is_done


def test_a_process_that_nobody_bound_does_not_look_at_its_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(interrupts.BOUND, raising=False)
    monkeypatch.setattr(os, "read", None)
    interrupts.end_with_parent()
