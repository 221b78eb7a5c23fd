"""Processes that are started together: their place, their end, and what is said of it."""

import os
import signal
import sys
import threading
import time

import pytest

from firehose.errors import FirehoseError
from firehose.parallel import launch as launching
from firehose.parallel.launch import launch
from firehose.parallel.place import LOST, Place
from small_commands import Commands

END = "import os, signal, sys, time; rank = int(os.environ['RANK']); "


def started(code: str, processes: int = 2) -> int:
    """The status of processes that do something of Python's."""
    return launch(processes, [sys.executable, "-S", "-c", END + code])


def test_each_process_is_told_its_place(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("places")
    names = "RANK LOCAL_RANK WORLD_SIZE OMP_NUM_THREADS MASTER_ADDR"
    tell = f"' '.join(os.environ[name] for name in {names!r}.split())"
    assert started(f"open(f'{folder}/{{rank}}', 'w').write({tell})", 3) == 0
    told = [(folder / str(rank)).read_text(encoding="utf-8") for rank in range(3)]
    assert told == [f"{rank} {rank} 3 1 127.0.0.1" for rank in range(3)]


def test_the_status_is_that_of_the_first_that_says_what_went_wrong() -> None:
    assert started("sys.exit(0)") == 0
    assert started(f"sys.exit({LOST} if rank else 2)") == 2
    assert started(f"sys.exit(3 if rank else {LOST})") == 3


def test_who_was_killed_is_told() -> None:
    kill = "os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else sys.exit(76)"
    with pytest.raises(FirehoseError, match=r"Process 2 .* by SIGKILL .*`firehose resume`"):
        started(kill)


def test_processes_that_lost_each_other() -> None:
    with pytest.raises(FirehoseError, match="does not answer any more"):
        started(f"sys.exit({LOST})")


def test_who_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "GRACE", 0.3)
    assert started("sys.exit(1) if rank == 0 else None\nwhile True: time.sleep(1)") == 1


def test_signals_are_handed_on_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("signals")
    wait = (
        "got = []; signal.signal(signal.SIGTERM, lambda *_: got.append(1)); "
        f"open(f'{folder}/{{rank}}', 'w').close()\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.2); sys.exit(143 if len(got) == 1 else 9)"
    )

    def terminate() -> None:
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate).start()
    assert started(wait) == 143


def test_alone_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Place.here() == Place(0, 1, 0) and Place.here().speaks
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert Place.here().size == 1  # nobody says where to meet
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert Place.here() == Place(5, 8, 1) and not Place.here().speaks
    assert str(Place.here()) == "process 6 of 8"


def test_processes_that_torchrun_has_started_are_as_many_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    said = Commands(monkeypatch, capsys)("resume", "run", "--processes", 3)
    assert said.status == 1 and "torchrun has started 2 processes" in said.err
    monkeypatch.setenv("RANK", "1")
    said = Commands(monkeypatch, capsys)("resume", "run", "--processes", 3)
    assert said.status == 1 and not said.err  # the first one says it
