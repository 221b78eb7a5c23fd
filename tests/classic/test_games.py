"""Games with pictures: tasks as they are defined, every method, results by hand."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from firehose.batch import Batch
from firehose.classic import experiment
from firehose.classic.experiment import Cell, play_all
from firehose.classic.files import DataSet, Pictures
from firehose.classic.report import write
from firehose.classic.run import METHODS, Played, Protocol, make_parts, run
from firehose.classic.showing import PUBLISHED, differences, forgetting, forward, table
from firehose.classic.tasks import BENCHMARKS, Benchmark, Images, make_tasks
from firehose.errors import FirehoseError
from firehose.models.perceptron import named
from firehose.tables import Beside

SMALL = Benchmark("Small", "mnist", "disjoint", 5, 40, 0.1)
PERMUTED = SMALL._replace(kind="permuted", tasks=3)
QUICK = Protocol(memory=20, validation=10)


@pytest.fixture(scope="module")
def data() -> DataSet:
    """Ten classes, each a bright place of its own in nine dim pixels and noise."""
    generator = np.random.default_rng(0)

    def some(count: int) -> Pictures:
        classes = (np.arange(count) % 10).astype(np.uint8)
        pixels = generator.integers(0, 60, (count, 12), dtype=np.uint8)
        pixels[np.arange(count), classes] += 190
        return Pictures(pixels, classes)

    return DataSet(some(800), some(200))


def test_disjoint_tasks_have_two_classes_each(data: DataSet) -> None:
    tasks = make_tasks(SMALL, data, seed=0)
    for task in range(5):
        for posts in (tasks.train[task], tasks.test[task]):
            assert set(named(posts).tolist()) == {2 * task, 2 * task + 1}
            assert set(posts.user.tolist()) == {task}
        assert len(tasks.train[task]) == 40 and len(tasks.test[task]) == 40
    rows = {tuple(row) for row in tasks.train[0].tokens.reshape(40, -1).tolist()}
    everything = np.column_stack([*data.train]).tolist()
    assert rows <= {tuple(row) for row in everything}


def test_permuted_tasks_are_the_same_for_every_seed_and_the_first_is_plain(data: DataSet) -> None:
    one, two = (make_tasks(PERMUTED, data, seed) for seed in (0, 1))
    plain = np.column_stack([*data.test])
    assert one.test[0].tokens.tolist() == plain.reshape(-1).tolist()
    for task in range(3):
        assert one.test[task].tokens.tolist() == two.test[task].tokens.tolist()
        shuffled = one.test[task].tokens.reshape(200, -1)
        assert np.sort(shuffled[:, :-1]).tolist() == np.sort(plain[:, :-1]).tolist()
    assert one.test[1].tokens.tolist() != one.test[2].tokens.tolist()
    assert one.train[0].tokens.tolist() != two.train[0].tokens.tolist()


def test_a_stream_goes_task_by_task(data: DataSet) -> None:
    tasks = make_tasks(SMALL, data, seed=0)
    batches = list(tasks.stream(15))
    assert [len(batch) for batch in batches] == [15, 15, 10] * 5
    assert [batch.user[0] for batch in batches] == [n // 3 for n in range(15)]
    assert all(len(set(batch.user.tolist())) == 1 for batch in batches)


def test_images_are_posts(data: DataSet) -> None:
    images = make_tasks(SMALL, data, seed=0).train[2]
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
def test_every_method_plays_and_plays_the_same_again(
    data: DataSet, method: str, benchmark: Benchmark
) -> None:
    tasks = make_tasks(benchmark, data, seed=1)
    one, two = (run(benchmark, tasks, method, 1, QUICK) for _ in range(2))
    assert one.accuracy.tolist() == two.accuracy.tolist()
    assert one.accuracy.shape == (len(one.seen), benchmark.tasks)
    assert one.seen[-1] == 40 * benchmark.tasks
    assert one.seen[one.ends].tolist() == [40 * (n + 1) for n in range(benchmark.tasks)]
    assert sum(one.kept) == 4 * benchmark.tasks
    parts = make_parts(benchmark, tasks, method, 1, QUICK)
    assert parts.classify(tasks.test[0]).shape == (len(tasks.test[0]),)


def test_who_remembers_does_not_forget(data: DataSet) -> None:
    longer = SMALL._replace(samples=160, rate=0.3)
    tasks = make_tasks(longer, data, seed=0)
    found = {method: run(longer, tasks, method, 0, QUICK) for method in METHODS}
    for method in ("GEM", "iCaRL", "GD replay", "GD mixed"):
        assert found[method].final > found["GD online"].final + 0.2, method
        assert found[method].forgetting < found["GD online"].forgetting, method


def test_results_by_hand() -> None:
    accuracy = np.array([[0.1, 0.2, 0.3], [0.9, 0.3, 0.3], [0.7, 0.8, 0.5], [0.5, 0.7, 0.6]])
    ends = np.array([1, 2, 3])
    played = Played(np.arange(4), accuracy, ends, [0, 3], 3, {})
    assert played.final == pytest.approx(0.6)
    assert played.forgetting == pytest.approx(((0.9 - 0.5) + (0.8 - 0.7)) / 2)
    assert played.forward == pytest.approx(((0.3 - 0.2) + (0.5 - 0.3)) / 2)


def test_what_is_played_is_not_played_again(
    data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL)
    monkeypatch.setattr(experiment, "_data", lambda *_: data)

    def here(cells: list[Cell], arguments: tuple[Path, Protocol], _: object) -> object:
        return ((cell, experiment._play(cell, *arguments)) for cell in cells)

    monkeypatch.setattr(experiment, "_games", here)
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
    assert text.count("<svg") == 3 and "81.4 ± 1.8" in text and "a memory of 20 pictures" in text
    assert {path.name for path in (tmp_path / "out/tables").iterdir()} >= {"accuracy.md"}
    names = ["disjoint-mnist"]
    cell = table(again, names).rows[0][1]
    values = [100 * played.final for key, played in again.items() if key.method == "GEM"]
    text = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
    assert cell == Beside(text, "81.4 ± 1.8")
    assert len(forgetting(again, names).rows) == len(forward(again, names).rows) == 8


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


def test_wrong_names_are_told(tmp_path: Path) -> None:
    with pytest.raises(FirehoseError, match="did you mean 'disjoint-mnist'"):
        play_all(["disjoint-mnits"], tmp_path, tmp_path)
    with pytest.raises(FirehoseError, match="has no train-images-idx3-ubyte"):
        play_all(["disjoint-mnist"], tmp_path, tmp_path)
    with pytest.raises(FirehoseError, match="no method 'GD mix': did you mean 'GD mixed'"):
        play_all(["disjoint-mnist"], tmp_path, tmp_path, methods=["GD mix"])
