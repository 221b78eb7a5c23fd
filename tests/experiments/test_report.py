"""Reports on games with tasks: the tables, figures and claims of a recipe, on one page."""

import dataclasses
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import prepared, simple_posts
from firehose.data.pictures.tasks import BENCHMARKS
from firehose.experiments import report
from firehose.experiments.jobs import make_jobs
from firehose.experiments.recipe import Experiment
from firehose.experiments.report import Part, write
from firehose.game.baseline import Baseline, Price
from firehose.game.folder import new_run
from firehose.report.tables import Table
from small_experiments import task_outcome

RECIPE = """
title = "Pictures"
[[runs]]
[runs.vary]
"play.learner" = ["gem", "mixed-replay"]
"play.optimizer" = ["online-gd"]
"pictures.benchmark" = ["disjoint-mnist", "disjoint-cifar"]

[[tables]]
title = "Accuracy"
rows = ["play.learner"]
columns = ["pictures.benchmark"]
measures = ["accuracy"]
also = ["differences", "after-tasks", "on-tasks"]
[tables.published]
gem = { disjoint-mnist = [81.4, 1.8], disjoint-cifar = [19.1, 3.5] }

[[figures]]
draw = "accuracy"
[[figures]]
draw = "tasks"
[[figures]]
draw = "transfer"

[[claims]]
says = "GEM is worse."
measure = "accuracy"
lower = { "play.learner" = "gem" }
higher = { "play.learner" = "mixed-replay" }
within = ["pictures.benchmark"]
"""


@pytest.fixture
def part(tmp_path: Path) -> Part:
    """Two learners on two benchmarks with two seeds; GEM names 10 points less rightly."""
    experiment = Experiment.of(tomllib.loads(RECIPE))
    jobs = make_jobs(experiment, tmp_path / "data", "classic", 2, tmp_path / "runs")
    for job in jobs:
        job.folder.mkdir(parents=True)
        line = {"kept": 1, "taken": 1, "tokens": 5, "seconds": {"pay": 0.5}}
        (job.folder / "rounds.jsonl").write_text(f"{json.dumps(line)}\n")
        came = task_outcome(BENCHMARKS[job.corpus.name].title)
        less = 0.1 if job.facts["play.learner"] == "gem" else 0
        came.model_copy(update={"accuracy": came.accuracy - less}).write(job.folder)
        new_run("play", job.corpus, job.folder, job.settings).card.write(job.folder)
    return Part("pictures", experiment, jobs)


def test_a_recipe_with_tasks_has_its_tables_and_claims(part: Part) -> None:
    (accuracy, differences), by_task = part.tables(), part.details()
    assert accuracy.columns == ["", "Disjoint MNIST", "Disjoint CIFAR"]
    assert [row[0] for row in accuracy.rows] == ["GEM", "mixed replay"]
    assert accuracy.rows[1][1:] == ["60.0 ± 0.0", "60.0 ± 0.0"]
    assert differences.rows == [["GEM", "far −31.4", "far +30.9"]]
    assert len(by_task) == 4 and by_task[2].rows[0] == ["GEM", "40.0", "60.0", "50.0"]
    (claim,) = part.claims()
    assert claim.verdict == "holds"
    assert [each.label for each in claim.compared] == [
        "Disjoint MNIST, GEM : mixed replay",
        "Disjoint CIFAR, GEM : mixed replay",
    ]
    assert dataclasses.astuple(claim.compared[0].difference)[:3] == pytest.approx((-10, -10, -10))


def test_runs_are_drawn_by_what_tells_them_apart(part: Part) -> None:
    """A benchmark has a figure or a mark of its own, so that no name repeats it."""
    assert [run.name for run in part.task_runs()] == ["GEM"] * 2 + ["mixed replay"] * 2
    alone = Part("alone", part.experiment, part.jobs[:1])
    varies = {"runs": part.experiment.runs[:0]}
    alone = dataclasses.replace(alone, experiment=part.experiment.model_copy(update=varies))
    assert [run.name for run in alone.task_runs()] == ["GEM, Online GD"]


def test_what_runs_have_set_differently_tells_them_apart_too() -> None:
    text = """
    title = "x"
    [[runs]]
    set = { "play.learner" = "gem", "play.steps" = 1 }
    vary = { "play.optimizer" = ["online-gd"] }
    [[runs]]
    set = { "play.learner" = "icarl" }
    vary = { "play.optimizer" = ["online-gd"] }
    """
    assert Experiment.of(tomllib.loads(text)).varies() == ["play.learner"]


def test_the_page_of_a_recipe_with_tasks(part: Part, tmp_path: Path) -> None:
    page = write(tmp_path / "out", [part], {}, "firehose reproduce")
    text = page.read_text()
    assert text.count("<svg") == 5  # two for each benchmark, one for both
    assert "</b> Disjoint CIFAR. Accuracy on each task" in text
    assert "8 runs with 2 seeds on 2 benchmarks." in text
    assert '#what-came-of-it">What came of it</a></h2>' in text  # and not its own title again
    assert text.rindex("<svg") < text.index("accuracy on each task in the end, %</p>")
    assert len(list((tmp_path / "out/tables").glob("*.csv"))) == 6
    assert "difference, points" in text and "−10.0 … −10.0" in text
    assert "81.4 ± 1.8" in text and "erplexity" not in text
    assert {path.stem for path in (tmp_path / "out/figures").iterdir()} == {
        "pictures-accuracy-disjoint-mnist",
        "pictures-accuracy-disjoint-cifar",
        "pictures-tasks-disjoint-mnist",
        "pictures-tasks-disjoint-cifar",
        "pictures-transfer",
    }
    runs = [json.loads(file.read_text()) for file in (tmp_path / "out/runs").glob("*.json")]
    assert len(runs) == 8 and {run["machine"]["torch"] for run in runs}
    assert {round(run["measures"]["accuracy"]) for run in runs} == {50, 60}
    assert {run["settings"]["pictures"]["benchmark"] for run in runs} == {
        "disjoint-mnist",
        "disjoint-cifar",
    }
    (claim,) = json.loads((tmp_path / "out/claims.json").read_text())
    assert claim["scale"] == "accuracy" and claim["compared"][0]["change"] == pytest.approx(-10)


@pytest.mark.parametrize(("measure", "tables"), [("online", 2), ("test", 1)])
def test_prices_of_compressors_stand_below_online_fit(
    measure: str, tables: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = prepared(tmp_path, simple_posts())
    price = Price(name="xz", bits=80, perplexity=256, seconds=0)
    priced = Baseline(corpus=corpus.seal(), words=10, prices=[price])
    (corpus.path / "baseline.json").write_text(priced.to_json())
    recipe = {"title": "t", "tables": [{"title": "t", "rows": ["a"], "measures": [measure]}]}
    monkeypatch.setattr(report, "groups", lambda _: [None])
    monkeypatch.setattr(report, "make_tables", lambda *_: [Table([""], [])])
    jobs: Any = [SimpleNamespace(corpus=corpus)]
    found = Part("t", Experiment.of(recipe | {"runs": [{}]}), jobs).tables()
    assert len(found) == tables
    if tables == 2:
        assert found[1].rows == [["xz", "256.0", "8.000", "0"]]
