"""Snapshots: what was saved comes back to the bit."""

import numpy as np
import pytest
import torch

from firehose.methods.snapshot import Snapshot, virtual_step
from firehose.models.perceptron import Perceptron
from firehose.models.personal import Personal
from firehose.optim.gradient import Gradient
from firehose.optim.rule import UpdateRule
from small_methods import adam, learner, same, sgd, step, stored, stream
from small_models import awake, batch_of, tiny

POSTS = [[1, 4, 5, 2], [1, 7, 2]]


def both(model: Personal, rule: UpdateRule) -> dict[str, object]:
    return stored({"model": model.state(), "rule": rule.state()})


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_after_a_virtual_step_all_is_as_it_was_to_the_bit(kind: str) -> None:
    model = awake(tiny("adapters"))
    rule: UpdateRule = adam(model, 0.1) if kind == "adam" else sgd(model, 0.1)
    for number in range(3):
        rule.begin_round()
        rule.step(model.gradient(batch_of(POSTS, [number, 5])))
    one = step(model, learner("online-only", 4), stream(1)[0], rule=rule)
    for seed in range(20):
        users = np.random.default_rng(seed).choice(9, 2, replace=False).tolist()
        gradient = model.gradient(batch_of(POSTS, users))
        before = both(model, rule)
        with virtual_step(one, gradient):
            assert not same(both(model, rule), before)
        assert same(both(model, rule), before)


def test_a_virtual_step_goes_back_also_where_something_fails() -> None:
    model = awake(tiny("adapters"))
    rule = adam(model, 0.1)
    one = step(model, learner("online-only", 4), stream(1)[0], rule=rule)
    gradient = model.gradient(batch_of(POSTS, [3, 5]))
    before = both(model, rule)
    with pytest.raises(KeyError), virtual_step(one, gradient):
        raise KeyError
    assert same(both(model, rule), before)


@pytest.mark.parametrize("with_moments", [True, False])
def test_several_steps_with_the_same_users_go_back_in_one(with_moments: bool) -> None:
    model = awake(tiny("adapters"))
    rule = adam(model, 0.1)
    rule.step(model.gradient(batch_of(POSTS, [3, 5])))
    snapshot = Snapshot(rule, with_moments)
    before = both(model, rule)
    snapshot.save()
    for users in ([3, 5], [5, 6], [3, 5]):
        gradient = model.gradient(batch_of(POSTS, users))
        snapshot.save_rows(gradient.rows)
        rule.step(gradient)
    after = both(model, rule)
    snapshot.restore()
    now = both(model, rule)
    assert same(now["model"], before["model"])
    assert same(now["rule"], before["rule"] if with_moments else after["rule"])


def test_users_who_are_new_in_a_step_that_is_taken_back_stay_where_they_began() -> None:
    model = awake(tiny("adapters"))
    rule = adam(model, 0.1)
    snapshot = Snapshot(rule, with_moments=True)
    starts = {}
    for number, users in enumerate(([3, 20], [20, 21])):
        gradient = model.gradient(batch_of(POSTS, users))
        starts[users[1]] = model.users.vectors[9 + number].clone()
        if not number:
            snapshot.save()
        snapshot.save_rows(gradient.rows)
        rule.step(gradient)
    snapshot.restore()
    assert model.users.numbers().tolist() == [*range(9), 20, 21]
    for row, vector in enumerate(starts.values(), 9):
        assert torch.equal(model.users.vectors[row], vector)
    total = model.users.vectors[:11].double().sum(0)
    assert torch.allclose(model.users.total, total, rtol=0, atol=1e-6)


def test_a_model_without_users_goes_back_too() -> None:
    model = Perceptron(3, 2, ())
    rule = adam(model, 0.1)
    rule.step(Gradient.of_shared(1.0, [torch.ones(8)], 1))
    before, moments = model.weights.detach().clone(), stored(rule.state())
    one = step(model, learner("online-only", 4), stream(1)[0], rule=rule)
    with virtual_step(one, Gradient.of_shared(1.0, [torch.ones(8)], 1)):
        assert (model.weights != before).all()
    assert torch.equal(model.weights.detach(), before)
    assert same(stored(rule.state()), moments)
