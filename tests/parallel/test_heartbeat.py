"""A process that does not live any more is missed, and one that is at work for long is not."""

import os
import threading
import time

import pytest
from torch._C._distributed_c10d import HashStore

from firehose.parallel.heartbeat import Heartbeat
from firehose.parallel.place import LOST, Place

BEAT, SILENCE = 0.01, 1.0


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The statuses with which processes would have ended; a thread that ends one ends itself."""
    found: list[int] = []

    def end(status: int) -> None:
        found.append(status)
        raise SystemExit

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    return found


def beating(store: HashStore, rank: int, size: int = 2, launched: bool = False) -> Heartbeat:
    made = Heartbeat(store, Place(rank, size, rank, launched), BEAT, SILENCE)
    made.start()
    return made


def wait_for(ends: list[int], count: int, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while len(ends) < count and time.monotonic() < end:
        time.sleep(0.01)


def test_silence_ends_a_process_with_a_sentence(
    ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    beating(HashStore(), 0)
    wait_for(ends, 1)
    assert ends == [1]
    told = capsys.readouterr().err
    assert told.startswith("Error: ") and told.count("\n") == 1 and "firehose resume" in told


def test_a_parent_tells_it_instead(ends: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    beating(HashStore(), 0, launched=True)
    wait_for(ends, 1)
    assert ends == [LOST] and not capsys.readouterr().err


def test_who_lives_is_not_missed(ends: list[int]) -> None:
    store = HashStore()
    hearts = [beating(store, rank) for rank in (0, 1)]
    time.sleep(1.5 * SILENCE)  # longer than silence may last
    assert not ends
    hearts[1].stop()  # it takes leave, and is not missed either
    time.sleep(1.5 * SILENCE)
    assert not ends
    hearts[0].stop()


def test_all_end_when_one_is_lost(ends: list[int]) -> None:
    store = HashStore()
    for rank in (0, 1, 2):  # the fourth never lives; the third looks after it
        beating(store, rank, size=4, launched=True)
    wait_for(ends, 3)
    assert ends == [LOST] * 3


def test_processes_meet_or_do_not() -> None:
    store = HashStore()
    first, second = (Heartbeat(store, Place(rank, 2, rank), BEAT, SILENCE) for rank in (0, 1))
    with pytest.raises(RuntimeError, match="not all have come"):
        first.meet(0.05)
    second.meet(0.05)  # the first one has been there
    first.meet(0.05)


def test_what_went_wrong_elsewhere_is_told_here() -> None:
    store = HashStore()
    heart = Heartbeat(store, Place(0, 2), BEAT, SILENCE)
    assert heart.word(0.05) is None
    Heartbeat(store, Place(1, 2, 1), BEAT, SILENCE).tell("The disk is full.")
    assert heart.word() == "Process 2 of 2 has failed: The disk is full."
