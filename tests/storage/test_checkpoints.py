"""Checkpoints: whole or not taken, and never without the logs that they count on."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firehose.errors import FirehoseError
from firehose.storage import tensors
from firehose.storage.checkpoints import Checkpoint, Checkpoints
from firehose.storage.logs import AppendLog
from firehose.storage.seals import File

STATE = {"number": 0, "table": {"weights": torch.arange(3.0), "ids": np.arange(2)}, "rate": 1e-3}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    return Checkpoints(tmp_path / "run/checkpoints")


def grown(checkpoints: Checkpoints, *numbers: int) -> None:
    """Write checkpoints; before each, a line of the log that it counts on."""
    log = AppendLog(checkpoints.folder.parent / "log")
    for number in numbers:
        log.append(b"line\n")
        checkpoints.write(number, STATE | {"number": number}, {"log": log.seal()})


def taken(checkpoints: Checkpoints) -> int:
    found = checkpoints.latest()
    assert isinstance(found, Checkpoint)
    assert torch.equal(found.state["table"]["weights"], torch.arange(3.0))
    assert found.state["table"]["ids"].tolist() == [0, 1] and found.state["rate"] == 1e-3
    return int(found.state["number"])


def test_the_newest_two_are_kept(checkpoints: Checkpoints) -> None:
    assert checkpoints.latest() is None
    grown(checkpoints, 1, 2, 3)
    assert taken(checkpoints) == 3 and checkpoints.numbers() == [2, 3]


@pytest.mark.parametrize("name", ["tensors.safetensors", "values.json"])
def test_a_single_byte_that_is_altered_is_damage(checkpoints: Checkpoints, name: str) -> None:
    grown(checkpoints, 1)
    (place,) = checkpoints.places()
    whole = (place / name).read_bytes()
    for position in range(len(whole)):
        for bit in (1, 32):
            altered = bytearray(whole)
            altered[position] ^= bit
            (place / name).write_bytes(altered)
            with pytest.raises(FirehoseError, match=f"state-000000001 is damaged: {name} does not"):
                checkpoints.read(place)
    for cut in (b"", whole[:-1], whole[: len(whole) // 2]):
        (place / name).write_bytes(cut)
        with pytest.raises(FirehoseError, match="is damaged"):
            checkpoints.read(place)
    (place / name).unlink()
    with pytest.raises(FirehoseError, match="is damaged"):
        checkpoints.read(place)


def test_the_one_before_a_damaged_one_is_taken_which_is_said(
    checkpoints: Checkpoints, capsys: pytest.CaptureFixture[str]
) -> None:
    grown(checkpoints, 1, 2)
    (checkpoints.places()[-1] / "values.json").write_bytes(b"")
    assert taken(checkpoints) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "state-000000002 is damaged" in said and "state-000000001, is taken instead" in said
    (checkpoints.places()[0] / "tensors.safetensors").unlink()
    with pytest.raises(FirehoseError, match=r"state-000000002 is damaged.* begin again with"):
        checkpoints.latest()


@pytest.mark.parametrize(("content", "expected"), [(b"line\nline\nmore", 2), (b"line\nli", 1)])
def test_the_newest_that_the_log_covers_is_taken(
    checkpoints: Checkpoints, content: bytes, expected: int
) -> None:
    grown(checkpoints, 1, 2)
    (checkpoints.folder.parent / "log").write_bytes(content)
    assert taken(checkpoints) == expected


@pytest.mark.parametrize("content", [b"", b"lin", b"lime\nline\n", b"\0" * 10])
def test_none_is_taken_where_the_log_covers_none(checkpoints: Checkpoints, content: bytes) -> None:
    grown(checkpoints, 1, 2)
    log = checkpoints.folder.parent / "log"
    log.write_bytes(content)
    with pytest.raises(FirehoseError, match=r"counts on a log that is damaged: log .* begin again"):
        checkpoints.latest()
    assert log.read_bytes() == content


def test_any_of_several_seals_will_do(checkpoints: Checkpoints) -> None:
    log, seals = (
        checkpoints.folder.parent / "log",
        [File.of_content(b"old"), File.of_content(b"new")],
    )
    checkpoints.write(1, STATE, {"log": seals})
    for content, seal in zip((b"old", b"new"), seals, strict=True):
        log.write_bytes(content)
        found = checkpoints.latest()
        assert found is not None and found.logs == {"log": seal}
    log.write_bytes(b"nor")
    with pytest.raises(FirehoseError, match="does not match"):
        checkpoints.latest()


def test_one_of_the_same_number_is_there_until_the_new_one_is(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.write(4, STATE | {"number": 1}, {})

    def stop(_place: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(
            shutil, "rmtree", lambda place, **_: stop(place) if "state" in str(place) else 0
        )
        shutil_rename = Path.rename
        patch.setattr(
            Path, "rename", lambda path, to: (taken(checkpoints), shutil_rename(path, to))
        )
        with pytest.raises(KeyboardInterrupt):
            checkpoints.write(4, STATE | {"number": 2}, {}, kept=1)
    assert taken(checkpoints) == 2 and checkpoints.numbers() == [4]
    for number in range(3, 13):
        checkpoints.write(4, STATE | {"number": number}, {}, kept=1)
        assert taken(checkpoints) == number and len(checkpoints.places()) == 1


@pytest.mark.parametrize("failing", ["tensors", "values", "rename"])
def test_a_full_disk_is_one_sentence_and_leaves_the_ones_before(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    grown(checkpoints, 1, 2)

    def full(*_arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where = {"tensors": (tensors, "write_through"), "rename": (Path, "rename")}
    target, name = where.get(failing, (Path, "replace"))
    monkeypatch.setattr(target, name, full)
    with pytest.raises(FirehoseError, match=r"Cannot write .*: No space left on device"):
        checkpoints.write(3, STATE, {})
    assert taken(checkpoints) == 2
    assert [path.name for path in checkpoints.folder.iterdir() if "state" not in path.name] == []


def test_another_schema_is_told(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firehose.storage.checkpoints.SCHEMA", 99)
    checkpoints.write(1, STATE, {})
    monkeypatch.undo()
    with pytest.raises(FirehoseError, match="has checkpoint schema 99, this Firehose reads 3"):
        checkpoints.latest()


def test_what_is_newer_than_the_one_taken_is_removed(checkpoints: Checkpoints) -> None:
    grown(checkpoints, 1, 2)
    (checkpoints.places()[-1] / "values.json").unlink()
    found = checkpoints.latest()
    assert found is not None
    checkpoints.drop_newer(found)
    assert checkpoints.numbers() == [1]
