"""Results of another version of the code: never taken silently, and marked where they are taken."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conftest import prepared, simple_posts
from firehose.cli.app import app
from firehose.data.corpus import Corpus
from firehose.experiments import jobs
from firehose.experiments.execute import execute
from firehose.experiments.jobs import Job
from firehose.experiments.report import write
from firehose.experiments.reproduce import Schedule, make_schedule
from firehose.game import folder
from firehose.game.settings import make_settings
from small_experiments import TINY_SCALE, do, tiny_scale

RECIPE = """
title = "One"
[[runs]]
[runs.vary]
"play.steps" = [1, 2]
[[tables]]
rows = ["play.steps"]
"""
LEARNER = """
from firehose.methods.learners.online_only import OnlineOnly

class Mine(OnlineOnly):
    pass
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """With posts for a pretrained model to begin with."""
    home = tmp_path_factory.mktemp("corpus")
    return prepared(home, simple_posts(posts=32), split={"pretrain_before": "2014-05-14"})


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Path:
    """All runs of an experiment, as an older version of the code has done them."""
    home = tmp_path_factory.mktemp("before")
    with pytest.MonkeyPatch.context() as patch:
        become(patch, "older")
        for job in scheduled(home, corpus).jobs:
            do(job)
    return home


def become(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Be another version of the code."""
    for module in (jobs, folder):
        monkeypatch.setattr(module, "code_version", lambda: version)


def scheduled(
    home: Path, corpus: Corpus, reuse_older: bool = False, recipe: str = RECIPE
) -> Schedule:
    (home / "one.toml").write_text(recipe)
    scale = tiny_scale(home)
    return make_schedule(home / "one.toml", corpus, home / "out", scale, 1, reuse_older, True)


@pytest.fixture
def home(tmp_path: Path, before: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the older version has left; from here on the code is newer."""
    become(monkeypatch, "newer")
    shutil.copytree(before, tmp_path / "home")
    return tmp_path / "home"


def codes(schedule: Schedule) -> set[str]:
    return {json.loads((job.folder / "run.json").read_text())["code"] for job in schedule.jobs}


def test_they_are_done_again_and_that_is_told(
    home: Path, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = scheduled(home, corpus)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "3 runs were done by another version of Firehose and will be done again" in said
    assert not any(job.is_done or job.older for job in schedule.jobs)
    for job in schedule.jobs:
        do(job)
    assert codes(schedule) == {"newer"}
    assert len(list((home / "out/runs").glob("*/result.json"))) == 6
    scheduled(home, corpus)
    assert capsys.readouterr().err.count("another version") == 0


def test_a_pretraining_is_taken_for_other_games(home: Path, corpus: Corpus) -> None:
    """Its result does not depend on how games are played after it, though its recipe says it."""
    scale = home / "other.toml"
    other = make_settings(assignments=[*TINY_SCALE, "play.memory.posts=7"])
    scale.write_text(other.to_toml())
    made = make_schedule(home / "one.toml", corpus, home / "out", scale, 1, True, True)
    assert [bool(job.older) for job in made.jobs] == [job.kind == "pretrain" for job in made.jobs]
    assert {job.start.name for job in made.jobs if job.start} == {made.jobs[0].older}


def test_with_reuse_older_they_are_taken_and_marked(
    home: Path,
    corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing can be started
    arguments = ["reproduce", str(home / "one.toml"), "--corpus", str(corpus.path), "--seeds", "1"]
    arguments += ["--scale", str(tiny_scale(home)), "--out", str(home / "out"), "--reuse-older"]
    plan = CliRunner().invoke(app, [*arguments, "--dry-run"])
    assert plan.exit_code == 0 and "0 runs to do, 3 done" in plan.output
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.exception
    assert "done again" not in capsys.readouterr().err
    text = (home / "out/one/index.html").read_text()
    assert "Runs of another version of the code, taken as they are (--reuse-older)" in text
    schedule = scheduled(home, corpus, reuse_older=True)
    assert codes(schedule) == {"older"} and all(job.older for job in schedule.jobs)
    assert [job.kind for job in schedule.jobs] == ["pretrain", "play", "play"]
    for job in schedule.jobs:
        assert text.count(f"<td>{job.name}</td>") == 1
        described = json.loads((home / f"out/one/runs/{job.name}.json").read_text())
        assert described["code"] == "older"
    assert "--seeds 1 --reuse-older" in text


def test_what_is_missing_begins_with_what_there_is(home: Path, corpus: Corpus) -> None:
    """One of two games is not there: it is played by this code, from the older start."""
    for path in (home / "out/runs").glob("*-1-steps-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    schedule = scheduled(home, corpus, reuse_older=True)
    start, first, second = schedule.jobs
    assert (bool(start.older), first.older, bool(second.older)) == (True, None, True)
    assert first.start == start
    command = first.command()
    assert command[command.index("--from") + 1] == str(start.folder)
    do(first)
    assert execute(schedule.jobs, 1) == {}
    page = write(schedule.out, schedule.parts, {}, "firehose reproduce")
    assert page.read_text().count("<td>older</td>") == 2  # the game, and what it began with


def test_what_this_version_has_done_goes_before_older_results(home: Path, corpus: Corpus) -> None:
    start, *_, job = scheduled(home, corpus).jobs
    assert job.done_before()
    do(start)
    do(job)
    assert job.done_before() is None
    again = scheduled(home, corpus, reuse_older=True).jobs[-1]
    assert again.older is None and again.folder == job.folder


def test_the_newest_of_several_is_taken(
    home: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = scheduled(home, corpus, reuse_older=True).jobs[-1]
    become(monkeypatch, "second")
    start, *_, job = scheduled(home, corpus).jobs
    do(start)
    do(job)
    become(monkeypatch, "newest")
    for first, last in ((job, old), (old, job)):
        os.utime(first.folder / "result.json", (1, 1))
        os.utime(last.folder / "result.json", (2, 2))
        assert scheduled(home, corpus).jobs[-1].done_before() == last.name


@pytest.mark.parametrize("harm", ["schema", "unreadable", "unfinished", "another corpus"])
def test_what_does_not_fit_is_not_taken(home: Path, corpus: Corpus, harm: str) -> None:
    old = scheduled(home, corpus, reuse_older=True).jobs[-1]
    card = json.loads((old.folder / "run.json").read_text())
    if harm == "schema":
        (old.folder / "run.json").write_text(json.dumps(card | {"schema_version": 1}))
    elif harm == "unreadable":
        (old.folder / "run.json").write_text("{")
    elif harm == "unfinished":
        (old.folder / "result.json").unlink()
    else:
        other = card["corpus"] | {"seal": "other"}
        (old.folder / "run.json").write_text(json.dumps(card | {"corpus": other}))
    *rest, job = scheduled(home, corpus, reuse_older=True).jobs
    assert job.older is None and not job.is_done
    assert all(each.older for each in rest)


def test_other_settings_or_files_of_the_user_s_are_not_taken_for_the_same(
    home: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    changed = RECIPE.replace("[runs.vary]", 'set = { "play.step_size" = 6 }\n[runs.vary]')
    start, *games = scheduled(home, corpus, True, changed).jobs
    assert start.older and not any(job.older for job in games)
    own = RECIPE.replace("[runs.vary]", 'set = { "play.learner" = "mine.py:Mine" }\n[runs.vary]')
    (home / "mine.py").write_text(LEARNER)

    def mine() -> Job:
        return scheduled(home, corpus, True, own).jobs[-1]

    do(mine())
    become(monkeypatch, "newest")
    assert mine().older
    (home / "mine.py").write_text(f"{LEARNER}    # better\n")
    assert mine().older is None


def test_a_job_is_known_by_the_code_too(
    home: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scheduled(home, corpus).jobs[-1]
    key = job.key
    become(monkeypatch, "newest")
    same = replace(job)  # what it has worked out is not copied
    assert same.identity == job.identity and same.key != key and same.label == job.label
