"""Averages of weights: by hand, and against a plain loop over all rows."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from firehose.models.perceptron import Perceptron
from firehose.models.users import Users
from firehose.optim.average import Average, RowAverage, decay_of
from small_models import awake, batch_of, tiny


class Scalar:
    """A model of one weight, without users."""

    users = None

    def __init__(self, value: float) -> None:
        self.weight = nn.Parameter(torch.tensor(value))

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield "weight", self.weight

    def parameters(self) -> Iterator[nn.Parameter]:
        yield self.weight

    def put(self, value: float) -> None:
        self.weight.data.fill_(value)


def test_a_horizon_in_steps_is_approached_as_a_third_of_the_steps_so_far() -> None:
    for n in range(1497):
        assert decay_of(500, n + 1) == pytest.approx((1 + n) / (4 + n))
    assert decay_of(500, 1498) == decay_of(500, 10**6) == pytest.approx(0.998)
    assert decay_of(0.25, 1) == pytest.approx(1 / 5)
    assert decay_of(0.25, 1000) == pytest.approx(250 / 251)


def test_the_average_of_a_scalar() -> None:
    model = Scalar(7.0)
    average = Average(model, 0.5)  # decays 1/3, 2/4, 3/5
    for value, expected in ((1.0, 7 / 3 + 2 / 3), (5.0, 3 / 2 + 5 / 2), (9.0, 4 * 0.6 + 9 * 0.4)):
        model.put(value)
        average.follow(1)
        assert float(average.shared[0]) == pytest.approx(expected)
        assert float(model.weight.detach()) == value
    several = Average(model, 0.5)
    model.put(0.0)
    several.follow(0)  # no step, no time
    several.follow(3)
    assert float(several.shared[0]) == pytest.approx(9 / 3 * 2 / 4 * 3 / 5)
    assert several.steps == 3


MOVES = st.sampled_from(["put", "put", "put", "follow", "follow", "add", "forget"])


@settings(max_examples=40, deadline=None)
@given(moves=st.lists(MOVES, min_size=5, max_size=60), seed=st.integers(0, 99))
def test_rows_that_wait_are_averaged_as_by_a_loop_over_all(moves: list[str], seed: int) -> None:
    generator = np.random.default_rng(seed)
    users = Users(2)
    users.take(np.arange(3), learn=True)
    users.put(torch.arange(3), torch.from_numpy(generator.normal(size=(3, 2))).float())
    lazy = RowAverage(users)
    dense = {user: users.take(np.array([user]), learn=False).vectors[0] for user in range(3)}
    for number, move in enumerate(moves):
        known = users.numbers()
        if move == "put" and len(known):
            rows = torch.from_numpy(generator.choice(len(known), 1 + len(known) // 2, False))
            users.put(rows, torch.from_numpy(generator.normal(size=(len(rows), 2))).float())
        elif move == "follow":
            decay = float(generator.uniform(0.3, 0.999))
            for user, row in zip(known.tolist(), range(len(known)), strict=True):
                dense[user] = decay * dense[user] + (1 - decay) * users.vectors[row]
            lazy.follow(decay)
        elif move == "add":
            taken = users.take(np.array([100 + number]), learn=True)
            dense[100 + number] = taken.vectors[0].detach().clone()
        elif move == "forget" and len(known):
            users.forget(int(known[0]))
            del dense[int(known[0])]
    numbers = users.numbers().tolist()
    assert sorted(numbers) == sorted(dense)
    found = lazy.now(torch.arange(len(users)))
    for row, user in enumerate(numbers):
        assert torch.allclose(found[row], dense[user], atol=1e-4)
    total = sum(dense.values(), torch.zeros(2))
    assert torch.allclose(lazy.total.float(), total, atol=1e-3)
    assert not lazy.values[len(users) :].any() and not lazy.stamps.values[len(users) :].any()


def test_a_model_predicts_with_an_average_and_is_itself_again_afterwards() -> None:
    model, other = awake(tiny("adapters", seed=1)).eval(), awake(tiny("adapters", seed=2)).eval()
    posts = batch_of([[1, 5, 6, 2], [1, 7, 2], [1, 8, 2]], [0, 3, 77])  # 77 is nobody yet
    averaged, raw = model.pay(posts).nats.tolist(), other.pay(posts).nats.tolist()
    average = Average(model, 50)
    model.load_state_dict(other.state_dict())
    model.users.put(torch.arange(9), other.users.vectors[:9])
    assert model.pay(posts).nats == pytest.approx(raw)
    exact, total = model.pay(posts).nats.tolist(), model.users.total.clone()
    for users in (posts.user, None):
        with average.in_use(users):
            assert model.pay(posts).nats == pytest.approx(averaged)
            with average.in_use(users):  # already
                assert model.pay(posts).nats == pytest.approx(averaged)
        assert model.pay(posts).nats.tolist() == exact
    with pytest.raises(KeyError), average.in_use():
        raise KeyError
    assert model.pay(posts).nats.tolist() == exact
    assert torch.equal(model.users.total, total)
    average.adopt(np.array([0, 3]), [torch.tensor([4])])
    assert model.pay(posts.select(np.arange(2))).nats == pytest.approx(averaged[:2])
    assert torch.equal(model.users.vectors[5], other.users.vectors[5])


def test_a_perceptron_predicts_with_an_average() -> None:
    model, other = Perceptron(4, 3, (5,), 1), Perceptron(4, 3, (5,), 2)
    posts = batch_of([[9, 200, 3, 4, 1], [90, 2, 30, 40, 2]])
    averaged, raw = model.pay(posts).nats.tolist(), other.pay(posts).nats.tolist()
    average = Average(model, 50)
    model.restore(other.state())
    assert model.pay(posts).nats.tolist() == raw
    with average.in_use():
        assert model.pay(posts).nats.tolist() == averaged
    assert model.pay(posts).nats.tolist() == raw


def test_without_rows_the_users_are_those_of_the_model() -> None:
    model = awake(tiny("adapters"))
    average = Average(model, 50, rows=False)
    before = model.users.vectors.clone()
    model.users.put(torch.arange(9), torch.randn(9, 4))
    now = model.users.vectors.clone()
    assert not torch.equal(before, now)
    with average.in_use():
        assert torch.equal(model.users.vectors, now)
    assert "average" not in average.state()["rows"]
