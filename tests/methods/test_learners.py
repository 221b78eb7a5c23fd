"""Learners: what their gradients are, by torch alone, and how many posts a step sees."""

from typing import Any

import numpy as np
import pytest
import torch

from firehose.batch import Batch
from firehose.models.personal import Personal
from firehose.optim.gradient import Gradient
from small_methods import adam, buffer, learner, shown, step, stream
from small_models import awake, batch_of, tiny


def test_a_gem_projects_what_conflicts() -> None:
    model = awake(tiny("adapters"))
    fresh = batch_of([[1, 7, 8, 2], [1, 7, 9, 2], [1, 8, 8, 2], [1, 9, 7, 2]], [0, 1, 2, 3])
    old = batch_of([[1, 5, 6, 2], [1, 7, 5, 2], [1, 8, 5, 2], [1, 9, 5, 2]], [0, 1, 4, 5])
    held = buffer(posts=9)
    held.push(old, np.random.default_rng(0))
    rule = adam(model, 0.02)
    for _ in range(20):  # until what helps the one harms the other
        rule.step(model.gradient(Batch.join([fresh, old])))
    conflicts = 0
    a_gem = learner("a-gem", 4)
    for seed in range(30):
        found = a_gem.gradient(step(model, a_gem, fresh, held, seed))
        assert found is not None
        replayed = np.random.default_rng(seed)
        posts = fresh.select(replayed.choice(4, 2, replace=False, shuffle=False))
        gradient = dense(model, posts)
        reference = dense(model, held.sample(2, replayed))
        inner = gradient @ reference
        if inner < 0:
            conflicts += 1
            gradient = gradient - inner / (reference @ reference) * reference
            assert abs(float(gradient @ reference)) < 1e-4 * float(gradient.norm())
        assert torch.allclose(spread(model, found), gradient, atol=1e-6)
    assert 0 < conflicts < 30


def dense(model: Personal, batch: Batch) -> torch.Tensor:
    """The gradient by torch alone, users who are not in the batch included."""
    model.zero_grad()
    loss, taken = model.loss(batch)
    loss.backward()
    users = torch.zeros(len(model.users), model.plan.d_user)
    assert taken.vectors.grad is not None
    users[taken.rows] = taken.vectors.grad
    parts = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat([*parts, users.flatten()])


def spread(model: Personal, gradient: Gradient) -> torch.Tensor:
    users = torch.zeros(len(model.users), model.plan.d_user)
    users[gradient.rows] = gradient.users
    parts = [slope.flatten() for slope in gradient.shared if slope is not None]
    return torch.cat([*parts, users.flatten()])


STRONG = ("online-ewc", "der", "mir", "distill")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """The posts of each gradient that is computed."""
    batches: list[Batch] = []
    made = Personal.gradient

    def noted(model: Personal, batch: Batch) -> Gradient:
        batches.append(batch)
        return made(model, batch)

    monkeypatch.setattr(Personal, "gradient", noted)
    return batches


NAMES = ("online-only", "replay-only", "mixed-replay", "a-gem", *STRONG)
KINDS = {name: name for name in NAMES} | shown("add-a-learner.md")


@pytest.mark.parametrize("name", KINDS)
def test_a_step_sees_so_many_posts_in_all(name: str, taken: list[Batch]) -> None:
    model = tiny("adapters")
    chosen = learner(KINDS[name], 6, model)
    held = buffer(posts=9)
    (released,) = stream(1, posts=8)
    empty = released.select(np.zeros(0, np.int64))
    assert chosen.gradient(step(model, chosen, empty, held)) is None  # nothing to learn from
    held.push(chosen.to_remember(step(model, chosen, released)), np.random.default_rng(0))
    assert chosen.gradient(step(model, chosen, released, held)) is not None
    assert sum(map(len, taken)) == 6


