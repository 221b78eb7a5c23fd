"""GEM and iCaRL: closed forms, and by brute force."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from firehose.batch import Batch
from firehose.data.pictures.files import Pictures
from firehose.data.pictures.tasks import as_posts
from firehose.errors import FirehoseError
from firehose.methods.buffers.exemplars import Exemplars, herd
from firehose.methods.learners.gem import weights
from firehose.methods.step import Setup
from firehose.models.perceptron import Perceptron, PixelScale, labels
from firehose.optim.clipping import NotFinite
from firehose.optim.gradient import Gradient
from small_methods import (
    adam,
    buffer,
    congrad,
    learner,
    online_gd,
    same,
    sgd,
    step,
    stored,
)
from small_models import awake, batch_of, tiny

PIXELS = 6


def pictures(count: int, task: int = 0, first: int = 0, seed: int = 0) -> Batch:
    """Of three classes, from the first one on."""
    generator = np.random.default_rng([seed, task])
    pixels = generator.integers(0, 256, (count, PIXELS), dtype=np.uint8)
    return as_posts(Pictures(pixels, (first + np.arange(count) % 3).astype(np.uint8)), task)


def flat(gradient: Gradient) -> torch.Tensor:
    return torch.cat([slope.flatten() for slope in gradient.shared if slope is not None])


def exemplars(model: Perceptron, posts: int, tasks: list[int]) -> Exemplars:
    """For so many posts from tasks of these sizes."""
    setup = Setup(model, task_sizes=tuple(tasks))
    made = buffer("exemplars", PIXELS + 1, setup, posts=posts)
    assert isinstance(made, Exemplars)
    return made


@given(st.integers(1, 4), st.integers(0, 2**31 - 1), st.sampled_from([0.0, 0.5]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_gem_s_weights_are_optimal(tasks: int, seed: int, margin: float, twins: bool) -> None:
    generator = np.random.default_rng(seed)
    past = generator.normal(size=(tasks, 7))
    if twins:
        past[-1] = past[0]
    present = generator.normal(size=7)
    between, conflict = past @ past.T, past @ present
    found = weights(between, conflict, margin)
    assert (found >= margin - 1e-9).all()
    # Kuhn and Tucker: the slope is zero where the weight is free, and not negative at the bound.
    slope = between @ found + conflict
    assert slope == pytest.approx(np.maximum(slope, 0), abs=1e-5)
    assert slope * (found - margin) == pytest.approx(np.zeros(tasks), abs=1e-4)
    # Which says that the corrected gradient conflicts with no task.
    corrected = present + found @ past
    assert (past @ corrected >= -1e-5).all()


def test_gem_s_weights_by_brute_force() -> None:
    generator = np.random.default_rng(3)
    past, present = generator.normal(size=(2, 5)), generator.normal(size=5)
    between, conflict = past @ past.T, past @ present
    grid = np.linspace(0.5, 4.5, 401)
    tried = np.array(list(itertools.product(grid, grid)))
    values = 0.5 * ((tried @ between) * tried).sum(1) + tried @ conflict
    assert weights(between, conflict, 0.5) == pytest.approx(tried[values.argmin()], abs=0.011)


@pytest.mark.parametrize("apart", [0.0, 1e-5, 1e-3])
def test_gem_bears_gradients_that_are_nearly_the_same(apart: float) -> None:
    """Their products are float32, and their matrix may have eigenvalues below zero."""
    for seed in range(20):
        generator = np.random.default_rng(seed)
        one, other = generator.normal(size=(2, 1000)).astype(np.float32)
        past = (one + apart * generator.normal(size=(4, 1000))).astype(np.float32)
        present = other - one
        between, conflict = (past @ past.T).astype(float), (past @ present).astype(float)
        assert (conflict < 0).all()
        corrected = present + weights(between, conflict, 0.0) @ past
        cosines = past @ corrected / np.linalg.norm(past, axis=1) / np.linalg.norm(present)
        assert (cosines > -2e-3).all()
        assert np.linalg.norm(corrected - other) < 0.2 * np.linalg.norm(other)


@given(st.integers(1, 5), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_gem_does_not_care_how_long_a_task_s_gradient_is(tasks: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    past, present = generator.normal(size=(tasks, 50)), generator.normal(size=50)
    present -= past.sum(0)
    scales = 10.0 ** generator.uniform(-4, 4, (tasks, 1))
    expected, found = (
        present + weights(each @ each.T, each @ present, 0.0) @ each
        for each in (past, scales * past)
    )
    assert found == pytest.approx(expected, abs=1e-4)


@given(st.integers(1, 5), st.integers(0, 2**31 - 1), st.sampled_from([0.0, 0.5]))
@settings(max_examples=60, deadline=None)
def test_gem_is_never_further_than_the_margin_alone_would_take_it(
    tasks: int, seed: int, margin: float
) -> None:
    generator = np.random.default_rng(seed)
    past = generator.normal(size=(tasks, 50)) + generator.normal(size=50)
    past *= 10.0 ** generator.uniform(-4, 2, (tasks, 1))
    past, present = past.astype(np.float32), generator.normal(size=50).astype(np.float32)
    between, conflict = (past @ past.T).astype(float), (past @ present).astype(float)
    corrected = present + weights(between, conflict, margin) @ past
    most = np.linalg.norm(present + margin * past.sum(0))
    assert np.linalg.norm(corrected) <= most * 1.001 + 1e-3


def test_a_task_whose_gradient_is_zero_asks_for_nothing() -> None:
    between, conflict = np.diag([0.0, 2.0]), np.array([0.0, -3.0])
    assert weights(between, conflict, 0.0) == pytest.approx([0.0, 1.5])


def test_with_one_earlier_task_and_no_margin_gem_is_a_gem() -> None:
    conflict, own = -3.0, 2.0
    assert weights(np.array([[own]]), np.array([conflict]), 0.0) == pytest.approx(1.5)


@pytest.mark.parametrize("seed", range(4))
def test_gem_corrects_what_conflicts_and_nothing_else(seed: int) -> None:
    model = Perceptron(PIXELS, 3, (5,), seed)
    memory = buffer("stratified", PIXELS + 1, per_user=4)
    generator = np.random.default_rng(seed)
    past = pictures(4, task=0, seed=seed)
    memory.push(past, generator)
    memory.push(pictures(4, task=1, seed=seed), generator)  # the present task's own
    released = pictures(5, task=1, seed=seed + 9)
    before = flat(model.gradient(released))
    reference = flat(model.gradient(past))
    gem = learner("gem", 5, margin=0.0)
    gradient = gem.gradient(step(model, gem, released, memory, generator))
    assert gradient is not None
    conflict = before @ reference
    expected = before - min(float(conflict / (reference @ reference)), 0.0) * reference
    assert torch.allclose(flat(gradient), expected, atol=1e-6)


def test_gem_says_when_gradients_are_beyond_numbers() -> None:
    model = Perceptron(PIXELS, 3, (5, 5), seed=1)
    model.weights.data.mul_(1e10)
    memory = buffer("stratified", PIXELS + 1, per_user=4)
    generator = np.random.default_rng(0)
    memory.push(pictures(4, task=0), generator)
    gem = learner("gem", 5)
    with pytest.raises(NotFinite, match="too long to be multiplied"):
        gem.gradient(step(model, gem, pictures(5, task=1), memory, generator))


def test_gem_without_a_past_is_online_only() -> None:
    model = Perceptron(PIXELS, 3, (5,))
    memory = buffer("stratified", PIXELS + 1, per_user=4)
    released = pictures(4)
    gem, online = learner("gem", 9), learner("online-only", 9)
    one = gem.gradient(step(model, gem, released, memory))
    two = online.gradient(step(model, online, released, memory))
    assert one is not None and two is not None
    assert torch.equal(flat(one), flat(two))
    assert gem.gradient(step(model, gem, released.select(np.zeros(0, np.int64)), memory)) is None


@pytest.mark.parametrize("tasks", [1, 3, 9])
def test_gem_looks_at_so_many_tasks_and_at_all_that_is_remembered_of_each(
    tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Perceptron(PIXELS, 3, (5,))
    memory = buffer("stratified", PIXELS + 1, per_user=4)
    generator = np.random.default_rng(0)
    for task in range(6):
        memory.push(pictures(4, task=task), generator)
    looked: list[tuple[int, ...]] = []
    made = Perceptron.gradient

    def noted(model: Perceptron, batch: Batch) -> Gradient:
        looked.append(tuple(batch.user.tolist()))
        return made(model, batch)

    monkeypatch.setattr(Perceptron, "gradient", noted)
    gem = learner("gem", 5, tasks=tasks)
    seen = set()
    for seed in range(30):
        looked.clear()
        found = gem.gradient(step(model, gem, pictures(5, task=5), memory, seed))
        assert found is not None
        assert looked[0] == (5,) * 5
        past = {users[0] for users in looked[1:]}
        assert all(users == users[:1] * 4 for users in looked[1:])
        assert len(past) == len(looked) - 1 == min(tasks, 5) and 5 not in past
        assert found.tokens == (5 + 4 * len(past)) * PIXELS
        seen |= past
    assert seen == set(range(5))  # drawn anew for each step


def test_gem_plays_with_posts_and_their_users() -> None:
    """Each user is a task; what conflicts is taken out, over weights and vectors together."""
    model = awake(tiny("adapters"))
    memory = buffer("stratified", per_user=2)
    generator = np.random.default_rng(0)
    past = batch_of([[1, 7, 5, 2], [1, 8, 5, 2]], [4, 4])
    memory.push(past, generator)
    released = batch_of([[1, 7, 6, 2], [1, 8, 6, 2]], [0, 1])
    rule = adam(model, 0.02)
    for _ in range(20):  # until what helps the one harms the other
        rule.step(model.gradient(Batch.join([past, released])))
    gem = learner("gem", 2, margin=0.0)
    before, reference = model.gradient(released), model.gradient(past)
    assert before.dot(reference) < 0
    found = gem.gradient(step(model, gem, released, memory))
    assert found is not None
    assert found.dot(reference) == pytest.approx(0, abs=1e-5 * found.norm())
    assert found.rows.tolist() == [0, 1, 4]


def test_herding_is_greedy() -> None:
    features = torch.tensor(np.random.default_rng(1).normal(size=(7, 3)), dtype=torch.float32)
    order = herd(features, 5).tolist()
    assert len(set(order)) == 5
    target = features.mean(0)
    for count in range(5):
        chosen = features[order[:count]].sum(0)
        costs = {
            each: float((target - (chosen + features[each]) / (count + 1)).norm())
            for each in range(7)
            if each not in order[:count]
        }
        assert order[count] == min(costs, key=lambda each: costs[each])
    assert sorted(herd(features, 99).tolist()) == list(range(7))


def test_exemplars_share_the_room_and_nothing_is_lost() -> None:
    model = Perceptron(PIXELS, 6, (5,))
    held = exemplars(model, 12, [12] * 3)
    generator = np.random.default_rng(0)
    gone = 0
    for start in (0, 4, 8):
        gone += len(held.push(pictures(12, task=0).select(np.arange(start, start + 4)), generator))
        assert (len(held) > 0) is (start == 8)  # chosen when the task is over
    assert [len(each) for each in held.chosen.values()] == [4, 4, 4] and gone == 0
    first = {kind: each.tokens.tolist() for kind, each in held.chosen.items()}
    gone += len(held.push(pictures(12, task=1, first=3), generator))  # three other classes
    assert [len(each) for each in held.chosen.values()] == [2] * 6
    assert gone + len(held) == 24
    for kind, tokens in first.items():  # the most typical stay
        assert held.chosen[kind].tokens.tolist() == tokens[: 2 * (PIXELS + 1)]
    gone += len(held.push(pictures(12, task=2), generator))  # the first three, in another task
    assert [held.chosen[kind].user.tolist() for kind in range(6)] == [[2, 2]] * 3 + [[1, 1]] * 3
    assert gone + len(held) == 36
    assert held.forget(2) == 6 and len(held) == 6 == len(held.all())
    assert set(held.sample(9, generator).user.tolist()) == {1}


def test_a_task_may_be_shorter_than_others() -> None:
    held = exemplars(Perceptron(PIXELS, 6, (5,)), 12, [3, 6])
    generator = np.random.default_rng(0)
    held.push(pictures(3), generator)
    assert len(held) == 3
    held.push(pictures(3, task=1, first=3), generator)
    assert len(held) == 3  # the second task is not over yet
    held.push(pictures(3, task=1, first=3), generator)
    assert len(held) == 9


def test_exemplars_are_stored_with_their_columns_and_go_on_as_they_were() -> None:
    model = Perceptron(PIXELS, 6, (5,))
    held, again = (exemplars(model, 12, [9, 9, 9]) for _ in range(2))
    generator = np.random.default_rng(0)

    def tasks(number: int) -> Batch:
        batch = pictures(9, task=number, first=number)
        per_token = {"double": 2 * batch.tokens.astype(np.int64)}
        return batch.with_columns({"sum": batch.tokens.reshape(9, -1).sum(1)}, per_token)

    def columns_are_right(batch: Batch) -> bool:
        sums = batch.tokens.reshape(len(batch), -1).sum(1)
        doubled = batch.per_token["double"] == 2 * batch.tokens.astype(np.int64)
        return bool((batch.per_post["sum"] == sums).all() and doubled.all())

    held.push(tasks(0), generator)
    held.push(tasks(1).select(np.arange(5)), generator)
    held.push(tasks(1).select(np.zeros(0, np.int64)), generator)  # nothing was released
    again.restore(stored(held.state()))
    assert same(stored(again.state()), stored(held.state()))
    results = []
    for one in (held, again):
        gone = one.push(tasks(1).select(np.arange(5, 9)), generator)
        assert columns_are_right(gone) and columns_are_right(one.all())
        drawn = one.sample(9, np.random.default_rng(1)).tokens.tolist()
        _, outputs = one.reminders(np.random.default_rng(2))
        results.append((gone.tokens.tolist(), drawn, outputs.tolist()))
    assert results[0] == results[1]
    assert same(stored(again.state()), stored(held.state()))


def test_of_a_forgotten_task_no_exemplar_and_no_output_stays() -> None:
    held = exemplars(Perceptron(PIXELS, 6, (5,)), 12, [9, 6])
    generator = np.random.default_rng(0)
    held.push(pictures(9), generator)
    held.push(pictures(3, task=1, first=3), generator)  # its second half is to come
    assert held.forget(1) == 3 and held.forget(1) == 0
    assert len(held) == 9 and not held.pending
    assert held.forget(0) == 9
    assert stored(held.state()) == {"pending": [], "chosen": {}}


def test_the_nearest_mean_decides() -> None:
    model = Perceptron(PIXELS, 3, (5,))
    held = exemplars(model, 12, [9] * 2)
    posts = pictures(9)
    assert held.classify(posts).tolist() == model.outputs(posts).argmax(1).tolist()
    held.push(posts, np.random.default_rng(0))
    means = {kind: model.outputs(each).mean(0) for kind, each in held.chosen.items()}
    for number, output in enumerate(model.outputs(posts)):
        nearest = min(means, key=lambda kind: float((means[kind] - output).norm()))
        assert held.classify(posts.select(np.array([number]))).tolist() == [nearest]


def test_icarl_reminds_of_what_was_and_only_of_that() -> None:
    model = Perceptron(PIXELS, 3, (5,))
    held = exemplars(model, 12, [9] * 2)
    generator = np.random.default_rng(0)
    released = pictures(4, task=1)
    plain = flat(model.gradient(released))
    icarl = learner("icarl", 9, model)
    first = icarl.gradient(step(model, icarl, released, held, generator))
    held.push(pictures(9), generator)
    # Nothing has changed since the exemplars were chosen, so there is nothing to mend.
    second = icarl.gradient(step(model, icarl, released, held, generator))
    assert first is not None and second is not None
    assert torch.equal(flat(first), plain)
    assert torch.allclose(flat(second), plain, atol=1e-6)
    sgd(model, 0.5).step(first)
    icarl = learner("icarl", 9, model, strength=2.0)
    third = icarl.gradient(step(model, icarl, released, held, 1))
    reminders, then = held.reminders(np.random.default_rng(1))
    weights = differentiable(model)
    now = torch.log_softmax(run(weights, model.pixels_of(reminders)), 1)
    then = torch.softmax(then, 1)
    outputs = run(weights, model.pixels_of(released))
    loss = torch.nn.functional.cross_entropy(outputs, labels(released))
    loss = loss + 2 * (then * (then.log() - now)).mean()
    assert third is not None
    assert torch.allclose(flat(third), slopes(loss, weights), atol=1e-6)


@pytest.mark.parametrize("hidden", [(), (5,), (6, 4)])
def test_the_gradient_by_hand_is_that_of_autograd(hidden: tuple[int, ...]) -> None:
    model = Perceptron(PIXELS, 3, hidden, seed=2)
    posts = pictures(7)
    weights = differentiable(model)
    loss = torch.nn.functional.cross_entropy(run(weights, model.pixels_of(posts)), labels(posts))
    gradient = model.gradient(posts)
    assert torch.allclose(flat(gradient), slopes(loss, weights), atol=1e-6)
    expected = pytest.approx(float(loss.detach()))
    assert gradient.loss == expected
    assert model.cost(posts) == expected


def differentiable(model: Perceptron) -> list[torch.Tensor]:
    """Its weights and biases, layer by layer, for autograd."""
    return [part.clone().requires_grad_() for layer in model.layers for part in layer]


def run(weights: list[torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
    for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        hidden = torch.relu(hidden @ weight.T + bias)
    return hidden @ weights[-2].T + weights[-1]


def slopes(loss: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([slope.flatten() for slope in torch.autograd.grad(loss, weights)])


def test_plain_descent_by_hand() -> None:
    model = Perceptron(PIXELS, 3, (5,))
    before = [weight.detach().clone() for weight in model.parameters()]
    gradient = model.gradient(pictures(4))
    norm = sgd(model, 0.1).step(gradient)
    assert norm == pytest.approx(float(flat(gradient).norm()))
    for old, weight, slope in zip(before, model.parameters(), gradient.shared, strict=True):
        assert slope is not None
        assert torch.allclose(weight.detach(), old - 0.1 * slope)


def test_a_perceptron_by_hand() -> None:
    model = Perceptron(PIXELS, 3, (5, 4), seed=1)
    posts = pictures(8)
    paid = model.pay(posts)
    tokens = torch.from_numpy(posts.tokens.reshape(8, -1).astype(np.float32))
    outputs = run([part for layer in model.layers for part in layer], tokens[:, :-1] / 255)
    nats = -torch.log_softmax(outputs, 1)[torch.arange(8), tokens[:, -1].long()]
    assert paid.nats == pytest.approx(nats.numpy(), rel=1e-5)
    assert model.cost(posts) == pytest.approx(float(nats.mean()), rel=1e-5)
    assert paid.words.tolist() == [1] * 8


def test_pixels_can_be_standardized() -> None:
    posts = pictures(8)
    pixels = posts.tokens.reshape(8, -1)[:, :-1]
    model = Perceptron(PIXELS, 3, (5,), pixel_scale=PixelScale.standard(pixels))
    expected = (pixels - pixels.mean()) / pixels.std()
    assert model.pixels_of(posts).numpy() == pytest.approx(expected, abs=1e-5)


def test_weights_can_start_as_torch_s_own() -> None:
    """Its bounds are 1 / √inputs, of biases, too; Xavier's √(6 / (inputs + outputs)), biases 0."""
    for start, bound in (("xavier", (6 / 500) ** 0.5), ("torch", 400**-0.5)):
        ((weight, bias),) = Perceptron(400, 100, (), start=start).layers  # type: ignore[arg-type]
        assert 0.99 * bound < float(weight.abs().max()) <= bound
        assert float(weight.mean()) == pytest.approx(0, abs=bound / 50)
        most = float(bias.abs().max())
        assert most == 0 if start == "xavier" else 0.9 * bound < most <= bound


