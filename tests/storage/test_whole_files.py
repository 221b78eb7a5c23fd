"""Files appear whole or not at all, and are on disk when they do."""

import errno
import os
import stat
from pathlib import Path

import pytest
import torch

from firehose.errors import FirehoseError
from firehose.storage import tensors
from firehose.storage.files import make_folder, write_whole


def test_a_file_that_cannot_be_put_in_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "file.txt"
    write_whole(path, b"before")

    def broken(_path: Path, _target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(FirehoseError, match=r"Cannot write .*file.txt: No space left on device"):
        write_whole(path, b"after")
    assert path.read_bytes() == b"before"
    assert [found.name for found in path.parent.iterdir()] == ["file.txt"]


def test_the_file_is_on_disk_before_it_is_renamed_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def watched_fsync(handle: int) -> None:
        inode = os.fstat(handle).st_ino
        (found,) = (each for each in (tmp_path, *tmp_path.iterdir()) if each.stat().st_ino == inode)
        held = found.read_bytes().decode() if found.is_file() else "names"
        events.append(f"{held} to disk")
        fsync(handle)

    def watched_rename(path: Path, target: Path) -> Path:
        events.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_rename)
    write_whole(tmp_path / "file.txt", b"content")
    assert events == ["content to disk", "rename", "names to disk"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    path = tmp_path / "file.txt"
    before = os.umask(mask)
    try:
        for content in (b"new", b"replaced"):
            write_whole(path, content)
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_the_names_of_new_folders_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised: list[int] = []
    fsync = os.fsync

    def watched(handle: int) -> None:
        synchronised.append(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    make_folder(tmp_path / "a" / "b" / "c")
    assert synchronised == [
        path.stat().st_ino for path in (tmp_path, tmp_path / "a", tmp_path / "a/b")
    ]
    synchronised.clear()
    make_folder(tmp_path / "a" / "b" / "c")
    assert synchronised == []


def test_a_full_device_is_one_sentence() -> None:
    with pytest.raises(FirehoseError, match="Cannot write /dev/full: No space left on device"):
        tensors.write(Path("/dev/full"), {"zeros": torch.zeros(9)})


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_tensors_follow_the_umask_and_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int, mode: int
) -> None:
    synchronised: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synchronised.append(os.fstat(handle).st_size))
    before = os.umask(mask)
    try:
        tensors.write(tmp_path / "zeros.safetensors", {"zeros": torch.zeros(9)})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "zeros.safetensors").stat().st_mode) == mode
    assert synchronised == [(tmp_path / "zeros.safetensors").stat().st_size]
