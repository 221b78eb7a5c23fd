"""The models: sizes, identities, and what they promise about batches, users and gradients."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from firehose.models import softmax
from firehose.models.attention import Grid
from firehose.models.dropout import Dropout, Random
from firehose.models.personal import Architecture, ModelPlan, Personal, predictions
from small_models import PERSONAL, PIECES, TINY, awake, batch_of, tiny

posts_strategy = st.lists(
    st.lists(st.integers(0, PIECES - 1), min_size=2, max_size=9), min_size=1, max_size=6
)


@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        ("agnostic", 57_367_297),
        ("encoder", 60_786_689),
        ("decoder", 60_786_689),
        ("adapters", 65_131_777),
    ],
)
def test_the_paper_s_sizes(architecture: Architecture, count: int) -> None:
    with torch.device("meta"):
        model = Personal(ModelPlan(architecture=architecture), 32_000)
    users = 94_000 * 32 if model.is_personal else 0
    padding = 512 + 1  # the release's row 0 of the embedding and of the output bias
    assert sum(parameter.numel() for parameter in model.parameters()) + users + padding == count


@pytest.mark.parametrize("architecture", ["agnostic", *PERSONAL])
@settings(max_examples=25, deadline=None)
@given(posts=posts_strategy)
def test_a_post_gets_in_a_batch_what_it_gets_alone(
    architecture: Architecture, posts: list[list[int]]
) -> None:
    model = awake(tiny(architecture))
    users = [number * 5 % 9 for number in range(len(posts))]
    together = model.pay(batch_of(posts, users)).nats
    alone = [model.pay(batch_of([p], [u])).nats[0] for p, u in zip(posts, users, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-4)


def test_a_word_is_predicted_from_the_words_before_it_only() -> None:
    model = awake(tiny("adapters"))
    post, other = [1, 5, 6, 7, 8], [1, 5, 6, 9, 2]
    inputs = [torch.tensor(tokens) for tokens in (post, other)]
    grid = Grid(torch.tensor([5]))
    adapt = model.adapter(model.users.take(np.array([3]), learn=False), grid)
    first, second = (model.eval().shared(tokens, grid, adapt) for tokens in inputs)
    assert torch.allclose(first[:3], second[:3], atol=1e-6)
    assert not torch.allclose(first[3], second[3], atol=1e-2)


@pytest.mark.parametrize("changes", [{}, {"d_user": TINY.d_model, "project_users": False}])
@pytest.mark.parametrize("architecture", PERSONAL)
def test_a_fresh_personal_model_is_the_pretrained_one_and_its_users_move_at_once(
    architecture: Architecture, changes: dict[str, object]
) -> None:
    pretrained = tiny("agnostic")
    model = tiny(architecture, seed=1, **changes)
    model.shared.load_state_dict(pretrained.shared.state_dict())
    batch = batch_of([[1, 4, 5, 2], [1, 9, 2], [1, 7, 7, 7, 2]])
    assert model.pay(batch).nats.tolist() == pretrained.pay(batch).nats.tolist()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    moved = []
    for _ in range(3):
        optimizer.zero_grad()
        loss, taken = model.loss(batch)
        loss.backward()
        assert taken.vectors.grad is not None
        moved.append(float(taken.vectors.grad.abs().max()))
        optimizer.step()
    assert moved[0] == 0  # a fresh residual says nothing, so nothing can be learned of users yet
    assert moved[1] > 0


def test_the_loss_is_the_mean_over_posts_of_the_mean_over_tokens() -> None:
    model = awake(tiny("adapters"))
    batch = batch_of([[1, 4, 5, 2], [1, 9, 2], [1, 7, 7, 7, 3, 3, 2]], [3, 0, 3])
    paid = model.pay(batch).nats
    expected = np.mean(paid / (batch.lengths - 1))
    loss, _ = model.loss(batch)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_long_posts_are_trained_on_their_beginning_and_scored_whole() -> None:
    model = awake(tiny("adapters", max_tokens=4))
    long, short = batch_of([[1, 4, 5, 6, 7, 2]], [3]), batch_of([[1, 4, 5, 6]], [3])
    assert model.loss(long)[0].item() == pytest.approx(model.loss(short)[0].item(), rel=1e-6)
    assert model.pay(long).nats[0] > model.pay(short).nats[0]


def test_the_tokens_that_were_trained_on_are_counted_and_no_others() -> None:
    posts = batch_of([[1, 4, 5, 6, 7, 2], [1, 2], [1, 4, 5, 6], [1, 3, 2]], [3, 0, 3, 1])
    for max_tokens, counted in ((4, 3 + 1 + 3 + 2), (50, 5 + 1 + 3 + 2)):
        model = awake(tiny("adapters", max_tokens=max_tokens))
        assert model.gradient(posts).tokens == counted


def test_paying_changes_nothing() -> None:
    model = awake(tiny("adapters")).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = batch_of([[1, 4, 5, 2], [1, 9, 2]], [3, 77])
    tokens = batch.tokens.copy()
    first, second = model.pay(batch).nats, model.pay(batch).nats
    assert first.tolist() == second.tolist()
    assert (batch.tokens == tokens).all()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert len(model.users) == 9 and model.training


def test_users_share_nothing_but_the_shared() -> None:
    model = awake(tiny("adapters"))
    batch = batch_of([[1, 4, 5, 2]] * 2, [3, 4])
    loss, taken = model.loss(batch_of([[1, 4, 5, 2]], [3]))
    loss.backward()
    assert taken.rows.tolist() == [3]
    before = model.pay(batch).nats
    model.users.put(torch.tensor([3]), torch.ones(1, 4))
    after = model.pay(batch).nats
    assert after[0] != before[0] and after[1] == before[1]


@settings(max_examples=20, deadline=None)
@given(tokens=st.integers(1, 40), chunk=st.integers(1, 50), seed=st.integers(0, 99))
def test_the_chunked_loss_has_the_value_and_gradient_of_the_plain_one(
    tokens: int, chunk: int, seed: int
) -> None:
    torch.manual_seed(seed)
    leaves = [torch.randn(tokens, 6), torch.randn(11, 6), torch.randn(11)]
    plain = [leaf.double().requires_grad_() for leaf in leaves]
    ours = [leaf.double().requires_grad_() for leaf in leaves]
    targets, weights = torch.randint(0, 11, (tokens,)), torch.rand(tokens).double()
    logits = plain[0] @ plain[1].T + plain[2]
    costs = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    expected = (costs * weights).sum()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(softmax, "CHUNK", chunk)
        found = softmax.weighted_loss(ours[0], ours[1], ours[2], targets, weights)
        alone = softmax.nats(ours[0].detach(), ours[1], ours[2], targets)
    assert torch.allclose(alone, costs)
    assert torch.allclose(found, expected)
    (3 * expected).backward()
    (3 * found).backward()
    for mine, reference in zip(ours, plain, strict=True):
        assert mine.grad is not None and reference.grad is not None
        assert torch.allclose(mine.grad, reference.grad)


def test_a_uniform_model_pays_the_logarithm_of_the_pieces() -> None:
    model = tiny("agnostic")
    torch.nn.init.zeros_(model.shared.embedding)
    torch.nn.init.zeros_(model.shared.output_bias)
    paid = model.pay(batch_of([[1, 4, 5, 2]]))
    assert paid.nats[0] == pytest.approx(3 * math.log(PIECES))


def test_inputs_and_targets_are_a_step_apart() -> None:
    inputs, targets, grid = predictions(batch_of([[1, 4, 5, 2], [1, 2]]), max_tokens=3)
    assert inputs.tolist() == [1, 4, 1]
    assert targets.tolist() == [4, 5, 2]
    assert grid.lengths.tolist() == [2, 1]


def test_dropout_keeps_the_mean_and_its_gradient_has_the_same_mask() -> None:
    drop = Dropout(0.25, Random(7)).train()
    ones = torch.ones(400, 401, requires_grad=True)
    kept = drop(ones)
    assert (kept == 0).double().mean().item() == pytest.approx(0.25, abs=0.01)
    assert kept[kept != 0].unique().tolist() == pytest.approx([4 / 3])
    kept.sum().backward()
    assert ones.grad is not None and torch.equal(ones.grad, kept.detach())
    again = Dropout(0.25, Random(7))(torch.ones(400, 401))
    assert torch.equal(again, kept.detach())
    assert not torch.equal(drop(ones) == 0, kept == 0)
    assert drop.eval()(ones) is ones
