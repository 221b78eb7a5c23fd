"""Tasks made of pictures: as they are defined, for every seed and order."""

import numpy as np
import pytest

from firehose.data.pictures.tasks import Benchmark, Order, make_tasks
from firehose.models.perceptron import labels
from small_pictures import DATA, PERMUTED, SMALL


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
