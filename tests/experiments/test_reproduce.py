"""Experiments from recipe to report: nothing done twice, nothing lost, everything shown."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from conftest import contents, prepared, simple_posts
from firehose.config import read_recipe
from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError, Stopped
from firehose.experiments import calibrate
from firehose.experiments.calibrate import Pace, measure
from firehose.experiments.execute import Slot, Working, _standing, execute
from firehose.experiments.jobs import Job
from firehose.experiments.ledger import compute, totals
from firehose.experiments.recipe import Shown
from firehose.experiments.reproduce import Schedule, dry_run, make_schedule, reproduce
from firehose.game.evaluate import Evaluation, evaluate
from firehose.game.outcome import Outcome
from firehose.game.result import write_result
from firehose.game.run import read_progress, write_progress
from firehose.game.scoring import score_past
from firehose.game.settings import Settings
from firehose.game.totals import Measured
from firehose.models.store import load
from firehose.report.tables import Beside
from firehose.report.words import duration
from firehose.storage.checkpoints import Checkpoints
from small_experiments import RECIPE, do, tiny_scale


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """With posts for a pretrained model to begin with."""
    folder = tmp_path_factory.mktemp("corpus")
    return prepared(folder, simple_posts(posts=32), split={"pretrain_before": "2014-05-14"})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Schedule:
    """An experiment with two seeds, all of it done."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "steps.toml").write_text(RECIPE)
    schedule = make_schedule(folder / "steps.toml", corpus, folder / "out", tiny_scale(folder), 2)
    for job in schedule.jobs:
        do(job)
    return schedule


def again(done: Schedule, **more: object) -> Path:
    folder = done.out.parent
    arguments = {"scale": folder.parent / "tiny.toml", "seeds": 2} | more
    corpus = done.jobs[0].corpus
    found = reproduce(folder.parent / "steps.toml", corpus.path, folder, **arguments)  # type: ignore[arg-type]
    assert not found.failed
    return found.page


