"""The contract of update rules: what they refuse, what they keep, and for whom."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from firehose.errors import FirehoseError
from firehose.models.model import Model
from firehose.models.perceptron import Perceptron
from firehose.models.personal import Personal
from firehose.optim.clipping import NotFinite
from firehose.optim.gradient import Gradient
from firehose.optim.rule import RULES, UpdateRule
from small_methods import adam, same, sgd, stored
from small_models import awake, batch_of, tiny

MAKERS: dict[str, Callable[[Model, float], UpdateRule]] = {"adam": adam, "sgd": sgd}
every_rule = pytest.mark.parametrize("kind", MAKERS)
POSTS = [[1, 4, 5, 2], [1, 7, 2]]


def test_every_rule_is_tested() -> None:
    assert list(MAKERS) == list(RULES.built_in)


def both(model: Personal, rule: UpdateRule) -> dict[str, object]:
    """The states of model and rule, as a checkpoint gives them back."""
    return stored({"model": model.state(), "rule": rule.state()})


@every_rule
def test_a_rule_that_is_stored_goes_on_to_the_same_bits(kind: str) -> None:
    one, other = awake(tiny("adapters")), tiny("adapters", seed=5)
    rule, again = MAKERS[kind](one, 0.05), MAKERS[kind](other, 0.05)
    for users in ([3, 5], [5, 11]):
        rule.begin_round()
        rule.step(one.gradient(batch_of(POSTS, users)))
    again.step(other.gradient(batch_of(POSTS, [1, 2])))  # what it was before does not matter
    state = both(one, rule)
    other.restore(stored(one.state()))
    again.restore(stored(rule.state()))
    assert same(both(other, again), state)
    for users in ([11, 12], [3, 5]):
        for model, each in ((one, rule), (other, again)):
            each.begin_round()
            each.step(model.gradient(batch_of(POSTS, users)))
    assert same(both(one, rule), both(other, again))
    assert not same(both(one, rule), state)


@every_rule
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["loss", "shared", "users"])
def test_what_is_not_finite_changes_nothing(kind: str, value: float, where: str) -> None:
    model = awake(tiny("adapters"))
    rule = MAKERS[kind](model, 0.05)
    rule.step(model.gradient(batch_of(POSTS, [3, 5])))
    gradient = model.gradient(batch_of(POSTS, [3, 5]))
    before = both(model, rule)
    if where == "loss":
        gradient.loss = value
    else:
        part = gradient.users if where == "users" else gradient.shared[0]
        assert part is not None
        part.view(-1)[0] = value
    with pytest.raises(NotFinite, match="a loss of"):
        rule.step(gradient)
    assert same(both(model, rule), before)


@every_rule
def test_what_is_kept_for_a_row_follows_its_user_and_a_new_user_starts_afresh(kind: str) -> None:
    """A model that forgot a user goes on as one that never met the user."""
    generator = torch.Generator().manual_seed(0)
    steps = [
        (users, 0.01 * torch.randn(len(users), 4, generator=generator))  # too short to be clipped
        for users in ([0, 1, 2], [0, 2], [2, 7, 0])
    ]
    found = []
    for forgets in (True, False):
        model = tiny("adapters")
        rule = MAKERS[kind](model, 0.05)
        for number, (users, slopes) in enumerate(steps):
            if number == 2 and forgets:
                assert model.users.forget(1)  # the row of 2 moves into the gap, that of 7 is new
            met = [place for place, user in enumerate(users) if forgets or user != 1]
            model.users.take(np.array(users)[met], learn=True)
            rows = torch.from_numpy(model.users.rows(np.array(users)[met]))
            rule.step(by_users(model, rows, slopes[met]))
        rows = torch.from_numpy(model.users.rows(np.array([0, 2, 7])))
        found.append([model.users.vectors[rows], *(state[rows] for state in rule.row_states())])
    vectors, *moments = zip(*found, strict=True)
    assert all(torch.equal(one, other) for one, other in moments)
    # A new user begins at the mean, whose rounding is another where somebody was forgotten.
    assert torch.allclose(vectors[0], vectors[1], atol=1e-6)


def by_users(model: Personal, rows: torch.Tensor, slopes: torch.Tensor) -> Gradient:
    """A gradient of users' vectors alone."""
    return Gradient(1.0, [None for _ in model.parameters()], rows, slopes, 1)


