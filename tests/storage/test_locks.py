"""The lock of a folder: held by one, seen by all, and gone with who held it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from firehose.errors import FirehoseError
from firehose.storage import locks
from firehose.storage.checkpoints import Checkpoints
from firehose.storage.locks import LockedError, is_locked, locked, unchanged
from firehose.storage.workspace import workspace

HOLD = """
import sys, time
from pathlib import Path
from firehose.storage.locks import locked
with locked(Path(sys.argv[1]), wait=True):
    print("held", flush=True)
    time.sleep(60)
"""


def test_who_does_not_wait_is_told_and_who_waits_gets_it(tmp_path: Path) -> None:
    order: list[str] = []

    def wait() -> None:
        with locked(tmp_path, wait=True):
            order.append("waited")

    waiting = threading.Thread(target=wait)
    with locked(tmp_path, wait=False):
        waiting.start()
        with (
            pytest.raises(FirehoseError, match="is in use: another process is changing it; wait"),
            locked(tmp_path, wait=False),
        ):
            order.append("never")
        order.append("held")
    waiting.join(timeout=60)
    assert order == ["held", "waited"]
    with locked(tmp_path, wait=False):
        pass


def test_it_is_seen_whether_a_folder_is_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path) and not is_locked(tmp_path / "none")
    with locked(tmp_path, wait=False):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_replaced_before_it_is_locked_is_not_the_one_that_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock, handles = tmp_path / "folder", locks._lock, list[int]()

    def late(handle: int, kind: int) -> bool:
        if not handles:
            folder.rename(tmp_path / "old")
            folder.mkdir()
        handles.append(handle)
        return lock(handle, kind)

    monkeypatch.setattr(locks, "_lock", late)
    with locked(folder, wait=False):
        assert is_locked(folder) and not is_locked(tmp_path / "old")


def test_readers_keep_writers_out_and_writers_readers(tmp_path: Path) -> None:
    with unchanged(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()
    with unchanged(tmp_path), unchanged(tmp_path):
        assert not is_locked(tmp_path)
        with pytest.raises(LockedError, match="is in use"), locked(tmp_path, wait=False):
            pass
    writing, reading = locked(tmp_path, wait=False), unchanged(tmp_path)
    with writing, pytest.raises(LockedError, match="is in use"), reading:
        pass


def test_what_is_to_be_replaced_is_locked_from_the_beginning(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "old").mkdir(parents=True)
    with workspace(out, replace=True) as folder:
        assert is_locked(out)
        with pytest.raises(LockedError, match="is in use"), workspace(out, replace=True):
            pass
        (folder / "result" / "new").mkdir(parents=True)
    assert [path.name for path in out.iterdir()] == ["new"]
    with locked(out, wait=False), pytest.raises(LockedError), workspace(out, replace=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_inside_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path, wait=False):
        _ = 1 / 0
    assert not is_locked(tmp_path)


def test_who_only_looks_does_not_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)  # as is_locked does
    monkeypatch.setattr(time, "sleep", lambda _: os.close(handle))  # and is gone
    with locked(tmp_path, wait=False):
        assert is_locked(tmp_path)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holding:
        assert holding.stdout is not None and holding.stdout.readline() == "held\n"
        assert is_locked(tmp_path)
        holding.send_signal(signal.SIGKILL)
        holding.wait()
    assert not is_locked(tmp_path)


def test_checkpoints_and_workspaces_use_the_same_lock(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "run")
    assert not checkpoints.are_held()
    with checkpoints.held():
        assert checkpoints.are_held() and is_locked(tmp_path / "run")
        with (
            pytest.raises(locks.LockedError, match="is in use"),
            Checkpoints(tmp_path / "run").held(),
        ):
            pass
    assert not checkpoints.are_held()
    with workspace(tmp_path / "out") as folder:
        assert is_locked(folder) and not is_locked(tmp_path)
        (folder / "result").mkdir()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FirehoseError, match=r"Cannot write to .*file/run: Not a directory"):
        Checkpoints(tmp_path / "file" / "run").held().__enter__()
    with (
        pytest.raises(FirehoseError, match=r"Cannot write to .*file: "),
        workspace(tmp_path / "file" / "out"),
    ):
        pass