def test_what_is_done_is_not_done_again_and_shown_the_same(
    done: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing can be started
    page = again(done)
    first = contents(page.parent)
    assert contents(again(done).parent) == first
    text = page.read_text()
    assert text.count("<svg") == 1
    assert "ConGraD is better." in text and "137.2" in text
    names = set(first)
    assert {"claims.json", "tables/steps-1.md", "tables/steps-1.csv", "tables/steps-1.tex"} <= names
    assert {"figures/steps-compute.svg", "figures/steps-compute.png"} <= names


def scored(job: Job, others: int = 5) -> Evaluation:
    """What the model that a job made costs on test posts."""
    assert isinstance(job.corpus, Corpus)
    return evaluate(load(job.folder, job.corpus), job.corpus, others=others)


def test_the_table_is_what_the_runs_came_to(done: Schedule) -> None:
    (part,) = done.parts
    (made,) = part.tables()
    assert made.columns == ["", "K = 1", "K = 2"]
    assert [row[0] for row in made.rows] == ["Online GD", "ConGraD", "offline oracle"]
    values = [
        Outcome.read(job.folder).test.value
        for job in part.jobs
        if job.kind == "play" and job.settings.play.optimizer.kind == "online-gd"
        if job.settings.play.steps == 1
    ]
    text = f"{np.exp(np.mean(np.log(values))):,.1f} ± {np.std(values, ddof=1):.1f}"
    assert made.rows[0][1] == Beside(text, "137.2")
    oracle = [job for job in part.jobs if job.kind == "offline"]
    own = [scored(job, others=0).own.perplexity() for job in oracle]
    assert made.rows[2][1:] == [
        Beside(f"{np.exp(np.mean(np.log(own))):,.1f} ± {np.std(own, ddof=1):.1f}", "94.1"),
        "–",
    ]


def test_each_run_is_a_file_with_all_there_is_to_know(done: Schedule) -> None:
    page = again(done)
    files = sorted((page.parent / "runs").glob("*.json"))
    assert len(files) == 11  # with the pretrained model
    for file in files:
        run = json.loads(file.read_text())
        assert {"settings", "seed", "version", "measures", "compute", "result"} <= set(run)
        assert run["compute"]["gradient steps"] > 0 and run["machine"]["torch"]
        assert run["command"].startswith(f"firehose {run['kind']} ")
        recipe = read_recipe(file.with_suffix(".toml"))
        assert recipe[run["kind"]] == run["settings"][run["kind"]]
        if run["kind"] == "play":
            assert run["measures"]["old"] > 0
            ratio = run["measures"]["old"] / run["measures"]["recent"]
            assert run["measures"]["forgetting"] == pytest.approx(ratio)
        elif run["kind"] == "offline":
            assert run["measures"]["crossed"] > 0


def test_ledgers_agree_with_results(done: Schedule) -> None:
    job = next(job for job in done.jobs if job.kind == "play")
    outcome = Outcome.read(job.folder)
    measures: dict[Shown, Measured] = {
        "test": outcome.test,
        "balanced": outcome.test_balanced,
        "per-token": outcome.test_per_token,
        "online": outcome.online,
    }
    for name, expected in measures.items():
        found = totals(job, name)
        assert found is not None and found.value() == pytest.approx(expected.value)
    assert compute(job)["gradient steps"] == outcome.compute["gradient steps"]
    oracle = next(job for job in done.jobs if job.kind == "offline")
    found = totals(oracle, "crossed")
    again = scored(oracle)
    assert found is not None and again.crossed is not None
    assert found.value() == pytest.approx(again.crossed.perplexity())
    own: dict[Shown, float] = {
        "test": again.own.perplexity(),
        "balanced": again.own.perplexity("user"),
        "per-token": again.own.perplexity("token"),
    }
    assert isinstance(oracle.corpus, Corpus)
    stream = oracle.corpus.splits["train"]
    past = score_past(load(oracle.folder, oracle.corpus).model, stream)
    is_old = past.time < (stream.time[0] + stream.time[-1]) / 2
    own["past"] = past.perplexity()
    own["forgetting"] = past.select(is_old).perplexity() / past.select(~is_old).perplexity()
    for name, value in own.items():
        found = totals(oracle, name)
        assert found is not None and found.value() == pytest.approx(value)


def test_seeds_are_averaged_as_losses(done: Schedule) -> None:
    outcomes = [Outcome.read(job.folder) for job in done.parts[0].jobs[:2]]
    mean = Outcome.mean(outcomes)
    both = np.stack([outcome.curve.windowed for outcome in outcomes])
    assert mean.curve.windowed == pytest.approx(np.sqrt(both.prod(0)))
    assert sum(mean.kept) == sum(map(sum, (outcome.kept for outcome in outcomes)))
    assert Outcome.mean(outcomes[:1]).public() == outcomes[0].public()


def test_a_few_steps_are_measured(done: Schedule) -> None:
    pace = measure(done.jobs[1], threads=1)
    assert 0 < pace.score < pace.step < 10
    assert 50 < pace.memory / 2**20 < 4000


def test_a_dry_run_does_nothing_but_reckon(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "measure", lambda *_: Pace(36.0, 3.6, 2**20))
    (tmp_path / "steps.toml").write_text(RECIPE)
    plan = make_schedule(tmp_path / "steps.toml", corpus, tmp_path / "out", tiny_scale(tmp_path), 1)
    shown = dry_run(plan, jobs=2)
    assert shown.caption == "6 runs to do, 0 done"
    posts = corpus.manifest.posts
    train, rounds = posts["train"], -(-posts["train"] // 6)
    settled = (train + posts["validation"] + posts["test"] + 4000) / 1000
    hours = {
        "pretrain": -(-posts["pretrain"] // 8) / 100 + posts["validation"] / 1000,
        "online-gd-1": rounds / 100 + settled,
        "online-gd-2": rounds * 2 / 100 + settled,
        "congrad-1": rounds * (1 / 100 + 2 * 4 / 1000) + settled,
        "congrad-2": rounds * (2 / 100 + 3 * 4 / 1000) + settled,
        "offline": -(-train // 8) / 100 + (posts["validation"] + 6 * posts["test"]) / 1000,
    }
    expected = [duration(3600 * value) for value in (*hours.values(), sum(hours.values()) / 2)]
    assert [row[1] for row in shown.rows] == expected
    assert not (tmp_path / "out").exists()


def one_game(folder: Path, corpus: Corpus, **play: object) -> list[Job]:
    """Two jobs: a pretraining and a game."""
    (folder / "one.toml").write_text('title = "One"\n[[runs]]\n[[tables]]\nrows = ["play.steps"]')
    schedule = make_schedule(folder / "one.toml", corpus, folder / "out", tiny_scale(folder), 1)
    jobs = schedule.jobs
    if play:
        values = jobs[-1].settings.public()
        values["play"] |= play
        settings = Settings.of(values)
        jobs[-1] = Job("play", settings, corpus, jobs[-1].store, jobs[-1].start)
    return jobs


def test_jobs_in_processes_end_as_they_do_here(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    there = one_game(tmp_path / "there", corpus)
    here = one_game(tmp_path / "here", corpus)
    assert execute(there, at_once=2) == {}
    for job in here:
        do(job)
    assert [job.is_done for job in there] == [True, True]
    for name in ("paid.f32", "test.f32"):
        assert (there[1].folder / name).read_bytes() == (here[1].folder / name).read_bytes()
    recipe = tomllib.loads(there[1].recipe.read_text())
    assert recipe["play"]["steps"] == 2


def test_a_failure_is_told_and_the_rest_goes_on(tmp_path: Path, corpus: Corpus) -> None:
    bad = one_game(tmp_path, corpus, rule={"rate": 1e30, "clip": 1e30})
    good = one_game(tmp_path, corpus)[-1]
    failed = execute([*bad, good], at_once=2)
    assert list(failed) == [bad[-1].key]
    assert "is not a finite number" in failed[bad[-1].key]
    assert good.is_done and not bad[-1].is_done


def test_what_begins_with_a_failed_one_fails_too(tmp_path: Path, corpus: Corpus) -> None:
    pretraining, game = one_game(tmp_path, corpus)
    (pretraining.folder / "mine").mkdir(parents=True)  # in the way
    failed = execute([pretraining, game], at_once=2)
    assert failed[game.key] == f"{pretraining.name} failed"
    assert not game.folder.exists()


def failing(monkeypatch: pytest.MonkeyPatch, job: Job) -> Working:
    """A job whose process has ended with status 1."""
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: SimpleNamespace(returncode=1))
    job.store.mkdir(parents=True, exist_ok=True)
    return Working(job, Slot(1, None))


def test_last_words(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    _, game = one_game(tmp_path, corpus)
    game.store.mkdir(parents=True)
    game.log.write_text("Error: of an earlier attempt\n")
    working = failing(monkeypatch, game)
    with game.log.open("a") as log:
        log.write("one\nError: no good\nmore\n")
    assert working.last_words() == "no good"
    working.said = game.log.stat().st_size  # another attempt begins
    assert working.last_words() == "it said nothing"
    with game.log.open("a") as log:
        log.write("Traceback\n  what\nBoom\n\n")
    assert working.last_words() == "Boom"
    working.process.returncode = -signal.SIGKILL
    assert working.last_words() == "killed by SIGKILL"


def test_a_job_that_another_process_is_at_is_not_a_failure(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, game = one_game(tmp_path, corpus)
    working = failing(monkeypatch, game)
    assert not working.is_beaten()
    with Checkpoints(game.folder / "checkpoints").held():
        assert working.is_beaten()
    assert not working.is_beaten()
    write_result(game.folder, {})
    assert working.is_beaten()
    working.process.returncode = 0
    assert not working.is_beaten()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_it_goes_on_to_the_same_tables(
    tmp_path: Path, done: Schedule, corpus: Corpus, sign: signal.Signals
) -> None:
    expected = again(done)
    (tmp_path / "steps.toml").write_text(RECIPE)
    options = ["--scale", str(tiny_scale(tmp_path)), "--seeds", "2", "--out", str(tmp_path / "out")]
    program = [sys.executable, "-m", "firehose", "reproduce", str(tmp_path / "steps.toml")]
    command = [*program, "--corpus", str(corpus.path), *options]
    begun = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    runs = tmp_path / "out" / "runs"
    for _ in range(1200):  # until the pretraining is over and games have begun
        if list(runs.glob("*congrad*.log")) or list(runs.glob("*online-gd*.log")):
            break
        time.sleep(0.1)
    os.kill(begun.pid, sign)
    _, said = begun.communicate()
    if sign == signal.SIGINT:
        assert begun.returncode == 130 and "the same command goes on from there" in said
    kept = {job.name for job in done.jobs if (runs / job.name / "result.json").is_file()}
    assert len(kept) < 8
    for job in done.jobs:  # what is left, done quickly: the runs of the first attempt stay
        target = runs / job.name
        if job.kind != "pretrain" and not target.exists():
            subprocess.run(["cp", "-r", str(job.folder), str(target)], check=True)
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    for name in ("tables/steps-1.md", "claims.json"):
        ours = (tmp_path / "out" / "steps" / name).read_text()
        assert ours == (expected.parent / name).read_text()


def test_it_shows_how_far_the_runs_are(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = one_game(tmp_path, corpus)
    working = [failing(monkeypatch, job) for job in jobs]
    names = [job.label for job in jobs]
    assert _standing(3, working) == (3, f"{names[0]} 0%, {names[1]} 0%")
    write_progress(jobs[0].folder, 3, 4)
    jobs[1].folder.mkdir()
    (jobs[1].folder / "progress.json").write_text("{")  # nobody has written it so
    assert _standing(3, working) == (3.75, f"{names[0]} 75%, {names[1]} 0%")
    write_progress(jobs[1].folder, 18, 18)
    assert _standing(0, working)[0] == 1.75


def test_every_kind_of_run_says_how_far_it_is(done: Schedule) -> None:
    for job in done.jobs:
        said = json.loads((job.folder / "progress.json").read_text())
        assert said["done"] == said["total"] > 0
        assert read_progress(job.folder) == 1


def test_stopping_stops_the_processes(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = one_game(tmp_path, corpus)
    started: list[subprocess.Popen[bytes]] = []
    begin = Working.__init__

    def noted(self: Working, job: Job, slot: Slot) -> None:
        begin(self, job, slot)
        started.append(self.process)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Working, "__init__", noted)
    with pytest.raises(Stopped, match="the same command goes on"):
        execute(jobs, at_once=1)
    assert [process.poll() is not None for process in started] == [True]


def test_a_page_of_several_experiments_has_the_title_of_their_file(done: Schedule) -> None:
    folder = done.out.parent
    other = folder.parent / "other.toml"
    other.write_text(RECIPE.replace('title = "Steps"', 'title = "Steps, again"'))
    both = folder.parent / "both.toml"
    told = 'title = "Two questions"\nabout = "Asked together."\n'
    both.write_text(f'{told}experiments = ["{folder.parent / "steps.toml"}", "{other}"]')
    corpus = done.jobs[0].corpus
    page = reproduce(both, corpus.path, folder, folder.parent / "tiny.toml", 2).page
    assert page == folder / "both" / "index.html"
    text = page.read_text()
    assert "<title>Two questions</title>" in text and "<h1>Two questions</h1>" in text
    assert text.index("<p>Asked together.</p>") < text.index("What was run</a></h2>")
    assert "Steps, again</a></h2>" in text
    alone = again(done).read_text()
    assert "<h1>Steps</h1>" in alone and "Asked together" not in alone


def test_a_recipe_of_nothing_is_refused(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "empty.toml").write_text('title = "Nothing"')
    with pytest.raises(FirehoseError, match="has no runs"):
        make_schedule(tmp_path / "empty.toml", corpus)