@every_rule
def test_vectors_can_move_alone(kind: str) -> None:
    model = awake(tiny("adapters"))
    before = [weight.detach().clone() for weight in model.parameters()]
    vectors = model.users.vectors.clone()
    MAKERS[kind](model, 0.1).step(by_users(model, torch.tensor([4]), torch.ones(1, 4)))
    assert all(map(torch.equal, before, model.parameters()))
    assert (model.users.vectors != vectors).any(1).nonzero().flatten().tolist() == [4]


@every_rule
def test_a_model_need_not_know_users(kind: str) -> None:
    model = Perceptron(3, 2, ())
    rule, again = MAKERS[kind](model, 0.1), MAKERS[kind](Perceptron(3, 2, ()), 0.1)
    before = model.weights.detach().clone()
    assert rule.row_states() == []
    assert rule.step(Gradient.of_shared(1.0, [torch.ones(8)], 1)) == pytest.approx(8**0.5)
    assert (model.weights < before).all()
    again.restore(stored(rule.state()))
    assert same(stored(again.state()), stored(rule.state()))


def test_sgd_moves_the_rows_of_users_by_their_own_rate() -> None:
    model = awake(tiny("adapters"))
    gradient = model.gradient(batch_of(POSTS, [3, 5]))
    vectors, weights = model.users.vectors.clone(), [w.detach().clone() for w in model.parameters()]
    norm = gradient.norm()
    assert sgd(model, 0.1, user_rate=20).step(gradient) == norm
    expected = vectors.clone()
    expected[[3, 5]] -= 2.0 * gradient.users
    assert torch.allclose(model.users.vectors, expected)
    assert torch.allclose(model.users.mean(), model.users.vectors[:9].mean(0), atol=1e-6)
    for old, weight, slope in zip(weights, model.parameters(), gradient.shared, strict=True):
        assert slope is not None
        assert torch.allclose(weight.detach(), old - 0.1 * slope)


def test_sgd_clips_only_if_asked() -> None:
    for clip, moved in ((None, 3.0), (5.0, 3.0), (0.5, 0.5)):
        model = Perceptron(3, 2, ())
        before = model.weights.detach().clone()
        slope = torch.zeros(8)
        slope[2] = 3.0
        assert sgd(model, 1.0, clip=clip).step(Gradient.of_shared(1.0, [slope], 1)) == 3.0
        step = before - model.weights.detach()
        assert float(step[2]) == pytest.approx(moved, rel=1e-5)
        assert float(step.abs().sum()) == pytest.approx(moved, rel=1e-5)


def test_adam_counts_rounds_for_its_warm_up_and_keeps_the_count() -> None:
    model = Perceptron(3, 2, ())
    rule, again = (adam(model, 0.1, warmup=4) for _ in range(2))
    for _ in range(3):
        rule.begin_round()
    again.restore(stored(rule.state()))
    before = model.weights.detach().clone()
    again.step(Gradient.of_shared(1.0, [torch.ones(8)], 1))  # its first step is the rate
    assert torch.allclose(before - model.weights.detach(), torch.full((8,), 0.075), atol=1e-6)


@every_rule
def test_settings_that_are_unknown_are_refused(kind: str) -> None:
    assert RULES.settings(kind).kind == kind
    with pytest.raises(FirehoseError, match=r"Unknown key 'rat' in the update rule .* 'rate'"):
        RULES.settings({"kind": kind, "rat": 3})
    with pytest.raises(FirehoseError, match="greater than 0"):
        RULES.settings({"kind": kind, "rate": 0})
