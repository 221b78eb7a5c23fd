"""Pictures as a corpus: its stream against a plain loop, its seal, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firehose.batch import Batch, UniformBatch
from firehose.data.pictures.corpus import PictureCorpus, PicturePlan
from firehose.data.pictures.files import Pictures
from firehose.data.pictures.tasks import (
    BENCHMARKS,
    Benchmark,
    PictureStream,
    as_posts,
    make_tasks,
)
from firehose.errors import FirehoseError
from small_pictures import DATA, SMALL, small_mnist, write_mnist

PLAN = PicturePlan(benchmark="disjoint-mnist")


def tasks_of(sizes: list[int]) -> list[UniformBatch]:
    """Tasks of so many pictures, whose first pixel is the number of the picture in the stream."""
    numbers = np.split(np.arange(sum(sizes), dtype=np.uint8), np.cumsum(sizes)[:-1])
    return [
        as_posts(Pictures(own[:, None].repeat(3, 1), own % 10), task)
        for task, own in enumerate(numbers)
    ]


def plain_loop(tasks: list[UniformBatch], size: int, start: int) -> list[list[int]]:
    """The numbers of the pictures of each batch, from picture ``start`` on."""
    batches: list[list[int]] = []
    number = 0
    for task in tasks:
        batch: list[int] = []
        for _ in range(len(task)):
            if number >= start:
                batch.append(number)
            if len(batch) == size:
                batches.append(batch)
                batch = []
            number += 1
        if batch:
            batches.append(batch)
    return batches


sizes = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@given(sizes, st.integers(1, 15), st.integers(0, 60))
def test_a_stream_is_that_of_a_plain_loop_from_wherever_it_is_put(
    sizes: list[int], size: int, start: int
) -> None:
    tasks = tasks_of(sizes)
    start = min(start, sum(sizes))
    expected = plain_loop(tasks, size, start)
    stream = PictureStream(tasks, size).seek(start)
    assert len(stream) == len(expected)
    found: list[Batch] = []
    for left, batch in enumerate(stream, 1):
        found.append(batch)
        assert len(stream) == len(expected) - left
        assert isinstance(batch, UniformBatch) and len(set(batch.user.tolist())) == 1
    assert [batch.tokens.reshape(-1, 4)[:, 0].tolist() for batch in found] == expected
    assert stream.position == sum(sizes)


@given(sizes, st.integers(1, 15), st.integers(0, 30))
def test_a_stream_goes_on_at_the_position_of_another(
    sizes: list[int], size: int, rounds: int
) -> None:
    tasks = tasks_of(sizes)
    stream = PictureStream(tasks, size)
    begun = [batch.tokens.tolist() for batch, _ in zip(stream, range(rounds), strict=False)]
    # zip has taken a batch more than it gave, unless the stream was over
    whole = [batch.tokens.tolist() for batch in PictureStream(tasks, size)]
    taken = min(rounds + 1, len(whole))
    assert begun == whole[: len(begun)]
    again = PictureStream(tasks, size).seek(stream.position)
    assert [batch.tokens.tolist() for batch in again] == whole[taken:]


def test_positions_outside_and_empty_batches_are_refused() -> None:
    tasks = tasks_of([3, 4])
    for position in (-1, 8):
        with pytest.raises(FirehoseError, match=f"seek to post {position}: the stream has 7 posts"):
            PictureStream(tasks, 2).seek(position)
    with pytest.raises(FirehoseError, match="at least 1"):
        PictureStream(tasks, 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small MNIST files, whose checksums are the published ones."""
    return small_mnist(tmp_path / "data", monkeypatch)


@pytest.mark.parametrize("name", ["disjoint-mnist", "permuted-mnist"])
@pytest.mark.parametrize("order", ["fixed", "random"])
def test_a_corpus_holds_the_tasks_of_its_benchmark(folder: Path, name: str, order: str) -> None:
    corpus = PictureCorpus(folder, PicturePlan.of({"benchmark": name, "order": order}), seed=3)
    benchmark: Benchmark = BENCHMARKS[name]
    tasks = make_tasks(benchmark, DATA, 3, corpus.plan.order)
    assert (corpus.path, corpus.name, corpus.title) == (folder, name, benchmark.title)
    assert (corpus.tasks.pixels, corpus.classes) == (12, 10)
    assert corpus.task_sizes == (40,) * benchmark.tasks
    assert corpus.tasks.train_pixels.tolist() == DATA.train.pixels.tolist()
    assert [each.tokens.tolist() for each in corpus.tasks.test] == [
        each.tokens.tolist() for each in tasks.test
    ]
    played, expected = corpus.stream(15), tasks.stream(15)
    assert len(played) == 3 * benchmark.tasks
    for one, two in zip(played, expected, strict=True):
        assert one.tokens.tolist() == two.tokens.tolist()
        assert one.user.tolist() == two.user.tolist()


def test_the_seal_tells_files_benchmark_and_plan_but_not_path_and_seed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seal(path: Path, seed: int = 0, **plan: str) -> str:
        made = PicturePlan.of({"benchmark": "disjoint-mnist"} | plan)
        return PictureCorpus(path, made, seed).seal()

    first = seal(folder)
    folder.rename(tmp_path / "elsewhere")
    assert seal(tmp_path / "elsewhere") == first
    assert seal(tmp_path / "elsewhere", seed=1) == first
    others = [
        seal(tmp_path / "elsewhere", order="random"),
        seal(tmp_path / "elsewhere", benchmark="permuted-mnist"),
    ]
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL._replace(samples=39))
    others.append(seal(tmp_path / "elsewhere"))
    monkeypatch.setitem(BENCHMARKS, "disjoint-mnist", SMALL)
    (tmp_path / "other").mkdir()
    write_mnist(tmp_path / "other", monkeypatch, DATA._replace(test=DATA.train))
    others.append(seal(tmp_path / "other"))
    assert len({first, *others}) == 5


def test_what_there_is_not_is_refused_with_the_nearest_name(folder: Path) -> None:
    with pytest.raises(FirehoseError, match="no benchmark 'disjoint-minst': did you mean 'disj"):
        PicturePlan(benchmark="disjoint-minst")
    with pytest.raises(FirehoseError, match="did you mean 'permuted-mnist'"):
        PicturePlan.of({"benchmark": "permutd-mnist"})
    with pytest.raises(FirehoseError, match=r"order = 'rondom' .* did you mean 'random'"):
        PicturePlan.of({"benchmark": "disjoint-mnist", "order": "rondom"})
    with pytest.raises(FirehoseError, match="benchmark is missing"):
        PicturePlan.of({})
    PictureCorpus(folder, PLAN).check()
    (folder / "raw" / "t10k-labels-idx1-ubyte").unlink()
    for path, sentence in (
        (folder / "none", "does not exist; `firehose classic fetch"),
        (folder, "has no t10k-labels-idx1-ubyte of mnist"),
    ):
        corpus = PictureCorpus(path, PLAN)  # its files are read when they are needed
        assert corpus.seal() == PictureCorpus(folder, PLAN).seal()
        with pytest.raises(FirehoseError, match=sentence):
            corpus.check()
        with pytest.raises(FirehoseError, match=sentence):
            corpus.task_sizes  # noqa: B018


def test_a_corpus_can_be_made_from_pictures_in_memory() -> None:
    corpus = PictureCorpus(Path("nowhere"), PLAN, 0, DATA)
    corpus.check()
    assert corpus.title == "Disjoint MNIST"
    assert sum(corpus.task_sizes) == len(DATA.train.classes)  # 1,000 of each task, or all
