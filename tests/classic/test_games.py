"""Games with pictures: tasks as they are defined, every method, results by hand."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firehose.classic import experiment
from firehose.classic.experiment import Cell, play_all
from firehose.classic.methods import METHODS, Protocol, make_parts
from firehose.classic.report import write
from firehose.classic.run import Played, run
from firehose.classic.showing import (
    PUBLISHED,
    after_tasks,
    differences,
    forgetting,
    forward,
    on_tasks,
    table,
)
from typer.testing import CliRunner

from firehose.batch import Batch
from firehose.cli.app import app
from firehose.data.pictures.tasks import BENCHMARKS, Benchmark, Images, Order, make_tasks
from firehose.errors import FirehoseError, Stopped
from firehose.models.perceptron import labels
from firehose.report.tables import Beside
from small_pictures import DATA, PERMUTED, QUICK, SMALL, stay_at_home


def test_disjoint_tasks_have_two_classes_each() -> None:
    tasks = make_tasks(SMALL, DATA, seed=0)
    for task in range(5):
        for posts in (tasks.train[task], tasks.test[task]):
            assert set(labels(posts).tolist()) == {2 * task, 2 * task + 1}
            assert set(posts.user.tolist()) == {task}
        assert len(tasks.train[task]) == 40 and len(tasks.test[task]) == 40
    rows = {tuple(row) for row in tasks.train[0].tokens.reshape(40, -1).tolist()}
    everything = np.column_stack([*DATA.train]).tolist()
    assert rows <= {tuple(row) for row in everything}


def test_permuted_tasks_are_the_same_for_every_seed_and_the_first_is_plain() -> None:
    one, two = (make_tasks(PERMUTED, DATA, seed) for seed in (0, 1))
    plain = np.column_stack([*DATA.test])
    assert one.test[0].tokens.tolist() == plain.reshape(-1).tolist()
    for task in range(3):
        assert one.test[task].tokens.tolist() == two.test[task].tokens.tolist()
        shuffled = one.test[task].tokens.reshape(200, -1)
        assert np.sort(shuffled[:, :-1]).tolist() == np.sort(plain[:, :-1]).tolist()
    assert one.test[1].tokens.tolist() != one.test[2].tokens.tolist()
    assert one.train[0].tokens.tolist() != two.train[0].tokens.tolist()


@pytest.mark.parametrize("benchmark", [SMALL, PERMUTED])
def test_tasks_can_come_in_random_order(benchmark: Benchmark) -> None:
    def tests(seed: int, order: Order) -> list[bytes]:
        made = make_tasks(benchmark, DATA, seed, order)
        for task, (seen, held_out) in enumerate(zip(made.train, made.test, strict=True)):
            assert set(seen.user.tolist()) == set(held_out.user.tolist()) == {task}
            assert set(labels(seen).tolist()) <= set(labels(held_out).tolist())
        return [posts.tokens.tobytes() for posts in made.test]

    fixed, *shuffled = tests(0, "fixed"), *(tests(seed, "random") for seed in range(6))
    assert fixed == tests(5, "fixed") and shuffled[0] == tests(0, "random")
    assert all(sorted(each) == sorted(fixed) for each in shuffled)
    assert len(set(map(tuple, shuffled))) > 2


def test_a_stream_goes_task_by_task() -> None:
    tasks = make_tasks(SMALL, DATA, seed=0)
    batches = list(tasks.stream(15))
    assert [len(batch) for batch in batches] == [15, 15, 10] * 5
    assert [batch.user[0] for batch in batches] == [n // 3 for n in range(15)]
    assert all(len(set(batch.user.tolist())) == 1 for batch in batches)


def test_images_are_posts() -> None:
    images = make_tasks(SMALL, DATA, seed=0).train[2]
    posts = Batch(*(getattr(images, field.name) for field in dataclasses.fields(Batch)))
    some = np.array([7, 0, 7, 3])
    for one, two in (
        (images.select(some), posts.select(some)),
        (images.select(some[:0]), posts.select(some[:0])),
        (Images.of_rows(images.rows(13)), Batch.of_rows(posts.rows(13))),
        (Images.join([images, images.select(some)]), Batch.join([posts, posts.select(some)])),
    ):
        for field in dataclasses.fields(Batch):
            ours, theirs = getattr(one, field.name), getattr(two, field.name)
            assert ours.tolist() == theirs.tolist() and ours.dtype == theirs.dtype
    assert len(images.select(some[:0]).select(some[:0])) == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("benchmark", [SMALL, PERMUTED], ids=lambda each: each.kind)
def test_every_method_plays_and_plays_the_same_again(method: str, benchmark: Benchmark) -> None:
    tasks = make_tasks(benchmark, DATA, seed=1)
    one, two = (run(benchmark, tasks, method, 1, QUICK) for _ in range(2))
    assert one.accuracy.tolist() == two.accuracy.tolist()
    assert one.accuracy.shape == (len(one.seen), benchmark.tasks)
    assert one.seen[-1] == 40 * benchmark.tasks
    assert one.seen[one.ends].tolist() == [40 * (n + 1) for n in range(benchmark.tasks)]
    assert sum(one.kept) == 4 * benchmark.tasks
    parts = make_parts(benchmark, tasks, method, 1, QUICK)
    assert parts.classify(tasks.test[0]).shape == (len(tasks.test[0]),)


def test_who_remembers_does_not_forget() -> None:
    longer = SMALL._replace(samples=160, rate=0.3)
    tasks = make_tasks(longer, DATA, seed=0)
    found = {method: run(longer, tasks, method, 0, QUICK) for method in METHODS}
    for method in ("GEM", "iCaRL", "GD replay", "GD mixed"):
        assert found[method].final > found["GD online"].final + 0.2, method
        assert found[method].forgetting < found["GD online"].forgetting, method


def by_hand() -> Played:
    """The first task is at its best after the second."""
    accuracy = np.array([[0.1, 0.2, 0.3], [0.7, 0.3, 0.3], [0.9, 0.8, 0.5], [0.5, 0.7, 0.6]])
    return Played(np.arange(4), accuracy, np.array([1, 2, 3]), [0, 3], 3, {})


def test_results_by_hand() -> None:
    played = by_hand()
    assert played.final == pytest.approx(0.6)
    assert played.forgetting == pytest.approx(((0.9 - 0.5) + (0.8 - 0.7)) / 2)
    assert played.forward == pytest.approx(((0.3 - 0.2) + (0.5 - 0.3)) / 2)


def test_tables_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL._replace(tasks=3))
    found = {Cell("disjoint-mnist", "GD mixed", 0): by_hand()}
    names = ["disjoint-mnist"]
    assert forgetting(found, names).rows == [["GD mixed", "25.0"]]
    assert forward(found, names).rows == [["GD mixed", "15.0"]]
    assert after_tasks(found, *names).rows == [["GD mixed", "43.3", "73.3", "60.0"]]
    assert on_tasks(found, *names).rows == [["GD mixed", "50.0", "70.0", "60.0"]]


def test_another_protocol_is_another_game(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell("disjoint-mnist", "GEM", 0)
    names = {
        experiment._name(cell, QUICK),
        experiment._name(cell, Protocol()),
        experiment._name(cell._replace(seed=1), QUICK),
        experiment._name(cell._replace(method="iCaRL"), QUICK),
    }
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL)
    names.add(experiment._name(cell, QUICK))
    assert len(names) == 5


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Games are small, and played in this process."""
    stay_at_home(monkeypatch)


