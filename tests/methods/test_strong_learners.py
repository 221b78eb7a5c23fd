"""Online EWC, DER++, MIR and distillation: their gradients by hand, on posts and on pictures."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from firehose.batch import Batch
from firehose.data.pictures.files import Pictures
from firehose.data.pictures.tasks import as_posts
from firehose.methods.buffers import Buffer
from firehose.methods.learners.distill import Distill
from firehose.methods.learners.online_ewc import OnlineEWC
from firehose.methods.step import Steps
from firehose.models.model import Model
from firehose.models.perceptron import OUTPUTS, Perceptron
from firehose.models.personal import LOG_PROBS, Personal
from firehose.optim.gradient import Gradient
from small_methods import adam, buffer, learner, sgd, step, stream
from small_models import awake, tiny

PIXELS = 6


def pictures(count: int, seed: int = 0) -> Batch:
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (count, PIXELS), dtype=np.uint8)
    return as_posts(Pictures(pixels, (np.arange(count) % 3).astype(np.uint8)), 0)


def world(name: str) -> tuple[Model, Batch, Batch]:
    """A model, posts to remember, and posts to release."""
    if name == "pictures":
        return Perceptron(PIXELS, 3, (5,)), pictures(4, 1), pictures(4, 2)
    old, _, fresh = stream(3)
    model = awake(tiny("adapters")).eval()
    model.users.take(np.arange(9), learn=True)
    return model, old, fresh


worlds = pytest.mark.parametrize("name", ["posts", "pictures"])


def flat(model: Model, gradient: Gradient | None) -> Tensor:
    assert gradient is not None
    parts = [slope.flatten() for slope in gradient.shared if slope is not None]
    if model.users is None:
        return torch.cat(parts)
    users = torch.zeros(len(model.users), gradient.users.shape[1])
    users[gradient.rows] = gradient.users
    return torch.cat([*parts, users.flatten()])


def remembered(batch: Batch, model: Model) -> Buffer:
    held = buffer(max_tokens=model.max_tokens, posts=9)
    held.push(batch, np.random.default_rng(0))
    return held


def drawn(fresh: Batch, held: Buffer, seed: int = 0) -> tuple[Batch, Batch]:
    """What a step of four posts draws."""
    generator = np.random.default_rng(seed)
    chosen = fresh.select(generator.choice(len(fresh), 2, replace=False, shuffle=False))
    return chosen, held.sample(2, generator)


@worlds
def test_der_adds_what_the_model_said_before(name: str) -> None:
    model, old, fresh = world(name)
    der = learner("der", 4, model, alpha=0.7, beta=0.4, top_k=3)
    held = remembered(der.to_remember(step(model, der, old)), model)
    kept = held.all()
    column = kept.per_post[OUTPUTS] if name == "pictures" else kept.per_token[LOG_PROBS]
    assert column.shape[1:] == (3,) and column.dtype == np.float16
    sgd(model, 0.5).step(model.gradient(fresh))  # what it says is another thing now
    new, replayed = drawn(fresh, held)
    expected = 0.5 * flat(model, model.gradient(new))
    expected += 0.5 * 0.4 * flat(model, model.gradient(replayed))
    expected += 0.5 * 0.7 * flat(model, model.gradient_toward_outputs(replayed))
    found = der.gradient(step(model, der, fresh, held))
    assert torch.allclose(flat(model, found), expected, atol=1e-6)
    assert found is not None
    tokens = [model.gradient(posts).tokens for posts in (new, replayed)]
    assert found.tokens == tokens[0] + 2 * tokens[1]


@worlds
def test_mir_replays_what_a_step_on_new_posts_would_harm_most(name: str) -> None:
    model, old, fresh = world(name)
    mir, held = learner("mir", 4, model, candidates=3), remembered(old, model)
    rule = sgd(model, 0.5, clip=0.25)
    generator = np.random.default_rng(0)
    new = fresh.select(generator.choice(len(fresh), 2, replace=False, shuffle=False))
    candidates = Batch.join([held.sample(2, generator), held.sample(4, generator)])
    before, weights = model.pay(candidates).nats, stored(model)
    rule.step(model.gradient(new))
    rise = (model.pay(candidates).nats - before) / (candidates.lengths - 1)
    weights()
    assert len(set(np.round(rise, 9))) > 1
    chosen = candidates.select(np.argsort(-rise, kind="stable")[:2])
    expected = flat(model, model.gradient(Batch.join([new, chosen])))
    plain = flat(model, model.gradient(Batch.join([new, candidates.select(np.arange(2))])))
    found = flat(model, mir.gradient(step(model, mir, fresh, held, rule=rule)))
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, plain, atol=1e-4)


def stored(model: Model) -> Callable[[], None]:
    """Keeps the weights as they are; the call goes back to them."""
    weights = [weight.detach().clone() for weight in model.parameters()]
    vectors = None if model.users is None else model.users.vectors.clone()

    def restore() -> None:
        for weight, before in zip(model.parameters(), weights, strict=True):
            weight.data.copy_(before)
        if model.users is not None and vectors is not None:
            model.users.put(torch.arange(len(vectors)), vectors)

    return restore


@worlds
def test_distillation_is_toward_the_average(name: str) -> None:
    model, old, fresh = world(name)
    distill = learner("distill", 4, model, strength=0.3, horizon=50, top_k=3)
    held = remembered(old, model)
    replayed = drawn(fresh, held)[1]
    taught = model.with_outputs(replayed, 3)
    sgd(model, 0.5).step(model.gradient(fresh))
    expected = flat(model, model.gradient(Batch.join(list(drawn(fresh, held)))))
    expected += 0.3 * 0.5 * flat(model, model.gradient_toward_outputs(taught))
    one = step(model, distill, fresh, held)
    assert torch.allclose(flat(model, distill.gradient(one)), expected, atol=1e-6)
    assert isinstance(distill, Distill)
    distill.end_round(one, Steps(3, 2))
    assert distill.teacher.steps == 2  # those that were kept


def test_distillation_forgets_the_average_of_a_user() -> None:
    model = awake(tiny("adapters"))
    distill = learner("distill", 4, model)
    assert isinstance(distill, Distill) and distill.teacher.rows is not None
    (own,) = distill.teacher.rows.now(torch.tensor([4]))
    assert model.users.forget(4)
    left = distill.teacher.rows.now(torch.arange(len(model.users)))
    assert not (left == own).all(1).any() and not distill.teacher.rows.values[8].any()


@worlds
@pytest.mark.parametrize("replay", [False, True])
def test_online_ewc_draws_weights_back_by_what_they_mattered(name: str, replay: bool) -> None:
    """The running averages, and the penalty that follows from them, by hand."""
    model, old, _ = world(name)
    ewc = learner("online-ewc", 4, model, strength=10, gamma=0.75, replay=replay)
    assert isinstance(ewc, OnlineEWC)
    plain = learner("mixed-replay" if replay else "online-only", 4)
    rule = adam(model, 0.05) if isinstance(model, Personal) else sgd(model, 0.5)
    held = remembered(old, model)
    anchors = [weight.detach().clone() for weight in model.parameters()]
    fishers = [torch.zeros_like(weight) for weight in anchors]
    batches = stream(3) if name == "posts" else [pictures(4, seed) for seed in range(3)]
    for seed, batch in enumerate(batches):
        expected = plain.gradient(step(model, plain, batch, held, seed))
        found = ewc.gradient(step(model, ewc, batch, held, seed))
        assert expected is not None and found is not None
        rows = zip(model.parameters(), expected.shared, found.shared, strict=True)
        for number, (weight, slope, pulled) in enumerate(rows):
            assert slope is not None and pulled is not None
            bounded = 10 * fishers[number] / (1 + 10 * fishers[number])
            pull = bounded * (weight.detach() - anchors[number])
            assert torch.allclose(pulled, slope + pull, atol=1e-7)
            fishers[number] = 0.75 * fishers[number] + 0.25 * slope**2
        assert torch.equal(found.users, expected.users)
        rule.step(found)
        for number, weight in enumerate(model.parameters()):
            anchors[number] = 0.75 * anchors[number] + 0.25 * weight.detach()
        ewc.end_round(step(model, ewc, batch, held), Steps(1, 1))
    assert any(float(fisher.max()) > 0 for fisher in fishers)
    for one, other in zip(anchors, ewc.anchor, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
