"""Adam: on the shared weights as torch's, on the users row by row."""

import numpy as np
import pytest
import torch

from firehose.models.adam import BETAS, EPSILON, Adam, step_rows
from firehose.models.users import Users
from small_models import awake, batch_of, tiny


def test_rows_move_as_if_each_had_an_adam_of_its_own() -> None:
    torch.manual_seed(0)
    users = Users(3)
    users.take(np.arange(4), learn=True)
    alone = [torch.zeros(3, requires_grad=True) for _ in range(4)]
    adams = [torch.optim.Adam([row], lr=0.1, betas=BETAS, eps=EPSILON) for row in alone]
    for present in ([0, 2], [2, 3], [0, 1, 2, 3], [3]):
        slopes = torch.randn(len(present), 3)
        step_rows(users, torch.tensor(present), slopes, 0.1)
        for number, slope in zip(present, slopes, strict=True):
            alone[number].grad = slope.clone()
            adams[number].step()
    for row, expected in enumerate(alone):
        assert torch.allclose(users.vectors[row], expected.detach(), atol=1e-6)
    assert torch.allclose(users.mean(), users.vectors[:4].mean(0), atol=1e-6)


def test_who_is_silent_does_not_move() -> None:
    model = awake(tiny("adapters"))
    adam = Adam(model, 0.1)
    before = model.users.vectors.clone()
    for _ in range(3):
        adam.zero()
        loss, taken = model.loss(batch_of([[1, 4, 5, 2], [1, 7, 2]], [3, 5]))
        loss.backward()
        adam.step([taken])
    moved = (model.users.vectors != before).any(1).nonzero().flatten().tolist()
    assert moved == [3, 5]


def test_the_gradient_is_clipped_over_weights_and_users_together() -> None:
    model = awake(tiny("adapters"))
    batch = batch_of([[1, 4, 5, 2], [1, 7, 2]], [3, 5])
    loss, taken = model.loss(batch)
    loss.backward()
    assert taken.vectors.grad is not None
    parts = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.cat([part.flatten() for part in [*parts, taken.vectors.grad]]).norm().item()
    slope = model.shared.output_bias.grad
    assert slope is not None
    expected = slope.clone() * 0.01 / norm
    adam = Adam(model, 0.1, clip=0.01)
    assert adam.step([taken]) == pytest.approx(norm, rel=1e-5)
    assert torch.allclose(slope, expected, rtol=1e-3)


def test_two_losses_of_the_same_user_add_up() -> None:
    first, second = [1, 4, 5, 2], [1, 7, 2]
    vectors = []
    for batches in (
        [batch_of([first, second], [3, 3])],
        [batch_of([p], [3]) for p in (first, second)],
    ):
        model = awake(tiny("adapters"))
        adam = Adam(model, 0.1, clip=1e9)
        parts = [model.loss(batch) for batch in batches]
        (torch.stack([loss for loss, _ in parts]).mean()).backward()
        adam.step([taken for _, taken in parts])
        vectors.append(model.users.vectors[3])
    assert torch.allclose(vectors[0], vectors[1], atol=1e-5)


def test_learning_makes_the_batch_cheaper() -> None:
    model = tiny("adapters")
    batch = batch_of([[1, 4, 5, 2], [1, 9, 2], [1, 7, 7, 7, 2]])
    adam = Adam(model, 1e-2)
    before = model.pay(batch).nats.sum()
    for _ in range(30):
        adam.zero()
        loss, taken = model.loss(batch)
        loss.backward()
        adam.step([taken])
    assert model.pay(batch).nats.sum() < before / 2
