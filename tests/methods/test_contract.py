"""Learners, optimizers and the round they make: closed forms, and one contract for all."""

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firehose.batch import Batch
from firehose.game.round import play
from firehose.methods.buffers.all import make_buffer
from firehose.methods.buffers.storage import Buffer, BufferPlan
from firehose.methods.learners.all import AGEM, Learner, MixedReplay, OnlineOnly
from firehose.methods.learners.all import LEARNERS as BUILT_IN
from firehose.methods.optimizers.all import ConGraD, OnlineGD, Optimizer
from firehose.models.model import Model
from firehose.models.personal import Personal
from firehose.optim.adam import Adam
from firehose.optim.gradient import Gradient
from small_models import awake, batch_of, tiny

LONGEST = 8


def stream(rounds: int = 6, posts: int = 4, seed: int = 0) -> list[Batch]:
    generator = np.random.default_rng(seed)
    made = []
    for number in range(rounds):
        texts = [
            [1, *generator.integers(3, 23, generator.integers(1, 6)).tolist(), 2]
            for _ in range(posts)
        ]
        users = generator.integers(0, 3 + number, posts).tolist()
        batch = batch_of(texts, users)
        time = number * posts + np.arange(posts)
        made.append(Batch(batch.tokens, batch.offsets, batch.user, time, batch.words))
    return made


def memory(size: int = 9) -> Buffer:
    return make_buffer(BufferPlan(strategy="reservoir", posts=size), LONGEST)


def congrad(model: Personal, steps: int = 3, validation: int = 5, **options: bool) -> ConGraD:
    held = make_buffer(BufferPlan(strategy="fifo", posts=validation), LONGEST)
    return ConGraD(Adam(model, 0.01), steps, held, posts=4, **options)


def optimizers(model: Personal) -> dict[str, Optimizer]:
    return {"online-gd": OnlineGD(Adam(model, 0.01), 3), "congrad": congrad(model)}


def flat(model: Model) -> torch.Tensor:
    parts = [p.detach().flatten() for p in model.parameters()]
    return torch.cat([*parts, model.users.vectors[: len(model.users)].flatten()])


