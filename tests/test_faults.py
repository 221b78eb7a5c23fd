"""Faults of the system and of a user's own code: a sentence each, and nothing lost."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import prepared, simple_posts
from firehose.data.corpus import Corpus
from firehose.faults import SYSTEM, told
from small_commands import Commands
from small_experiments import RECIPE, tiny_scale

OWN = """
from firehose.methods.learners import Learner
from helping import divide

class Mine(Learner):
    def gradient(self, step):
        return divide(1, 0)
"""


@pytest.fixture
def firehose(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Runs commands in this process."""
    return Commands(monkeypatch, capsys)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """With posts for a pretrained model to begin with."""
    folder = tmp_path_factory.mktemp("corpus")
    return prepared(folder, simple_posts(posts=32), split={"pretrain_before": "2014-05-14"})


def writers(corpus: Corpus, folder: Path, out: Path) -> dict[str, list[object]]:
    """The commands that write, each told to write to ``out``."""
    tiny = ["--recipe", tiny_scale(folder), "--out", out]
    (folder / "steps.toml").write_text(RECIPE)
    reproduce = ["reproduce", folder / "steps.toml", "--corpus", corpus.path, "--seeds", 1]
    return {
        "prepare": ["prepare", corpus.path.parent / "posts.jsonl", "--workers", 0, "--out", out],
        "stats": ["stats", corpus.path, "--out", out],
        "pretrain": ["pretrain", corpus.path, *tiny],
        "offline": ["offline", corpus.path, *tiny],
        "play": ["play", corpus.path, *tiny],
        "reproduce": [*reproduce, "--scale", folder / "tiny.toml", "--out", out],
        "classic fetch": ["classic", "fetch", "--data", "mnist", "--out", out],
        "demo": ["demo", "--workers", 0, "--out", out],
    }


@contextmanager
def full_disk() -> Iterator[None]:
    """Files cannot grow beyond a few bytes, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("place", ["middle", "too long", "read-only", "circle"])
def test_where_nothing_can_be_written_every_command_says_so_in_a_sentence(
    firehose: Commands, corpus: Corpus, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    outs = {
        "middle": tmp_path / "file" / "x" / "y",
        "too long": tmp_path / ("a" * 300),
        "read-only": Path("/proc/firehose"),
        "circle": tmp_path / "circle" / "x",
    }
    for name, command in writers(corpus, tmp_path, outs[place]).items():
        said = firehose(*command)
        assert said.status == 1, name
        assert said.err.startswith("Error: ") and said.err.count("\n") == 1, (name, said.err)
        assert str(outs[place].parent) in said.err, name
    assert (tmp_path / "file").read_text() == "kept"


def test_a_full_disk_is_a_sentence_that_names_the_path(
    firehose: Commands, corpus: Corpus, tmp_path: Path
) -> None:
    for name, command in writers(corpus, tmp_path, tmp_path / "out").items():
        if name in ("reproduce", "demo", "classic fetch"):  # they start others, or fetch first
            continue
        with full_disk():
            said = firehose(*command)
        assert said.status == 1, name
        *_, last = said.err.splitlines()
        assert last.startswith("Error: ") and str(tmp_path / "out") in last, (name, said.err)
        assert "Traceback" not in said.err


@pytest.mark.parametrize("number", sorted(SYSTEM))
def test_a_fault_of_the_system_names_the_path_and_what_to_do(number: int) -> None:
    what, remedy = SYSTEM[number]
    error = OSError(number, os.strerror(number), "/some/where")
    assert told(error, "out") == f"/some/where: {what}; {remedy}."
    assert told(OSError(number, ""), "out") == f"out: {what}; {remedy}."


def test_libraries_tell_faults_of_the_system_in_their_own_ways() -> None:
    for error in (
        RuntimeError("I/O error: No space left on device (os error 28)"),
        OSError("[Errno 28] Error writing bytes to file"),
        OSError(errno.ENOSPC, "No space left on device"),
    ):
        assert told(error, "out") == "out: the disk is full; make room, and give the command again."
    lacking = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes."
    assert "not enough memory" in str(told(RuntimeError(lacking)))
    assert "not enough memory" in str(told(MemoryError()))
    assert told(RuntimeError("a defect"), "out") is None
    assert told(KeyError("a defect"), "out") is None


def test_too_many_open_files_do_not_make_a_corpus_damaged(
    firehose: Commands, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    def load(path: Path, **_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(np, "load", load)
    said = firehose("check", corpus.path)
    assert "too many files are open" in said.err and "damaged" not in said.err


def test_a_users_own_code_that_fails_shows_its_own_lines_and_no_others(
    firehose: Commands,
    corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "helping.py").write_text("def divide(a, b):\n    return a / b\n")
    own = tmp_path / "own.py"
    own.write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["play", corpus.path, "--recipe", tiny_scale(tmp_path), "--learner", f"{own}:Mine"]
    said = firehose(*command, "--out", tmp_path / "run")
    assert said.status == 1
    sentence, first, second = said.err.splitlines()
    assert sentence.endswith("failed: ZeroDivisionError: division by zero.")
    assert first == f"  {own}, line 7, in gradient: return divide(1, 0)"
    assert second == f"  {tmp_path / 'helping.py'}, line 2, in divide: return a / b"
    monkeypatch.setenv("FIREHOSE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        firehose(*command, "--out", tmp_path / "other")


def test_a_file_of_the_users_that_cannot_be_loaded_shows_the_line(
    firehose: Commands, corpus: Corpus, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("a = 1\nb = a / 0\n")
    command = ["play", corpus.path, "--learner", f"{tmp_path}/broken.py:Mine"]
    said = firehose(*command, "--out", tmp_path / "run")
    sentence, line = said.err.splitlines()
    assert "broken.py cannot be loaded: ZeroDivisionError" in sentence
    assert line == f"  {tmp_path}/broken.py, line 2, in <module>: b = a / 0"


def test_a_users_own_source_fails_in_a_sentence_in_a_worker_too(tmp_path: Path) -> None:
    from firehose.data.engine import _answer

    own = tmp_path / "own_work.py"
    own.write_text("def work(task):\n    return task['missing']\n")
    from firehose import plugins

    answer = _answer(plugins._load(str(own), "source", f"{own}:work").work, "{}")
    assert "own_work.py failed: KeyError" in answer and "line 2" in answer


def test_a_defect_of_ours_still_shows_its_traceback(
    firehose: Commands, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_: Path) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("firehose.data.corpus.check", check)
    with pytest.raises(KeyError):
        firehose("check", corpus.path)