def test_icarl_says_what_it_cannot_play_with() -> None:
    pictured, written = Perceptron(PIXELS, 3, (5,)), tiny("adapters")
    with pytest.raises(FirehoseError, match="iCaRL needs classes, and posts have none"):
        learner("icarl", 4, written)
    with pytest.raises(FirehoseError, match="Exemplars are pictures of a class"):
        buffer("exemplars", PIXELS + 1, Setup(written, task_sizes=(9,)), posts=12)
    with pytest.raises(FirehoseError, match="they need a stream of tasks"):
        buffer("exemplars", PIXELS + 1, Setup(pictured), posts=12)
    with pytest.raises(FirehoseError, match="greater than or equal to 10"):
        exemplars(pictured, 9, [9])
    icarl = learner("icarl", 4, pictured)
    held, rule = exemplars(pictured, 12, [9]), sgd(pictured, 0.1)
    icarl.refuse(held, online_gd(rule))
    with pytest.raises(FirehoseError, match=r"iCaRL needs exemplars: .*memory.kind=exemplars"):
        icarl.refuse(buffer(posts=9), online_gd(rule))
    with pytest.raises(FirehoseError, match="ConGraD holds some back: choose Online GD"):
        icarl.refuse(held, congrad(rule))


def test_the_others_play_with_everything() -> None:
    for kind in ("online-only", "replay-only", "mixed-replay", "a-gem", "gem"):
        learner(kind, 4).refuse(buffer(posts=9), congrad(sgd(Perceptron(PIXELS, 3, ()), 0.1)))
