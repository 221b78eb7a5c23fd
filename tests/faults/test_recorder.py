"""The simulated crashes: what is not synchronised is lost, and what is, is not."""

from collections.abc import Callable
from pathlib import Path

from aftermath import Crash, crashes, remains, sample
from firehose.storage.files import sync, write_whole
from recorder import Recorder


def recorded(root: Path, act: Callable[[Path], None]) -> list[Crash]:
    with Recorder(root) as recorder:
        act(root)
    return crashes(recorder.moments)


def contents_of(found: list[Crash], path: str) -> set[bytes | None]:
    """What may be in a file after a crash; where there is none, ``b"none"``."""
    return {crash.files.get(path, b"none") for crash in found}


def test_a_rename_before_the_data_may_leave_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old text")

    def naive(root: Path) -> None:
        (root / "new").write_bytes(b"NEW TEXT")
        (root / "new").replace(root / "file")
        sync(root)

    left = contents_of(recorded(tmp_path, naive), "file")
    assert left == {b"old text", b"NEW TEXT", b"", b"NEW ", bytes(8)}


def test_a_whole_file_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old text")
    found = recorded(tmp_path, lambda root: write_whole(root / "file", b"new text"))
    assert contents_of(found, "file") == {b"old text", b"new text"}
    ends = [crash for crash in found if crash.files["file"] == b"new text"]
    assert [set(crash.files) for crash in ends] == [{".", "file"}]


def test_after_a_folder_is_synchronised_its_names_stay(tmp_path: Path) -> None:
    def act(root: Path) -> None:
        write_whole(root / "first", b"1")
        write_whole(root / "second", b"2")

    for crash in recorded(tmp_path, act):
        assert "second" not in crash.files or crash.files["first"] == b"1"


def test_a_new_log_may_be_missing_however_safe_its_data(tmp_path: Path) -> None:
    (tmp_path / "count").write_bytes(b"0")

    def append(root: Path) -> None:
        for name, text in (("log", b"one\n"), ("count", b"1")):
            (root / name).write_bytes(text)
            sync(root / name)
        (root / "done").touch()

    found = recorded(tmp_path, append)
    counted = [crash for crash in found if crash.files["count"] == b"1"]
    assert contents_of(counted, "log") == {b"none", b"one\n"}
    done = [crash for crash in found if "done" in crash.files]
    assert contents_of(done, "log") == {b"one\n"}  # names come in their order


def test_appended_lines_are_lost_cut_or_zeros_but_never_what_was_synchronised() -> None:
    assert remains(b"abc", b"abcdefg") == [b"abc", b"abcdefg", b"abcde", b"abc\0\0\0\0"]
    assert remains(b"abcdefg", b"abc") == [b"abcdefg", b"abc"]
    assert remains(b"same", b"same") == [b"same"]


def test_a_folder_moves_with_all_that_is_in_it(tmp_path: Path) -> None:
    def publish(root: Path) -> None:
        (root / "aside").mkdir()
        (root / "aside" / "file").write_bytes(b"text")
        sync(root / "aside" / "file")
        sync(root / "aside")
        (root / "aside").rename(root / "result")
        sync(root)

    found = recorded(tmp_path, publish)
    assert not any({"aside", "result"} <= crash.files.keys() for crash in found)
    assert contents_of(found, "result/file") == {b"none", b"text"}
    assert found[-1].files == {".": None, "result": None, "result/file": b"text"}


def test_a_removal_comes_back_until_its_folder_is_synchronised(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")

    def remove(root: Path) -> None:
        (root / "file").unlink()
        (root / "other").mkdir()

    found = recorded(tmp_path, remove)
    assert [sorted(crash.files) for crash in found] == [[".", "file"], ["."], [".", "other"]]


def test_what_is_placed_is_what_was_recorded(tmp_path: Path) -> None:
    root, again = tmp_path / "root", tmp_path / "again"
    root.mkdir()
    found = recorded(root, lambda root: write_whole(root / "a" / "b", b"text"))
    for crash in found:
        crash.place(again)
        placed = {str(path.relative_to(again)) for path in (again, *again.rglob("*"))}
        assert placed == set(crash.files)
    assert len(sample(found, 3, 0)) == 3
    assert sample(found, 3, 1)[0] is found[-1]
    assert sorted(map(id, sample(found, 99, 0))) == sorted(map(id, found))