@pytest.mark.usefixtures("at_home")
def test_from_the_command_line(tmp_path: Path) -> None:
    arguments = ["classic", "run", "disjoint-mnist", "--out", str(tmp_path), "--seeds", "1"]
    chosen = ["--method", "GD mixed", "--method", "GD mixed", "--set", "memory=20"]
    done = CliRunner().invoke(app, [*arguments, *chosen])
    assert done.exit_code == 0, done.output
    assert "GD mixed" in done.output and "82.3 ± 0.3†" in done.output and "GEM" not in done.output
    text = (tmp_path / "disjoint-mnist/index.html").read_text()
    assert "1 game on 1 benchmark" in text and "--set memory=20" in text
    assert "A memory of 20 pictures in all" in text
    for wrong, sentence in (
        (["--set", "rate=1e30"], "GD mixed on disjoint-mnist, seed 0: the model can no longer"),
        (["--set", "rate=0"], "greater than 0"),
        (["--out", str(tmp_path / "disjoint-mnist/index.html")], "runs cannot be made: Not a dir"),
    ):
        done = CliRunner().invoke(app, [*arguments, "--method", "GD mixed", *wrong])
        assert sentence in str(done.exception), wrong
        assert isinstance(done.exception, FirehoseError)


def test_what_goes_wrong_in_another_process_is_told(tmp_path: Path) -> None:
    cells = [Cell("disjoint-mnist", "GEM", seed) for seed in range(2)]
    with pytest.raises(FirehoseError, match="has no train-images-idx3-ubyte of mnist"):
        list(experiment._games(cells, (tmp_path, QUICK), jobs=1))


