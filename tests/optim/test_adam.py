"""Adam: on the shared weights as torch's, on the users row by row."""

import numpy as np
import pytest
import torch

from firehose.optim.adam import BETAS, EPSILON
from firehose.optim.gradient import Gradient
from small_methods import adam
from small_models import awake, batch_of, tiny


def test_rows_move_as_if_each_had_an_adam_of_its_own() -> None:
    torch.manual_seed(0)
    model = tiny("adapters")
    users, rule = model.users, adam(model, 0.1, clip=1e9)
    users.take(np.arange(4), learn=True)
    alone = [torch.zeros(4, requires_grad=True) for _ in range(4)]
    adams = [torch.optim.Adam([row], lr=0.1, betas=BETAS, eps=EPSILON) for row in alone]
    for present in ([0, 2], [2, 3], [0, 1, 2, 3], [3]):
        slopes = torch.randn(len(present), 4)
        shared: list[torch.Tensor | None] = [None for _ in model.parameters()]
        rule.step(Gradient(1.0, shared, torch.tensor(present), slopes, 1))
        for number, slope in zip(present, slopes, strict=True):
            alone[number].grad = slope.clone()
            adams[number].step()
    for row, expected in enumerate(alone):
        assert torch.allclose(users.vectors[row], expected.detach(), atol=1e-6)
    assert torch.allclose(users.mean(), users.vectors[:4].mean(0), atol=1e-6)


def test_who_is_silent_does_not_move() -> None:
    model = awake(tiny("adapters"))
    rule = adam(model, 0.1)
    before = model.users.vectors.clone()
    for _ in range(3):
        rule.step(model.gradient(batch_of([[1, 4, 5, 2], [1, 7, 2]], [3, 5])))
    moved = (model.users.vectors != before).any(1).nonzero().flatten().tolist()
    assert moved == [3, 5]


def flat(gradient: Gradient) -> torch.Tensor:
    """Everything in one vector; who is not concerned adds zeros."""
    users = torch.zeros(20, gradient.users.shape[1])
    users[gradient.rows] = gradient.users
    parts = [slope.flatten() for slope in gradient.shared if slope is not None]
    return torch.cat([*parts, users.flatten()])


def test_a_gradient_is_that_of_the_loss() -> None:
    model = awake(tiny("adapters"))
    batch = batch_of([[1, 4, 5, 2], [1, 7, 2]], [3, 5])
    gradient = model.gradient(batch)
    loss, taken = model.loss(batch)
    loss.backward()
    assert gradient.loss == loss.item()
    for parameter, slope in zip(model.parameters(), gradient.shared, strict=True):
        assert slope is not None and parameter.grad is not None
        assert torch.allclose(slope, parameter.grad)
    assert taken.vectors.grad is not None
    assert torch.allclose(gradient.users, taken.vectors.grad)
    assert gradient.rows.tolist() == [3, 5]
    assert gradient.tokens == 5


def test_gradients_add_and_multiply_as_vectors() -> None:
    model = awake(tiny("adapters"))
    one = model.gradient(batch_of([[1, 4, 5, 2], [1, 7, 2]], [3, 5]))
    other = model.gradient(batch_of([[1, 6, 2], [1, 8, 2]], [5, 8]))
    first, second = flat(one), flat(other)
    assert one.dot(other) == pytest.approx(float(first @ second), rel=1e-4)
    assert one.norm() == pytest.approx(float(first.norm()), rel=1e-5)
    one.add(other, -0.7)
    assert torch.allclose(flat(one), first - 0.7 * second, atol=1e-6)
    one.scale(3.0)
    assert torch.allclose(flat(one), 3 * (first - 0.7 * second), atol=1e-5)


def test_the_gradient_is_clipped_over_weights_and_users_together() -> None:
    model = awake(tiny("adapters"))
    gradient = model.gradient(batch_of([[1, 4, 5, 2], [1, 7, 2]], [3, 5]))
    whole = flat(gradient)
    rule = adam(model, 0.1, clip=0.01)
    assert rule.step(gradient) == pytest.approx(float(whole.norm()), rel=1e-5)
    assert torch.allclose(flat(gradient), whole * 0.01 / whole.norm(), rtol=1e-3, atol=1e-9)


def test_learning_makes_the_batch_cheaper() -> None:
    model = tiny("adapters")
    batch = batch_of([[1, 4, 5, 2], [1, 9, 2], [1, 7, 7, 7, 2]])
    rule = adam(model, 1e-2)
    before = model.pay(batch).nats.sum()
    for _ in range(30):
        rule.step(model.gradient(batch))
    assert model.pay(batch).nats.sum() < before / 2
