"""Optimizers: ConGraD by brute force, and what Online GD does with the rate."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from firehose.batch import Batch
from firehose.methods.learners import Learner
from firehose.methods.step import Setup, Step, Steps
from firehose.models.personal import Personal
from firehose.optim.gradient import Gradient
from firehose.plugins import Choice
from small_methods import (
    Parts,
    adam,
    buffer,
    congrad,
    learner,
    online_gd,
    optimizer,
    same,
    shown,
    step,
    stored,
    stream,
)
from small_models import awake, tiny


def flat(model: Personal) -> torch.Tensor:
    weights = [weight.detach().flatten() for weight in model.parameters()]
    return torch.cat([*weights, model.users.vectors[: len(model.users)].flatten()])


def test_without_a_validation_buffer_congrad_is_online_gd() -> None:
    found = []
    for kind in ("online-gd", "congrad"):
        model = tiny("adapters")
        rule = adam(model, 0.01)
        made = online_gd(rule) if kind == "online-gd" else congrad(rule, validation=0)
        generator = np.random.default_rng(1)
        game = Parts(model, learner("mixed-replay", 4), made, buffer(posts=9), generator)
        game.play(stream())
        found.append(flat(model))
    assert torch.equal(found[0], found[1])


class Scripted(Learner):
    """A learner whose steps are known in advance."""

    def __init__(self, batches: list[Batch]) -> None:
        super().__init__(Choice(), Setup())
        self.batches = iter(batches)

    def gradient(self, step: Step) -> Gradient | None:
        batch = next(self.batches, None)
        return None if batch is None else step.model.gradient(batch)


@pytest.mark.parametrize("allow_no_step", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_congrad_keeps_what_brute_force_picks(allow_no_step: bool, seed: int) -> None:
    batches = stream(4, seed=seed)
    mine, model = (awake(tiny("adapters", seed=seed)) for _ in range(2))
    rule = adam(mine, 0.05, warmup=1)
    chosen = congrad(rule, 4, validation=9, allow_no_step=allow_no_step)
    chosen.admit(stream(3, seed=seed + 50)[0], np.random.default_rng(seed))
    held = chosen.validation.sample(4, np.random.default_rng(7))
    # By brute force: every candidate of a model of its own.
    candidates, scores = [flat(model)], [model.cost(held)]
    by_hand = adam(model, 0.05)
    for batch in batches:
        by_hand.step(model.gradient(batch))
        candidates.append(flat(model))
        scores.append(model.cost(held))
    first = 0 if allow_no_step else 1
    best = first + int(np.argmin(scores[first:]))
    steps = chosen.descend(step(mine, Scripted(batches), batches[0], generator=7, rule=rule))
    assert steps.kept == best
    assert steps.taken == 4
    assert torch.equal(flat(mine), candidates[best])
    assert list(steps.losses)[first:] == scores[first:]
    assert torch.allclose(
        mine.users.mean(), mine.users.vectors[: len(mine.users)].mean(0), atol=1e-5
    )


@pytest.mark.parametrize("restore_moments", [True, False])
def test_adam_s_moments_go_back_if_asked(restore_moments: bool) -> None:
    model = awake(tiny("adapters"))
    rule = adam(model, 10.0)  # every step is a disaster
    chosen = congrad(rule, restore_moments=restore_moments)
    chosen.admit(stream()[0], np.random.default_rng(0))
    before = [moment.clone() for moment in rule.moments()]
    rows = rule.rows["steps"].state().clone()
    start = flat(model)
    steps = chosen.descend(step(model, learner("online-only", 4), stream()[1], rule=rule))
    assert (steps.taken, steps.kept) == (3, 0)
    assert torch.equal(flat(model), start)
    now = rule.moments()
    assert all(map(torch.equal, before, now)) is restore_moments
    assert torch.equal(rule.rows["steps"].state(), rows) is restore_moments


def test_the_rate_warms_up_by_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("adapters")
    rule = adam(model, 0.1, warmup=4)
    rates: list[float] = []
    monkeypatch.setattr(rule, "_step_rows", lambda *row: rates.append(row[-1]))
    parts = (learner("online-only", 4), online_gd(rule, 2), buffer(posts=9))
    Parts(model, *parts, np.random.default_rng(0)).play(stream(6))
    by_round = [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]
    assert rates == pytest.approx([rate for rate in by_round for _ in range(2)])


def test_a_candidate_s_cost_is_the_loss_without_dropout() -> None:
    model = awake(tiny("adapters")).eval()
    (batch,) = stream(1)
    loss, _ = model.loss(batch)
    assert model.cost(batch) == pytest.approx(loss.item(), rel=1e-5)
    paid = model.pay(batch)
    by_hand = np.mean(paid.nats / (batch.lengths - 1))
    assert model.cost(batch) == pytest.approx(float(by_hand), rel=1e-5)
    assert not math.isnan(by_hand)


@pytest.mark.parametrize("rate", [0.01, 10.0])
def test_steps_are_taken_while_they_help(rate: float) -> None:
    (kind,) = shown("add-an-optimizer.md").values()
    model = awake(tiny("adapters"))
    rule = adam(model, rate)
    chosen = optimizer(kind, rule, steps=4)
    (released,) = stream(1)
    before, moments = flat(model), stored(rule.state())
    cost = model.cost(released)
    steps = chosen.descend(step(model, learner("online-only", 4), released, rule=rule))
    assert steps.losses[0] == cost and len(steps.losses) == steps.taken + 1
    assert model.cost(released) == steps.losses[steps.kept] == min(steps.losses)
    if rate < 1:  # all of them help
        assert (steps.taken, steps.kept) == (4, 4)
    else:  # the first one is a disaster
        assert (steps.taken, steps.kept) == (1, 0)
        assert torch.equal(flat(model), before)
        assert same(stored(rule.state()), {**moments, "rounds": 1})
    nothing = released.select(np.zeros(0, np.int64))
    assert chosen.descend(step(model, learner("replay-only", 4), nothing, rule=rule)) == Steps()


@pytest.mark.parametrize("seed", range(3))
def test_congrad_forgets_what_it_holds_back(seed: int) -> None:
    model = tiny("adapters")
    chosen = congrad(adam(model, 0.01), validation=30)
    for batch in stream(5, seed=seed):
        chosen.admit(batch, np.random.default_rng(0))
    held = Counter(chosen.validation.all().user.tolist())
    assert chosen.forget(1) == held.pop(1, 0)
    assert Counter(chosen.validation.all().user.tolist()) == held
    assert chosen.forget(1) == 0 == online_gd(chosen.rule).forget(1)
