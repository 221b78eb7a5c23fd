"""Logs that are appended to: what was counted on is there, or it is refused."""

import builtins
import errno
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pytest

from firehose.errors import FirehoseError
from firehose.storage.logs import EMPTY, AppendLog, begins_with
from firehose.storage.seals import File


def test_a_seal_tells_the_length_and_the_checksum_of_all_that_was_appended(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "run" / "log")
    assert log.seal() == EMPTY
    log.append(b"one")
    log.append(b"two")
    content = (tmp_path / "run" / "log").read_bytes()
    assert content == b"onetwo"
    assert log.seal() == File(bytes=6, sha256=hashlib.sha256(content).hexdigest())


def test_opened_at_a_seal_it_is_cut_there_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AppendLog(path)
    log.append(b"counted on")
    seal = log.seal()
    log.append(b", not counted on")
    again = AppendLog(path, seal)
    assert path.read_bytes() == b"counted on"
    again.append(b", again")
    assert again.seal() == File.of(path)
    assert begins_with(path, seal) and begins_with(path, again.seal())
    AppendLog(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("harm", ["missing", "empty", "cut", "zeros", "altered"])
def test_what_does_not_begin_with_what_was_counted_on_is_refused_and_left_alone(
    tmp_path: Path, harm: str
) -> None:
    path = tmp_path / "log"
    log = AppendLog(path)
    log.append(b"counted on")
    seal = log.seal()
    harmed = {
        "empty": b"",
        "cut": b"counted o",
        "zeros": b"counted\0\0\0",
        "altered": b"counted oN, and more",
    }
    path.unlink()
    if harm != "missing":
        path.write_bytes(harmed[harm])
    assert not begins_with(path, seal)
    with pytest.raises(FirehoseError, match=r"log is damaged: log (is missing|has|does not match)"):
        AppendLog(path, seal)
    assert not path.exists() if harm == "missing" else path.read_bytes() == harmed[harm]


def test_it_is_on_disk_with_its_name_when_it_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: dict[int, int] = {}
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: on_disk.update({os.fstat(handle).st_ino: os.fstat(handle).st_size}),
    )
    log = AppendLog(tmp_path / "log")
    assert tmp_path.stat().st_ino in on_disk
    log.append(b"content")
    seal = log.seal()
    assert on_disk[(tmp_path / "log").stat().st_ino] == seal.bytes == 7


def test_a_full_disk_is_one_sentence_and_the_end_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AppendLog(tmp_path / "log")
    log.append(b"before")
    seal = log.seal()
    whole = io.open

    def full(*arguments: Any, **named: Any) -> Any:
        file = whole(*arguments, **named)

        class Full:
            """Writes half of it, as a disk does that runs full."""

            def __enter__(self) -> "Full":
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def seek(self, place: int) -> None:
                file.seek(place)

            def write(self, content: bytes) -> None:
                file.write(content[: len(content) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return Full()

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", full)
        patch.setattr(builtins, "open", full)
        with pytest.raises(FirehoseError, match=r"Cannot write .*log: No space left on device"):
            log.append(b"too much")
    assert log.seal() == seal and begins_with(tmp_path / "log", seal)
    log.append(b", after")
    assert AppendLog(tmp_path / "log", log.seal()).path.read_bytes() == b"before, after"
