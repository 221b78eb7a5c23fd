"""The earlier benchmarks: what each method is made of, the command, its page, and its refusals."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from firehose.cli.app import app
from firehose.config import flattened
from firehose.data.pictures.corpus import PictureCorpus
from firehose.data.pictures.tasks import BENCHMARKS
from firehose.errors import FirehoseError
from firehose.experiments import calibrate, reproduce
from firehose.experiments.calibrate import Pace, measure
from firehose.experiments.classic import METHODS, classic_experiment, parse, run_classic
from firehose.experiments.execute import execute
from firehose.experiments.jobs import Job, make_jobs
from firehose.experiments.recipe import read_experiments
from firehose.experiments.reproduce import make_schedule
from firehose.game.assembly import make_game
from firehose.game.outcome import TaskOutcome, read_outcome
from firehose.methods.optimizers.congrad import ConGraD
from firehose.optim.sgd import SGD
from small_experiments import do
from small_pictures import DATA, SMALL, SMALL_BUFFERS, small_mnist, small_mnist_elsewhere

OWN = """
from firehose.methods.learners.mixed_replay import MixedReplay

class Mine(MixedReplay):
    pass
"""
RATES = {"disjoint-mnist": 0.05, "permuted-mnist": 0.05, "disjoint-cifar": 0.01}
STRATIFIED = {"kind": "stratified", "posts": 300}
RING = {"kind": "stratified", "per_user": 60}
HELD_BACK = {
    "kind": "congrad",
    "validation": {"kind": "stratified", "posts": 50},
    "validation_batch": 50,
    "allow_no_step": True,
}
# Learner, optimizer, posts of a step, steps, memory.
MADE_OF: dict[str, tuple[dict[str, Any], str, int, int, dict[str, Any]]] = {
    "GEM": ({"kind": "gem", "margin": 0.5}, "online-gd", 10, 1, RING),
    "iCaRL": (
        {"kind": "icarl", "pace": 2.0, "strength": 1.0},
        "online-gd", 10, 3, {"kind": "exemplars", "posts": 300},
    ),
    "GD online": ({"kind": "online-only"}, "online-gd", 10, 1, STRATIFIED),
    "GD replay": ({"kind": "replay-only"}, "online-gd", 20, 3, STRATIFIED),
    "GD mixed": ({"kind": "mixed-replay"}, "online-gd", 20, 3, STRATIFIED),
    "ConGraD online": ({"kind": "online-only"}, "congrad", 10, 3, STRATIFIED),
    "ConGraD replay": ({"kind": "replay-only"}, "congrad", 20, 3, STRATIFIED),
    "ConGraD mixed": ({"kind": "mixed-replay"}, "congrad", 20, 3, STRATIFIED),
    # and some that are not the paper's
    "GD a-gem": ({"kind": "a-gem"}, "online-gd", 20, 3, STRATIFIED),
    "ConGraD a-gem": ({"kind": "a-gem"}, "congrad", 20, 3, STRATIFIED),
    "ConGraD gem": ({"kind": "gem", "margin": 0.5}, "congrad", 10, 3, RING),
}  # fmt: skip


def jobs_of(
    *methods: str,
    name: str = "disjoint-mnist",
    data: Path = Path("data"),
    assignments: Sequence[str] = (),
    seeds: int = 1,
) -> list[Job]:
    experiment = classic_experiment(name, methods or tuple(METHODS), assignments)
    return make_jobs(experiment, data, "classic", seeds, data / "runs")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with pictures for small benchmarks; games are played in this process."""
    monkeypatch.setattr(reproduce, "execute", here)
    return small_mnist(tmp_path / "data", monkeypatch)


def here(jobs: Sequence[Job], *_: int) -> dict[str, str]:
    """Do all jobs that are not done, one after another."""
    failed = {}
    for job in (each for each in jobs if not each.is_done):
        try:
            do(job)
        except FirehoseError as error:
            failed[job.key] = str(error)
    return failed


def result(folder: Path) -> TaskOutcome:
    """What came of a game with tasks."""
    found = read_outcome(folder)
    assert isinstance(found, TaskOutcome)
    return found


def is_within(part: dict[str, Any], whole: dict[str, Any]) -> bool:
    return flattened(part).items() <= flattened(whole).items()


