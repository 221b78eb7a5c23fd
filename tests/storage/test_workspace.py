"""A corpus appears whole or not at all, and nothing of anybody else's is touched."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import INLINE, contents, simple_posts, write_posts
from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import prepare
from firehose.errors import FirehoseError
from firehose.storage import workspace as workspaces
from firehose.storage.workspace import workspace


def test_what_appears_at_the_same_place_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    with pytest.raises(FirehoseError, match="exists already"), workspace(out) as folder:
        (folder / "result").mkdir()
        out.mkdir()
        (out / "notes.txt").write_text("mine")
    assert (out / "notes.txt").read_text() == "mine"


def test_a_replacement_killed_half_way_is_undone_by_the_next_run(tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    dead = tmp_path / ".corpus.partial-0123abcd"
    (dead / "replaced").mkdir(parents=True)
    (dead / "replaced" / "old.txt").write_text("old")
    mine = tmp_path / ".corpus.partial-mine"
    mine.mkdir()
    with pytest.raises(FirehoseError, match="exists already"), workspace(out):
        pass
    assert (out / "old.txt").read_text() == "old"
    assert not dead.exists() and mine.exists()


def test_two_runs_work_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    with workspace(out, replace=True) as first, workspace(out, replace=True) as second:
        assert first.exists() and second.exists() and first != second
        for folder in (first, second):
            (folder / "result").mkdir()
    assert out.exists()


def test_a_folder_with_some_manifest_below_is_not_replaced(tmp_path: Path) -> None:
    posts = write_posts(tmp_path / "posts.jsonl", simple_posts())
    home = tmp_path / "home"
    (home / "web").mkdir(parents=True)
    (home / "web" / "manifest.json").write_text("{}")
    (home / "manifest.json").write_text('{"name": "an app"}')
    with pytest.raises(FirehoseError, match="is not a corpus"):
        prepare(make_plan([posts]), home, INLINE, replace=True)
    assert (home / "web" / "manifest.json").exists()


@pytest.mark.parametrize("name", ["a b", "c[1]", "d{e}", "f*?", "g%20h", "i:j", "ünï"])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    posts = write_posts(tmp_path / "posts.jsonl", simple_posts())
    (tmp_path / name).mkdir()
    corpus = prepare(make_plan([posts]), tmp_path / name / name, INLINE).corpora[0]
    assert corpus.manifest.users == 3
    assert [path.name for path in (tmp_path / name).iterdir()] == [name]


def test_an_older_corpus_is_replaced_only_when_asked(tmp_path: Path) -> None:
    plan = make_plan([write_posts(tmp_path / "posts.jsonl", simple_posts())])
    other = make_plan([tmp_path / "posts.jsonl"], split={"seed": 7})
    prepare(plan, tmp_path / "corpus", INLINE)
    before = contents(tmp_path / "corpus")
    with pytest.raises(FirehoseError, match="exists already"):
        prepare(other, tmp_path / "corpus", INLINE)
    assert contents(tmp_path / "corpus") == before
    prepare(other, tmp_path / "corpus", INLINE, replace=True)
    assert contents(tmp_path / "corpus") != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(FirehoseError, match="is not a corpus, so --replace leaves it alone"):
        prepare(plan, tmp_path / "mine", INLINE, replace=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize("delay", [0.3, 1.2, 2.0, 3.0])
def test_a_killed_run_leaves_no_corpus_and_the_next_succeeds(tmp_path: Path, delay: float) -> None:
    path = write_posts(tmp_path / "posts.jsonl", simple_posts())
    command = [sys.executable, "-m", "firehose", "prepare", str(path), "--out"]
    out = tmp_path / "here" / "corpus"
    killed = subprocess.Popen(
        [*command, str(out)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    time.sleep(delay)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    if out.exists():
        Corpus(out, check=True)  # it was faster than the signal
        return
    subprocess.run([*command, str(out), "--workers", "0"], check=True, stdout=subprocess.DEVNULL)
    Corpus(out, check=True)
    assert [path.name for path in out.parent.iterdir()] == ["corpus"]


@pytest.mark.parametrize("delay", [0.0, 0.7, 2.5])
def test_ctrl_c_is_one_sentence_and_leaves_nothing(tmp_path: Path, delay: float) -> None:
    command = [sys.executable, "-m", "firehose", "prepare", "--set", "source.posts=300000"]
    command += ["--set", "source.users=3000", "--out", str(tmp_path / "here" / "corpus")]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while run.poll() is None and not list((tmp_path / "here").glob(".corpus.partial-*")):
        time.sleep(0.02)  # until it is at work
    time.sleep(delay)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 130
    assert said.endswith("Error: Stopped; the same command begins again.\n")
    assert list((tmp_path / "here").iterdir()) == []


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "here" / "corpus"
    posts = write_posts(tmp_path / "posts.jsonl", simple_posts(posts=9))
    with pytest.raises(FirehoseError, match="No user with 20 posts is left of 27 posts"):
        prepare(make_plan([posts]), out, INLINE)
    assert list(out.parent.iterdir()) == []


def test_interrupted_between_the_two_renames_the_old_folder_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rename = tmp_path / "out", Path.rename
    out.mkdir()
    (out / "old").touch()

    def interrupted(path: Path, target: Path) -> Path:
        if path.name == "result":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(workspaces, "exchange", lambda *_: False)  # as on some file systems
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), workspace(out, replace=True) as folder:
        (folder / "result").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "old"]