def from_the_docs() -> Callable[[int], Learner]:
    """The learner that the page about learners shows."""
    page = (Path(__file__).parents[2] / "docs" / "add-a-learner.md").read_text(encoding="utf-8")
    found = re.search(r"```python title=\S+\n(.*?)```", page, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    made: Callable[[int], Learner] = names["HardFirst"]
    return made


LEARNERS: dict[str, Callable[[int], Learner]] = {**BUILT_IN, "from-the-docs": from_the_docs()}
PAIRS = list(itertools.product(LEARNERS, ["online-gd", "congrad"]))


@pytest.mark.parametrize(("learner", "optimizer"), PAIRS)
def test_every_learner_goes_with_every_optimizer(learner: str, optimizer: str) -> None:
    results = []
    for _ in range(2):
        model = tiny("adapters")
        chosen, held = optimizers(model)[optimizer], memory()
        rounds = list(
            play(
                stream(12),
                model,
                LEARNERS[learner](4),
                chosen,
                held,
                np.random.default_rng(1),
            )
        )
        assert len(rounds) == 12
        released = sum(r.released for r in rounds)
        waiting = len(chosen.validation) if isinstance(chosen, ConGraD) else 0
        assert released + waiting == 12 * 4  # nothing is lost on the way
        assert len(held) == 9
        assert all(0 <= r.steps.kept <= r.steps.taken <= 3 for r in rounds)
        assert all(set(r.seconds) == {"pay", "admit", "descend", "remember"} for r in rounds)
        results.append((flat(model), [r.paid.nats.tolist() for r in rounds]))
    assert torch.equal(results[0][0], results[1][0])  # one seed, one result
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize(("learner", "optimizer"), PAIRS)
def test_the_loss_is_paid_before_anything_is_learned_from_the_batch(
    learner: str, optimizer: str
) -> None:
    model = tiny("adapters")
    parts = (LEARNERS[learner](4), optimizers(model)[optimizer], memory())
    batches = stream(8)
    before = model.pay(batches[0]).nats.tolist()
    generator = np.random.default_rng(1)
    for number, played in enumerate(play(batches, model, *parts, generator)):
        assert played.paid.nats.tolist() == before
        if number + 1 < len(batches):
            before = model.pay(batches[number + 1]).nats.tolist()


def test_a_batch_s_words_do_not_leak_into_its_own_prediction() -> None:
    """Two streams that differ in the words of one batch: what came before, and the prediction of
    the same first word in it, cost the same."""
    paid = []
    for word in (5, 17):
        model = tiny("adapters")
        batches = stream(4)
        changed = batches[2]
        changed.tokens[1:3] = (9, word)
        generator = np.random.default_rng(1)
        rounds = play(
            batches, model, OnlineOnly(4), OnlineGD(Adam(model, 0.1), 3), memory(), generator
        )
        paid.append([r.paid.nats.tolist() for r in rounds])
    assert paid[0][:2] == paid[1][:2]
    assert paid[0][2][1:] == paid[1][2][1:]  # the other posts of that batch
    assert paid[0][3] != paid[1][3]


def test_without_a_validation_buffer_congrad_is_online_gd() -> None:
    found = []
    for kind in ("online-gd", "congrad"):
        model = tiny("adapters")
        adam = Adam(model, 0.01)
        empty = make_buffer(BufferPlan(per_user=0), LONGEST)
        optimizer = OnlineGD(adam, 3) if kind == "online-gd" else ConGraD(adam, 3, empty, posts=4)
        generator = np.random.default_rng(1)
        for _ in play(stream(), model, MixedReplay(4), optimizer, memory(), generator):
            pass
        found.append(flat(model))
    assert torch.equal(found[0], found[1])


class Scripted:
    """A learner whose steps are known in advance."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = iter(batches)

    def gradient(
        self, model: Model, released: Batch, memory: Buffer, generator: np.random.Generator
    ) -> Gradient | None:
        batch = next(self.batches, None)
        return None if batch is None else model.gradient(batch)


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_congrad_keeps_what_brute_force_picks(zero: bool, seed: int) -> None:
    batches = stream(4, seed=seed)
    generator = np.random.default_rng(seed)
    # By brute force: every candidate in a model of its own.
    model = awake(tiny("adapters", seed=seed))
    adam = Adam(model, 0.05, warmup=1)
    adam.new_round()
    candidates = [flat(model)]
    optimizer = congrad(awake(tiny("adapters", seed=seed)), validation=9, zero=zero)
    optimizer.admit(stream(3, seed=seed + 50)[0], generator)
    held = optimizer.validation.sample(4, np.random.default_rng(7))
    scores = [model.cost(held)]
    for batch in batches:
        adam.step(model.gradient(batch))
        candidates.append(flat(model))
        scores.append(model.cost(held))
    first = 0 if zero else 1
    best = first + int(np.argmin(scores[first:]))
    rule = optimizer.rule
    assert isinstance(rule, Adam)
    mine = rule.model
    rule.rate, rule.warmup, optimizer.steps = 0.05, 1, 4
    steps = optimizer.descend(
        mine, Scripted(batches), batches[0], memory(), np.random.default_rng(7)
    )
    assert steps.kept == best
    assert steps.taken == 4
    assert torch.equal(flat(mine), candidates[best])
    assert list(steps.losses)[first:] == scores[first:]
    assert torch.allclose(
        mine.users.mean(), mine.users.vectors[: len(mine.users)].mean(0), atol=1e-5
    )


@pytest.mark.parametrize("moments", [True, False])
def test_adam_s_moments_go_back_if_asked(moments: bool) -> None:
    model = awake(tiny("adapters"))
    optimizer = congrad(model, moments=moments)
    generator = np.random.default_rng(0)
    optimizer.admit(stream()[0], generator)
    adam = optimizer.rule
    assert isinstance(adam, Adam)
    adam.rate = 10.0  # every step is a disaster
    before = [moment.clone() for moment in adam.moments()]
    rows = model.users.steps.clone()
    start = flat(model)
    steps = optimizer.descend(model, OnlineOnly(4), stream()[1], memory(), generator)
    assert (steps.taken, steps.kept) == (3, 0)
    assert torch.equal(flat(model), start)
    now = adam.moments()
    same = all(torch.equal(a, b) for a, b in zip(before, now, strict=True))
    assert same is moments
    assert torch.equal(model.users.steps, rows) is moments


def test_a_gem_projects_what_conflicts() -> None:
    model = awake(tiny("adapters"))
    fresh = batch_of([[1, 7, 8, 2], [1, 7, 9, 2], [1, 8, 8, 2], [1, 9, 7, 2]], [0, 1, 2, 3])
    old = batch_of([[1, 5, 6, 2], [1, 7, 5, 2], [1, 8, 5, 2], [1, 9, 5, 2]], [0, 1, 4, 5])
    held = memory()
    held.push(old, np.random.default_rng(0))
    adam = Adam(model, 0.02)
    for _ in range(20):  # until what helps the one harms the other
        adam.step(model.gradient(Batch.join([fresh, old])))
    conflicts = 0
    for seed in range(30):
        generator = np.random.default_rng(seed)
        found = AGEM(4).gradient(model, fresh, held, generator)
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
    users = torch.zeros(len(model.users), model.users.d_user)
    assert taken.vectors.grad is not None
    users[taken.rows] = taken.vectors.grad
    parts = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat([*parts, users.flatten()])


def spread(model: Personal, gradient: Gradient) -> torch.Tensor:
    users = torch.zeros(len(model.users), model.users.d_user)
    users[gradient.rows] = gradient.users
    parts = [slope.flatten() for slope in gradient.shared if slope is not None]
    return torch.cat([*parts, users.flatten()])


@pytest.mark.parametrize("name", LEARNERS)
def test_a_step_sees_so_many_posts_in_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("adapters")
    sizes: list[int] = []
    made = Personal.gradient

    def counted(model: Personal, batch: Batch) -> Gradient:
        sizes.append(len(batch))
        return made(model, batch)

    monkeypatch.setattr(Personal, "gradient", counted)
    learner: Learner = LEARNERS[name](6)
    held = memory()
    (released,) = stream(1, posts=8)
    empty = released.select(np.zeros(0, np.int64))
    generator = np.random.default_rng(0)
    assert learner.gradient(model, empty, held, generator) is None  # nothing to learn from
    held.push(released, generator)
    assert learner.gradient(model, released, held, generator) is not None
    assert sum(sizes) == 6


def test_the_rate_warms_up_by_rounds() -> None:
    model = tiny("adapters")
    adam = Adam(model, 0.1, warmup=4)
    optimizer = OnlineGD(adam, 2)
    rounds = play(stream(6), model, OnlineOnly(4), optimizer, memory(), np.random.default_rng(0))
    rates = [adam.rate_now() for _ in rounds]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_a_candidate_s_cost_is_the_loss_without_dropout() -> None:
    model = awake(tiny("adapters")).eval()
    (batch,) = stream(1)
    loss, _ = model.loss(batch)
    assert model.cost(batch) == pytest.approx(loss.item(), rel=1e-5)
    paid = model.pay(batch)
    by_hand = np.mean(paid.nats / (batch.lengths - 1))
    assert model.cost(batch) == pytest.approx(float(by_hand), rel=1e-5)
    assert not math.isnan(by_hand)