@pytest.mark.parametrize("method", MADE_OF)
def test_a_method_is_made_of_what_it_was(method: str) -> None:
    """All that earlier versions of these games were made of, benchmark by benchmark."""
    learner, optimizer, step_size, steps, memory = MADE_OF[method]
    jobs = jobs_of(method, name="all")
    assert [job.corpus.name for job in jobs] == [
        "disjoint-cifar",
        "disjoint-mnist",
        "permuted-mnist",
    ]
    for job in jobs:
        play, tables = job.settings.play, job.settings.public()["play"]
        assert (play.posts, play.step_size, play.steps) == (10, step_size, steps)
        assert is_within(learner, tables["learner"]) and tables["memory"] == memory
        expected = HELD_BACK if optimizer == "congrad" else {"kind": "online-gd"}
        assert is_within(expected, tables["optimizer"])
        assert (tables["optimizer"] == expected) or optimizer == "congrad"
        assert tables["rule"] == {"kind": "sgd", "rate": RATES[job.corpus.name], "user_rate": 1.0}
        perceptron = {"hidden": [100, 100], "pixels": "share", "weights": "xavier"}
        assert job.settings.public()["perceptron"] == perceptron
        assert isinstance(job.corpus, PictureCorpus) and job.corpus.plan.order == "fixed"


def test_the_table_is_of_the_paper_s_methods() -> None:
    assert list(MADE_OF)[:8] == list(METHODS)
    for method, (learner, optimizer, *_) in MADE_OF.items():
        assert parse(method) == (learner["kind"], optimizer)


def test_the_recipe_and_the_command_have_the_same_runs(tmp_path: Path) -> None:
    (experiment,) = read_experiments("classic").values()
    recipe = make_jobs(experiment, tmp_path, "classic", 2, tmp_path)
    command = make_jobs(classic_experiment("all"), tmp_path, "classic", 2, tmp_path)
    assert {job.key for job in recipe} == {job.key for job in command}
    assert len(recipe) == len(command) == 8 * 3 * 2
    assert {job.name for job in recipe} == {job.name for job in command}


def test_methods_have_one_name_and_the_paper_s_order() -> None:
    asked = ["GD a-gem", "GD mixed-replay", "GD gem", "GEM", "GD a-gem"]
    kinds = [job.settings.play.learner.kind for job in jobs_of(*asked)]
    assert kinds == ["gem", "mixed-replay", "a-gem"]
    (averaged,) = jobs_of("Averaged mixed-replay")
    assert "-mixed-replay-averaged-online-gd-3-steps-" in averaged.label


def test_settings_are_changed_for_those_who_have_them() -> None:
    changed = [
        *("play.memory.posts=500", "play.optimizer.validation.posts=20", "play.learner.margin=0.3"),
        *("play.rule.rate=0.2", "pictures.order=random", "perceptron.pixels=standard"),
    ]
    jobs = {job.facts["play.learner"] + job.facts["play.optimizer"]: job for job in jobs_of(
        "GEM", "iCaRL", "GD mixed", "ConGraD mixed", assignments=changed
    )}  # fmt: skip
    for job in jobs.values():
        assert job.facts["play.memory.posts"] == "500" and "play.memory.per_user" not in job.facts
        assert job.facts["play.rule.rate"] == "0.2" and job.facts["pictures.order"] == "random"
        assert job.facts["perceptron.pixels"] == "standard"
    assert jobs["gemonline-gd"].facts["play.learner.margin"] == "0.3"
    assert jobs["icarlonline-gd"].facts["play.learner.pace"] == "2.0"
    congrad = jobs["mixed-replaycongrad"].settings.play.optimizer
    assert isinstance(congrad, ConGraD.Settings) and congrad.validation_batch == 50
    assert congrad.validation.public() == {"kind": "stratified", "posts": 20}
    (slow,) = jobs_of("iCaRL", assignments=["play.learner.pace=0.5", "play.steps=9"])
    assert slow.facts["play.learner.pace"] == "0.5" and slow.settings.play.steps == 9
    assert (
        "Changed here: play.steps=9." in classic_experiment("all", ["GEM"], ["play.steps=9"]).about
    )