@pytest.mark.parametrize("kind", ["mixed-replay", "a-gem"])
@pytest.mark.parametrize(
    ("step_size", "released", "held", "fresh", "remembered"),
    [
        (6, 8, 9, 3, 3),
        (5, 8, 9, 3, 2),
        (6, 8, 1, 3, 3),  # drawn with replacement
        (6, 3, 9, 3, 3),
        (6, 2, 9, 2, 4),  # too few are released
        (6, 1, 1, 1, 5),
        (6, 8, 0, 6, 0),  # nothing is remembered
        (6, 6, 0, 6, 0),
        (6, 4, 0, 4, 0),  # nor are there more
        (6, 0, 9, 0, 6),  # nothing is released: A-GEM has no gradient to correct
        (6, 0, 0, 0, 0),
    ],
)
def test_a_step_is_topped_up_from_the_other_half(
    kind: str,
    step_size: int,
    released: int,
    held: int,
    fresh: int,
    remembered: int,
    taken: list[Batch],
) -> None:
    model = tiny("adapters")
    posts = stream(1, posts=8)[0].select(np.arange(released))
    memory = buffer(posts=9)
    memory.push(stream(10, posts=1)[9].select(np.zeros(held, np.int64)), np.random.default_rng(0))
    chosen = learner(kind, step_size)
    found = chosen.gradient(step(model, chosen, posts, memory))
    if not fresh and (kind == "a-gem" or not remembered):
        assert found is None
        return
    times = [batch.time.tolist() for batch in taken]
    parts = [part for part in (fresh, remembered) if part]
    assert [len(part) for part in times] == (parts if kind == "a-gem" else [sum(parts)])
    every = [time for part in times for time in part]
    assert every[fresh:] == [9] * remembered  # the only post that is remembered
    assert len(set(every[:fresh])) == fresh  # different ones
    assert found is not None
    assert found.tokens == sum(len(batch.tokens) - len(batch) for batch in taken)


@pytest.mark.parametrize("kind", ["mixed-replay", "a-gem"])
def test_a_step_that_needs_no_more_draws_released_posts_first(
    kind: str, taken: list[Batch]
) -> None:
    model = tiny("adapters")
    first, (released,) = stream(1, posts=8, seed=1)[0], stream(1, posts=8)
    memory = buffer(posts=9)
    memory.push(first, np.random.default_rng(0))
    chosen = learner(kind, 6)
    chosen.gradient(step(model, chosen, released, memory, 3))
    generator = np.random.default_rng(3)
    fresh = released.select(generator.choice(8, 3, replace=False, shuffle=False))
    expected = Batch.join([fresh, memory.sample(3, generator)])
    assert Batch.join(taken).tokens.tolist() == expected.tokens.tolist()


def test_more_is_learned_from_what_costs_more(taken: list[Batch]) -> None:
    model = awake(tiny("adapters"))
    chosen: Any = learner(KINDS["WhatCostsMore"], 6, model, decay=0.5)
    first, (released,) = stream(1, posts=8, seed=1)[0], stream(1, posts=8)
    memory = buffer(posts=9)
    memory.push(first, np.random.default_rng(0))
    found = chosen.gradient(step(model, chosen, released, memory))
    assert [len(batch) for batch in taken] == [3, 3]
    losses = [model.loss(batch)[0].item() for batch in taken]
    assert chosen.costs == pytest.approx([(1 + loss) / 2 for loss in losses], rel=1e-5)
    expected = 0.5 * (dense(model, taken[0]) + dense(model, taken[1]))
    assert torch.allclose(spread(model, found), expected, atol=1e-6)
    chosen.restore({"costs": np.array([1.0, 5.0])})
    taken.clear()
    chosen.gradient(step(model, chosen, released, memory))
    assert [len(batch) for batch in taken] == [1, 5]


def test_hard_first_takes_the_posts_that_cost_most(monkeypatch: pytest.MonkeyPatch) -> None:
    model = awake(tiny("adapters"))
    hard = learner(KINDS["HardFirst"], 4, model)
    (released,) = stream(1, posts=8)
    paid = model.pay(released)
    hardest = set(np.argsort(-paid.nats / paid.words)[:4].tolist())
    taken: list[Batch] = []
    monkeypatch.setattr(model, "gradient", taken.append)
    hard.gradient(step(model, hard, released))
    assert set(taken[0].time.tolist()) == hardest