@pytest.mark.usefixtures("at_home")
def test_what_is_over_is_kept_when_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = experiment._play

    def stopped(cell: Cell, *arguments: Any) -> dict[str, Any]:
        if cell.seed:
            raise KeyboardInterrupt
        return once(cell, *arguments)

    monkeypatch.setattr(experiment, "_play", stopped)
    with pytest.raises(Stopped, match="the same command goes on"):
        play_all(["disjoint-mnist"], tmp_path, tmp_path, 2, QUICK, methods=["GEM"])
    assert len(list((tmp_path / "runs").glob("*.json"))) == 1


@pytest.mark.usefixtures("at_home")
def test_what_is_played_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = play_all(["disjoint-mnist"], tmp_path, tmp_path / "out", 2, QUICK)
    files = sorted((tmp_path / "out/runs").glob("*.json"))
    assert len(files) == len(first) == 16
    run_file = json.loads(files[0].read_text())
    assert {"machine", "protocol", "final", "forgetting", "seconds", "seed"} <= set(run_file)
    monkeypatch.setattr(experiment, "_play", None)
    again = play_all(["disjoint-mnist"], tmp_path, tmp_path / "out", 2, QUICK)
    assert [p.final for p in again.values()] == [p.final for p in first.values()]
    some = play_all(["disjoint-mnist"], tmp_path, tmp_path / "out", 1, QUICK, methods=["GD mixed"])
    assert [row[0] for row in table(some, ["disjoint-mnist"]).rows] == ["GD mixed"]
    assert write(some, QUICK, tmp_path / "some", "").is_file()
    page = write(again, QUICK, tmp_path / "out", "firehose classic run")
    text = page.read_text()
    assert text.count("<svg") == 3 and "81.4 ± 1.8" in text and "A memory of 20 pictures" in text
    assert {path.name for path in (tmp_path / "out/tables").iterdir()} >= {"accuracy.md"}
    names = ["disjoint-mnist"]
    cell = table(again, names).rows[0][1]
    values = [100 * played.final for key, played in again.items() if key.method == "GEM"]
    text = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
    assert cell == Beside(text, "81.4 ± 1.8")


def test_cells_far_from_the_published_ones_are_marked() -> None:
    """Far is over 3 points and over two published deviations."""
    off = {"GEM": -3.7, "iCaRL": 2.9, "GD online": 3.1, "GD mixed": -3.1}
    found: dict[Cell, Played] = {}
    for method, change in off.items():
        accuracy = np.full((1, 5), (PUBLISHED["disjoint-mnist"][method][0] + change) / 100)
        ends = np.zeros(5, np.int64)
        game = Played(ends[:1], accuracy, ends, [], 0, {})
        found |= {Cell(name, method, 0): game for name in ("disjoint-mnist", "disjoint-fashion")}
    made = differences(found, ["disjoint-mnist", "disjoint-fashion"])
    assert made.columns == ["", "Disjoint MNIST"]  # nothing is published of the other one
    assert made.rows == [
        ["GEM", "far −3.7"],
        ["iCaRL", "+2.9"],
        ["GD online", "far +3.1"],
        ["GD mixed", "far −3.1"],
    ]