def test_parts_are_what_the_settings_say(data: Path) -> None:
    changed = ["perceptron.weights=torch", "perceptron.pixels=standard", *SMALL_BUFFERS]
    for method, job in zip(METHODS, jobs_of(data=data, assignments=changed), strict=True):
        game = make_game(job.corpus, job.settings)
        _, optimizer, step_size, steps, _ = MADE_OF[method]
        assert (game.learner.step_size, game.optimizer.steps) == (step_size, steps)
        assert isinstance(game.rule, SGD) and game.optimizer.rule is game.rule
        model: Any = game.model
        mean = float(DATA.train.pixels.mean() * model.pixel_scale.scale + model.pixel_scale.shift)
        assert mean == pytest.approx(0, abs=1e-6)
        assert isinstance(job.corpus, PictureCorpus)
        for _ in game.rounds(job.corpus.stream(10)):
            pass
        assert len(game.memory) == 20
        if isinstance(game.optimizer, ConGraD):
            assert len(game.optimizer.validation) == 10 and game.optimizer.settings.allow_no_step
        assert isinstance(game.optimizer, ConGraD) == (optimizer == "congrad")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["disjoint-mnits"], "no benchmark 'disjoint-mnits': did you mean 'disjoint-mnist'"),
        (["disjoint-cifar"], "has no data_batch_1.bin of cifar10; `firehose classic fetch"),
        (["all"], "has no data_batch_1.bin of cifar10"),
        (["disjoint-mnist", "--data", "none"], "none does not exist; `firehose classic fetch"),
        (["all", "--method", "GD mix"], "no method 'GD mix': did you mean 'GD mixed'"),
        (["all", "--method", "GD"], "no method 'GD'"),
        (["all", "--method", "Adam a-gem"], "no method 'Adam a-gem'"),
        (["all", "--method", "GD a-gm"], "did you mean 'GD a-gem'"),
        (["all", "--method", "GD none.py:Mine"], "none.py does not exist"),
        (["all", "--method", "GD :"], "There is no module ''"),
        (
            ["all", "--method", "GD builtins:int"],
            "learner: let it inherit from firehose.methods.learners.Learner",
        ),
        (["all", "--method", "ConGraD icarl"], "ConGraD holds some back: use 'iCaRL'"),
        (
            ["all", "--method", "GD mine.py:Mine", "--method", "GD other.py:Mine"],
            "would be called 'Mine, Online GD'; rename one of the classes",
        ),
        (["all", "--set", "play.memory.posts=9"], "greater than or equal to 10"),
        (["all", "--set", "play.rule.rate=0"], "greater than 0"),
        (["all", "--set", "play.learner=gem"], "choose it by the benchmark's name or --method"),
        (["all", "--set", "play.optimizer.kind=congrad"], "by the benchmark's name or --method"),
        (["all", "--set", "pictures.benchmark=x"], "by the benchmark's name or --method"),
        (["all", "--set", "play.learner.marginn=1"], "none of these methods has such a setting"),
        (["all", "--method", "GD mixed", "--set", "play.learner.margin=1"], "none of these"),
        (["all", "--set", "play.memoy.posts=9"], "Unknown key 'play.memoy'"),
        (["all", "--set", "play.seed=3"], "seeds are counted from 0"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_played(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "other.py"):
        (tmp_path / name).write_text(OWN)
    given = [] if "--data" in arguments else ["--data", str(data)]
    done = CliRunner().invoke(app, ["classic", "run", *arguments, *given, "--out", "out"])
    assert isinstance(done.exception, FirehoseError), done.output
    assert re.search(re.escape(sentence), str(done.exception))
    assert not (tmp_path / "out").exists()


def test_games_that_fail_are_told_and_the_others_go_on(data: Path, tmp_path: Path) -> None:
    arguments = ["--data", str(data), "--seeds", "1", "--out", str(tmp_path / "out")]
    methods = ["--method", "GEM", "--method", "GD online", "--set", "play.rule.rate=1e19"]
    done = CliRunner().invoke(app, ["classic", "run", "disjoint-mnist", *arguments, *methods])
    assert isinstance(done.exception, FirehoseError) and "runs failed" in str(done.exception)
    page = (tmp_path / "out/disjoint-mnist/index.html").read_text()
    assert "Runs that failed" in page and "Begin again with a lower rate" in page


def test_missing_data_is_told_by_another_process(tmp_path: Path) -> None:
    (job,) = jobs_of("GEM", data=tmp_path)
    failed = execute([job], at_once=1)
    assert "has no train-images-idx3-ubyte of mnist" in failed[job.key]


@pytest.mark.parametrize("name", ["disjoint-mnist", "permuted-mnist"])
def test_every_method_plays_and_plays_the_same_again(data: Path, name: str) -> None:
    jobs = jobs_of(name=name, data=data, assignments=SMALL_BUFFERS, seeds=2)
    assert not here(jobs[1::2], 1)
    first = {job.name: result(job.folder) for job in jobs[1::2]}
    benchmark = BENCHMARKS[name]
    for came in first.values():
        assert came.accuracy.shape == (len(came.seen), benchmark.tasks)
        assert came.seen[-1] == 40 * benchmark.tasks
        assert sum(came.kept) == 4 * benchmark.tasks
    assert len({came.accuracy.tobytes() for came in first.values()}) == 8
    again = jobs_of(name=name, data=data, assignments=SMALL_BUFFERS, seeds=2)[1::2]
    assert all(job.is_done for job in again)
    for job in again:
        (job.folder / "result.json").rename(job.folder / "first.json")
        job.folder.rename(job.folder.with_suffix(".first"))
    assert not here(again, 1)
    for job in again:
        assert (result(job.folder).accuracy == first[job.name].accuracy).all()


def test_another_setting_seed_or_benchmark_is_another_game(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        *jobs_of("GEM", "iCaRL", data=data, seeds=2),
        *jobs_of("GEM", data=data, assignments=["play.steps=2"]),
        *jobs_of("GEM", data=data, assignments=["perceptron.weights=torch"]),
        *jobs_of("GEM", data=data, assignments=["pictures.order=random"]),
        *jobs_of("GEM", data=data, name="permuted-mnist"),
    ]
    keys = [job.key for job in jobs]
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL._replace(samples=39))
    keys += [job.key for job in jobs_of("GEM", data=data)]
    assert len(set(keys)) == len(keys) == 9


