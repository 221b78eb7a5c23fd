"""Odd terminals, pipes that end, locales and names without UTF-8: no tracebacks, nothing lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from firehose.cli.app import show
from small_commands import Commands

MAIN = "from firehose.cli import main; import sys; sys.argv[1:] = {}; main()"


def run(program: str, output: int | None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A program in a process of its own that may print where nobody reads."""
    return subprocess.run(
        [sys.executable, "-c", program],
        stdout=output,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
        check=False,
    )


def test_a_command_goes_on_where_nobody_reads_what_it_prints(tmp_path: Path) -> None:
    program = (
        "from firehose.cli.app import show\n"
        f"show('a'); show('b'); open({str(tmp_path / 'done')!r}, 'w').close()"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = run(program, writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "done").exists()


def test_an_output_that_was_closed_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    show("a")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_on_a_full_disk_is_told() -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(MAIN.format(["--version"]), full.fileno())
        assert done.returncode == 1
        assert b"utput: the disk is full" in done.stderr and done.stderr.count(b"\n") == 1


def test_characters_that_a_locale_lacks_are_replaced() -> None:
    program = (
        "from firehose.cli import main; import sys; sys.argv[1:] = ['reproduce', 'list']; main()"
    )
    done = run(program, subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_name_that_is_not_utf_8_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Commands(monkeypatch, capsys)("stats", os.fsdecode(b"caf\xe9"))
    assert said.status == 1
    assert said.err == "Error: b'caf\\xe9' is not UTF-8; rename the file.\n"


@pytest.mark.parametrize("columns", ["1", "20"])
def test_a_narrow_terminal_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "dumb")
    said = Commands(monkeypatch, capsys)("reproduce", "list")
    assert (said.status, said.err) == (0, "")
