"""Reports on games with tasks: the tables, figures and claims of a recipe, on one page."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from firehose.experiments import report
from firehose.experiments.recipe import Experiment
from firehose.experiments.report import Part, write
from small_experiments import task_outcome

RECIPE = """
title = "Pictures"
[[runs]]
[runs.vary]
"play.learner" = ["gem", "mixed-replay"]
"play.optimizer" = ["online-gd"]
benchmark = ["disjoint-mnist", "disjoint-cifar"]

[[tables]]
title = "Accuracy"
rows = ["play.learner"]
columns = ["benchmark"]
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
within = ["benchmark"]
"""


@dataclass(eq=False)
class Done:
    """A job that is done."""

    folder: Path
    facts: dict[str, str]
    seed: int
    kind: Literal["play"] = "play"
    is_done: bool = True
    start: None = None
    identity: dict[str, Any] = field(default_factory=dict)
    settings: Any = dataclasses.field(
        default_factory=lambda: SimpleNamespace(to_toml=lambda: "", public=dict)
    )

    @property
    def key(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return self.folder.name


@pytest.fixture
def part(tmp_path: Path) -> Part:
    """Two learners on two benchmarks with two seeds; GEM names 10 points less rightly."""
    jobs = []
    for learner, less in (("gem", 0.1), ("mixed-replay", 0.0)):
        for title in ("Disjoint MNIST", "Disjoint CIFAR"):
            for seed in range(2):
                folder = tmp_path / f"{learner}-{title}-{seed}"
                folder.mkdir()
                line = {"kept": 1, "taken": 1, "tokens": 5, "seconds": {"pay": 0.5}}
                (folder / "rounds.jsonl").write_text(f"{json.dumps(line)}\n")
                came = task_outcome(title)
                dataclasses.replace(came, accuracy=came.accuracy - less).write(folder)
                facts = {
                    "kind": "play",
                    "play.learner": learner,
                    "play.optimizer": "online-gd",
                    "benchmark": title.lower().replace(" ", "-"),
                }
                jobs.append(Done(folder, facts, seed))
    return Part("pictures", Experiment.of(tomllib.loads(RECIPE)), jobs)  # type: ignore[arg-type]


def test_a_recipe_with_tasks_has_its_tables_and_claims(part: Part) -> None:
    accuracy, differences, *by_task = part.tables()
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
    assert claim.compared[0].difference[:3] == pytest.approx((-10, -10, -10))


def test_the_page_of_a_recipe_with_tasks(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"processor": "one", "cores": 1, "torch": "2"}
    monkeypatch.setattr(report, "made", lambda _: {"machine": here})
    monkeypatch.setattr(report, "describe", lambda job: {"name": job.name})
    page = write(tmp_path / "out", None, [part], {}, "firehose reproduce")  # type: ignore[arg-type]
    text = page.read_text()
    assert text.count("<svg") == 5  # two for each benchmark, one for both
    assert "8 runs with 2 seeds on 2 benchmarks." in text
    assert "difference, points" in text and "−10.0 … −10.0" in text
    assert "81.4 ± 1.8" in text and "erplexity" not in text
    assert {path.stem for path in (tmp_path / "out/figures").iterdir()} == {
        "pictures-accuracy-disjoint-mnist",
        "pictures-accuracy-disjoint-cifar",
        "pictures-tasks-disjoint-mnist",
        "pictures-tasks-disjoint-cifar",
        "pictures-transfer",
    }
    (claim,) = json.loads((tmp_path / "out/claims.json").read_text())
    assert claim["scale"] == "accuracy" and claim["compared"][0]["change"] == pytest.approx(-10)