def test_any_learner_goes_with_any_optimizer(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)

    def accuracy(method: str) -> Any:
        (job,) = jobs_of(method, data=data)
        assert not here([job], 1)
        return result(job.folder).accuracy

    for optimizer in ("GD", "ConGraD"):
        expected = accuracy(f"{optimizer} mixed")
        assert (accuracy(f"{optimizer} {tmp_path}/mine.py:Mine") == expected).all()
        for learner in ("a-gem", "gem"):
            assert (accuracy(f"{optimizer} {learner}") != expected).any()


def run(data: Path, out: Path, *more: str, name: str = "disjoint-mnist", seeds: int = 1) -> str:
    """Of the command, in this process: what it prints."""
    arguments = ["--data", str(data), "--out", str(out), "--seeds", str(seeds)]
    done = CliRunner().invoke(app, ["classic", "run", name, *arguments, *more])
    assert done.exit_code == 0, done.output or done.exception
    return done.output


def test_the_page_beside_the_published_numbers(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run(data, tmp_path / "out", seeds=2)
    assert "GEM" in said and "81.4 ± 1.8†" in said
    monkeypatch.setattr(reproduce, "execute", lambda *_: {})  # nothing is left to do
    home = tmp_path / "out/disjoint-mnist"
    first = (home / "index.html").read_text()
    run(data, tmp_path / "out", seeds=2)
    text = (home / "index.html").read_text()
    assert text == first
    assert "16 runs with 2 seeds on 1 benchmark." in text and text.count("<svg") == 3
    assert "firehose classic run disjoint-mnist --seeds 2" in text
    assert "ConGraD beats Online GD for every learner." in text
    assert "hidden layers of 100 and 100" in text and "erplexity" not in text
    tables = sorted(file.name for file in (home / "tables").glob("*.md"))
    assert tables == [f"disjoint-mnist-{n}.md" for n in range(1, 7)]
    accuracy = (home / "tables/disjoint-mnist-1.md").read_text()
    values = [
        100 * result(folder.parent).accuracy[-1].mean()
        for folder in (tmp_path / "out/runs").glob("*-gem-*/result.json")
    ]
    ours = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
    assert f"| GEM, Online GD | {ours} (81.4 ± 1.8†) |" in accuracy
    figures = {file.stem for file in (home / "figures").iterdir()}
    assert figures == {
        "disjoint-mnist-transfer",
        "disjoint-mnist-accuracy-small",
        "disjoint-mnist-tasks-small",
    }
    assert len(json.loads((home / "claims.json").read_text())) == 2
    runs = [json.loads(file.read_text()) for file in (home / "runs").glob("*.json")]
    assert len(runs) == 16
    assert {"machine", "settings", "measures", "compute", "seed", "code"} <= set(runs[0])
    assert set(runs[0]["measures"]) == {"accuracy", "forgetting", "forward"}


def test_some_methods_and_other_settings(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    method = f"ConGraD {tmp_path}/mine.py:Mine"
    own = ["--method", method, "--method", "GD a-gem", "--set", "play.memory.posts=20"]
    said = run(data, tmp_path / "out", *own)
    home = tmp_path / "out/disjoint-mnist"
    assert "Mine" in said and "A-GEM" in said and "†" not in said
    text = (home / "index.html").read_text()
    assert "2 runs with 1 seed on 1 benchmark" in text and "ours less published" not in text
    assert "--set play.memory.posts=20" in text and "Changed here: play.memory.posts=20." in text
    run(data, tmp_path / "out", "--method", method, "--method", "GD mixed", *own[-2:])
    made = (home / "tables/disjoint-mnist-1.md").read_text()
    assert made.index("mixed replay, Online GD") < made.index("Mine, ConGraD")
    assert "82.3 ± 0.3†" in made
    differences = (home / "tables/disjoint-mnist-2.md").read_text()
    assert "mixed replay" in differences and "Mine" not in differences
    names = {path.name.rpartition("-seed-0-")[0] for path in (tmp_path / "out/runs").glob("*.toml")}
    assert names == {
        "disjoint-mnist-Mine-congrad-3-steps",
        "disjoint-mnist-a-gem-online-gd-3-steps",
        "disjoint-mnist-mixed-replay-online-gd-3-steps",
    }
    before = jobs_of(method, data=data)[0].key
    (tmp_path / "mine.py").write_text(f"{OWN}    step = 2\n")
    assert jobs_of(method, data=data)[0].key != before


def test_games_in_processes_end_as_they_do_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = small_mnist_elsewhere(tmp_path / "data", monkeypatch)
    methods = ["iCaRL", "ConGraD mixed"]
    found = run_classic("disjoint-mnist", data, tmp_path / "there", 1, 2, methods)
    assert not found.failed and found.page == tmp_path / "there/disjoint-mnist/index.html"
    monkeypatch.setattr(reproduce, "execute", here)
    run_classic("disjoint-mnist", data, tmp_path / "here", 1, 2, methods)
    for job in found.parts[0].jobs:
        mine = result(tmp_path / "here/runs" / job.name)
        assert (result(job.folder).accuracy == mine.accuracy).all()
    for name in ("tables/disjoint-mnist-1.md", "figures/disjoint-mnist-accuracy-small.svg"):
        one, two = (tmp_path / place / "disjoint-mnist" / name for place in ("there", "here"))
        assert one.read_bytes() == two.read_bytes()


def test_reproduce_plays_the_benchmarks_on_a_folder(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`firehose reproduce classic --corpus DATA --scale classic`, and the plan for it."""
    monkeypatch.setitem(BENCHMARKS, "disjoint-cifar", SMALL._replace(title="Third"))
    monkeypatch.setattr(calibrate, "measure", lambda *_: Pace(3.6, 0.36, 2**20))
    calibrate._size_with_pictures.cache_clear()
    arguments = ["reproduce", "classic", "--corpus", str(data), "--scale", "classic"]
    arguments += ["--seeds", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*arguments, "--dry-run", "--jobs", "2"])
    assert done.exit_code == 0, done.exception
    assert "24 runs to do, 0 done" in done.output and not (tmp_path / "out").exists()
    # 20 rounds of a step; 200 pictures are paid for, 200 others are classified 25 times.
    minutes = (20 * 3.6 + (200 + 25 * 200) * 0.36) / 60
    assert re.search(rf"disjoint-mnist-gem-online-gd-1-steps-seed.* {minutes:.1f} min", done.output)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.exception
    text = (tmp_path / "out/classic/index.html").read_text()
    assert "24 runs with 1 seed on 3 benchmarks." in text and text.count("<svg") == 7
    done = CliRunner().invoke(app, [*arguments, "--dry-run"])
    assert "0 runs to do, 24 done" in done.output


def test_a_few_steps_with_pictures_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = small_mnist_elsewhere(tmp_path / "data", monkeypatch)
    pace = measure(jobs_of("GEM", data=data)[0], threads=1)
    assert 0 < pace.score < pace.step < 1
    assert 50 < pace.memory / 2**20 < 4000


def test_pictures_are_only_played_with(tmp_path: Path) -> None:
    text = (
        'title = "x"\n[[runs]]\nkind = "offline"\nset = { "pictures.benchmark" = "disjoint-mnist" }'
    )
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(FirehoseError, match="with pictures there are only runs of kind play"):
        make_schedule(tmp_path / "x.toml", tmp_path, tmp_path, "classic", 1)
