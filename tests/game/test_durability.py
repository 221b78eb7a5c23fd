"""Runs after a power loss, a crash at a bad moment, a full disk, or harm to their files."""

import errno
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_run import left_behind, stop_after

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.experiments.compare import compare
from firehose.game.assembly import Game
from firehose.game.folder import RunCard
from firehose.game.outcome import Outcome, TrainingOutcome
from firehose.game.result import is_over, read_result
from firehose.game.run import offline, play, pretrain, resume
from firehose.game.scoring import read_costs
from firehose.game.settings import make_settings
from firehose.storage import tensors
from firehose.storage.checkpoints import Checkpoints
from small_models import TINY_GAME

TINY = make_settings(assignments=[*TINY_GAME, "pretrain.epochs=1", "offline.epochs=1"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small_corpus: Corpus) -> Path:
    """A game that nothing happened to."""
    play(small_corpus, folder := tmp_path_factory.mktemp("whole") / "run", TINY)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, small_corpus: Corpus) -> Path:
    """The same game, stopped after four rounds of six posts, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stop_after(patch, 4, sign=signal.SIGTERM)
        play(small_corpus, folder, TINY, checkpoint_every=0)
    return folder


@pytest.fixture
def run(tmp_path: Path, stopped: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "run")


@pytest.fixture
def over(tmp_path: Path, whole: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "over")


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def alter(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["paid.f32", "rounds.jsonl"])
def test_where_a_log_is_behind_the_newest_checkpoint_the_one_before_is_taken(
    run: Path, whole: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cut(run / name, (run / name).stat().st_size - 1)
    resume(run)
    said = " ".join(capsys.readouterr().err.split())
    assert f"counts on a log that is damaged: {name} has" in said
    assert "Going on after round 3." in said
    assert left_behind(run) == left_behind(whole)


@pytest.mark.parametrize("name", ["paid.f32", "rounds.jsonl"])
@pytest.mark.parametrize("harm", ["empty", "missing", "zeros", "altered"])
def test_where_a_log_covers_no_checkpoint_the_run_is_refused(
    run: Path, name: str, harm: str
) -> None:
    if harm == "missing":
        (run / name).unlink()
    elif harm == "altered":
        content = bytearray((run / name).read_bytes())
        content[2] ^= 1
        (run / name).write_bytes(content)
    else:
        (run / name).write_bytes(b"" if harm == "empty" else b"\0" * 96)
    with pytest.raises(FirehoseError, match=r"counts on a log that is damaged.* begin again with"):
        resume(run)
    assert not (run / "result.json").exists()


@pytest.mark.parametrize("name", ["tensors.safetensors", "values.json"])
def test_where_the_newest_checkpoint_is_harmed_the_one_before_is_taken(
    run: Path, whole: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    alter(run / "checkpoints/state-000000004" / name)
    resume(run)
    assert "state-000000004 is damaged" in " ".join(capsys.readouterr().err.split())
    assert left_behind(run) == left_behind(whole)


def test_a_log_is_on_disk_before_a_checkpoint_counts_on_it(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: dict[int, int] = {}
    fsync, write = os.fsync, Checkpoints.write
    counted: list[int] = []

    def watched_fsync(handle: int) -> None:
        fsync(handle)
        on_disk[os.fstat(handle).st_ino] = os.fstat(handle).st_size

    def watched_write(
        self: Checkpoints, number: int, state: dict[str, Any], logs: Mapping[str, Any]
    ) -> None:
        for name, seal in logs.items():
            file = self.folder.parent / name
            assert on_disk[file.stat().st_ino] == seal.bytes == file.stat().st_size > 0
        assert file_parent_on_disk(self.folder)
        counted.append(len(logs))
        write(self, number, state, logs)

    def file_parent_on_disk(folder: Path) -> bool:
        return {folder.parent.stat().st_ino, folder.parent.parent.stat().st_ino} <= on_disk.keys()

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Checkpoints, "write", watched_write)
    play(small_corpus, tmp_path / "new" / "run", TINY, checkpoint_every=0)
    assert counted == [0] + [2] * 9


def test_all_else_is_on_disk_before_the_result_appears(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: dict[int, int] = {}
    fsync, replace = os.fsync, Path.replace
    unsynchronised: list[Path] = []

    def watched_fsync(handle: int) -> None:
        fsync(handle)
        on_disk[os.fstat(handle).st_ino] = os.fstat(handle).st_size

    def watched_replace(path: Path, target: Path) -> Path:
        if target.name == "result.json":
            files = [each for each in target.parent.rglob("*") if each.is_file()]
            assert {"test.f32", "weights.safetensors", "paid.f32"} <= {each.name for each in files}
            sizes = {each: each.stat() for each in files}
            unsynchronised.extend(
                file for file, now in sizes.items() if on_disk.get(now.st_ino) != now.st_size
            )
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    play(small_corpus, tmp_path / "run", TINY)
    assert unsynchronised == []


def test_a_run_begins_with_its_checkpoint_and_a_crash_before_it_can_be_begun_again(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(small_corpus, tmp_path / "start", TINY, split="train")
    play(small_corpus, tmp_path / "whole", TINY, tmp_path / "start")

    def crash(_card: RunCard, _folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunCard, "write", crash)
        play(small_corpus, tmp_path / "run", TINY, tmp_path / "start")
    assert Checkpoints(tmp_path / "run/checkpoints").numbers() == [0]
    with pytest.raises(FirehoseError, match=r"is not a run: no run\.json in it"):
        resume(tmp_path / "run")
    play(small_corpus, tmp_path / "run", TINY, tmp_path / "start")
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")
    (tmp_path / "empty").mkdir()
    play(small_corpus, tmp_path / "empty", TINY, tmp_path / "start")
    assert left_behind(tmp_path / "empty") == left_behind(tmp_path / "whole")


def test_what_a_killed_process_was_about_to_write_is_removed(run: Path) -> None:
    leftover, own = run / ".test.f32.0123abcd", run / ".notes"
    leftover.write_bytes(b"costs")
    own.write_text("mine")
    resume(run)
    assert not leftover.exists() and own.exists()


def test_a_run_without_any_checkpoint_does_not_begin_with_another_model(run: Path) -> None:
    for state in (run / "checkpoints").iterdir():
        shutil.rmtree(state)
    with pytest.raises(FirehoseError, match="has no checkpoint to go on from; begin again with"):
        resume(run)


@pytest.mark.parametrize("harm", ["empty", "cut", "altered"])
def test_a_result_that_is_harmed_is_refused_and_computed_again(
    over: Path, whole: Path, harm: str
) -> None:
    file = over / "result.json"
    if harm == "altered":
        file.write_text(file.read_text().replace('"posts": 54', '"posts": 55', 1))
    else:
        cut(file, 0 if harm == "empty" else file.stat().st_size // 2)
    for read in (Outcome.read, read_result, lambda folder: compare([folder])):
        with pytest.raises(FirehoseError, match=r"result.json is damaged; `firehose resume"):
            read(over)
    assert not is_over(over)
    resume(over)
    assert left_behind(over) == left_behind(whole)


@pytest.mark.parametrize("harm", ["empty", "cut", "altered", "missing"])
@pytest.mark.parametrize("measure", ["test", "past"])
def test_costs_that_are_harmed_are_refused_and_computed_again(
    over: Path, whole: Path, small_corpus: Corpus, measure: Any, harm: str
) -> None:
    file = over / f"{measure}.f32"
    if harm == "missing":
        file.unlink()
    elif harm == "altered":
        alter(file)
    else:
        cut(file, 0 if harm == "empty" else file.stat().st_size - 4)
    with pytest.raises(FirehoseError, match=r"\.f32 (does not match|is missing).*; `firehose res"):
        read_costs(over, small_corpus, measure)
    resume(over)
    assert file.read_bytes() == (whole / f"{measure}.f32").read_bytes()
    assert left_behind(over) == left_behind(whole)


def test_what_was_paid_is_refused_where_it_is_harmed_and_paid_again_from_what_is_covered(
    over: Path, whole: Path, small_corpus: Corpus
) -> None:
    cut(over / "paid.f32", 100)
    with pytest.raises(FirehoseError, match=r"paid\.f32 does not match its checksum"):
        read_costs(over, small_corpus, "online")
    resume(over)  # from the checkpoint before the first round
    assert left_behind(over) == left_behind(whole)


def test_costs_of_too_few_posts_are_refused_before_there_is_a_result(
    over: Path, small_corpus: Corpus
) -> None:
    cut(over / "test.f32", 8)
    with pytest.raises(FirehoseError, match=r"test\.f32 is damaged: it has 2 costs of 9 posts"):
        Outcome.of(over, small_corpus)


def test_a_training_whose_result_is_harmed_is_finished_again(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    made = offline(small_corpus, tmp_path / "run", TINY)
    before = (tmp_path / "run/test.f32").read_bytes()
    cut(tmp_path / "run/result.json", 9)
    (tmp_path / "run/epochs.jsonl").unlink()
    resume(tmp_path / "run")
    assert TrainingOutcome.read(tmp_path / "run") == made
    assert (tmp_path / "run/test.f32").read_bytes() == before
    assert len((tmp_path / "run/epochs.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("where", ["checkpoint", "log"])
def test_on_a_full_disk_nothing_is_lost(
    run: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    rounds = Game.rounds

    def full(*_arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill_up(self: Game, stream: Any) -> Any:
        for played in rounds(self, stream):
            if self.played == 6 and where == "checkpoint":
                monkeypatch.setattr(tensors, "write_through", full)
            elif self.played == 6:
                (run / "paid.f32").rename(run / "elsewhere")
                (run / "paid.f32").symlink_to("/dev/full")
            yield played

    monkeypatch.setattr(Game, "rounds", fill_up)
    with pytest.raises(FirehoseError, match=r"Cannot write .*: No space left on device"):
        resume(run)
    monkeypatch.undo()
    if where == "log":
        (run / "elsewhere").replace(run / "paid.f32")
    assert Checkpoints(run / "checkpoints").numbers() == [4, 5]
    assert not (run / "checkpoints/partial").exists()
    resume(run)
    assert left_behind(run) == left_behind(whole)
