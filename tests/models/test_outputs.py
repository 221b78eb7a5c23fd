"""What a model predicts, kept beside posts, and losses toward it: against dense formulas."""

import numpy as np
import pytest
import torch
from torch import Tensor

from firehose.models import softmax
from firehose.models.personal import LOG_PROBS, PIECES, Personal, predicted_places
from firehose.optim.gradient import Gradient
from small_models import awake, batch_of, tiny

POSTS = batch_of([[1, 7, 8, 5, 2], [1, 9, 2], [1, 5, 6, 7, 8, 9, 10, 2]], [0, 3, 77])


def flat(gradient: Gradient) -> Tensor:
    found = [slope.flatten() for slope in gradient.shared if slope is not None]
    return torch.cat([*found, gradient.users.flatten()])


@pytest.mark.parametrize("chunk", [1280, 3])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_soft_loss_and_its_gradient(
    count: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax, "CHUNK", chunk)
    torch.manual_seed(count)
    parts = [torch.randn(*size, dtype=torch.float64) for size in ((8, 4), (11, 4), (11,))]
    leaves = [part.requires_grad_() for part in parts]
    pieces = torch.stack([torch.randperm(11)[:count] for _ in range(8)])
    shares = torch.rand(8, count, dtype=torch.float64).softmax(1) * 0.8
    weights = torch.rand(8, dtype=torch.float64)
    logs = torch.log_softmax(parts[0] @ parts[1].T + parts[2], 1)
    named = logs.gather(1, pieces)
    left = (1 - named.exp().sum(1)).log()
    expected = -(weights * ((shares * named).sum(1) + (1 - shares.sum(1)) * left)).sum()
    found = softmax.soft_loss(leaves[0], leaves[1], leaves[2], pieces, shares, weights)
    assert torch.allclose(found, expected)
    slopes = (torch.autograd.grad(loss, leaves) for loss in (found, expected))
    assert all(torch.allclose(one, other) for one, other in zip(*slopes, strict=True))


def test_a_loss_toward_one_certain_piece_is_that_of_the_piece() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(*size).requires_grad_() for size in ((8, 4), (11, 4), (11,))]
    pieces, weights = torch.arange(8), torch.rand(8)
    hidden, embedding, bias = parts
    hard = softmax.weighted_loss(hidden, embedding, bias, pieces, weights)
    certain = (pieces[:, None], torch.ones(8, 1))
    soft = softmax.soft_loss(hidden, embedding, bias, *certain, weights)
    assert torch.allclose(hard, soft)
    for one, other in zip(*(torch.autograd.grad(x, parts) for x in (hard, soft)), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def dense(model: Personal) -> Tensor:
    """The log-probabilities of all pieces for every predicted token."""
    hidden, _, _ = model._look(POSTS, model.max_tokens)
    return torch.log_softmax(hidden @ model.shared.embedding.T + model.shared.output_bias, 1)


@pytest.mark.parametrize("max_tokens", [50, 6])
def test_outputs_are_the_most_probable_pieces_of_each_token(max_tokens: int) -> None:
    model = awake(tiny("adapters", max_tokens=max_tokens))
    found = model.with_outputs(POSTS, 3)
    places = predicted_places(POSTS, max_tokens)
    assert len(places) == sum(min(length, max_tokens) - 1 for length in (5, 3, 8))
    best = dense(model).topk(3, 1)
    pieces, log_probs = found.per_token[PIECES], found.per_token[LOG_PROBS]
    assert pieces[places].tolist() == best.indices.tolist()
    assert np.allclose(log_probs[places], best.values.detach(), atol=0.01)
    rest = np.setdiff1d(np.arange(len(POSTS.tokens)), places)
    assert not pieces[rest].any() and not log_probs[rest].any()
    assert pieces.dtype == POSTS.tokens.dtype and log_probs.dtype == np.float16
    nobody = model.with_outputs(POSTS.select(np.zeros(0, np.int64)), 3)
    assert nobody.per_token[PIECES].shape == (0, 3)
    assert model.with_outputs(POSTS, 99).per_token[PIECES].shape[1] == 23  # there are no more


@pytest.mark.parametrize("count", [3, 23])
def test_the_gradient_toward_outputs(count: int) -> None:
    model, teacher = (awake(tiny("adapters", seed=seed)).eval() for seed in (1, 2))
    model.users.take(POSTS.user, learn=True)
    taught = teacher.with_outputs(POSTS, count)
    shares = dense(teacher).detach().exp()
    model.zero_grad()
    (hidden, embedding, bias), _, weights, taken = model._learn_to_predict(POSTS)
    logs = torch.log_softmax(hidden @ embedding.T + bias, 1)
    if count == 3:
        best = shares.topk(3, 1)
        named = logs.gather(1, best.indices)
        costs = (best.values * named).sum(1)
        costs = costs + (1 - best.values.sum(1)) * (1 - named.exp().sum(1)).log()
    else:
        costs = (shares * logs).sum(1)
    (-(weights * costs).sum()).backward()
    found = model.gradient_toward_outputs(taught)
    assert taken.vectors.grad is not None
    expected = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    together = torch.cat([*expected, taken.vectors.grad.flatten()])
    assert torch.allclose(flat(found), together, atol=2e-3 * float(together.abs().max()))
    assert found.tokens == 13


def test_who_says_what_was_said_before_has_nothing_to_learn() -> None:
    model = awake(tiny("adapters")).eval()
    model.users.take(POSTS.user, learn=True)
    same = model.gradient_toward_outputs(model.with_outputs(POSTS, 4))
    assert float(flat(same).norm()) < 1e-3 * float(flat(model.gradient(POSTS)).norm())


def test_the_outlook_is_that_of_all_probabilities() -> None:
    """Of more tokens than are looked at together, some of which are all but certain."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(softmax.CHUNK + 300, 8, generator=generator) * 5
    embedding, bias = torch.randn(30, 8, generator=generator), torch.randn(30, generator=generator)
    targets = torch.randint(0, 30, (len(hidden),), generator=generator)
    log_probs = (hidden.double() @ embedding.double().T + bias.double()).log_softmax(1)
    wanted, largest, entropy = softmax.outlook(hidden, embedding, bias, targets)
    assert wanted.numpy() == pytest.approx(log_probs[range(len(hidden)), targets].numpy(), abs=1e-4)
    assert largest.numpy() == pytest.approx(log_probs.amax(1).numpy(), abs=1e-4)
    expected = -(log_probs.exp() * log_probs).sum(1)
    assert entropy.numpy() == pytest.approx(expected.numpy(), abs=1e-4)
    assert entropy.min() < 1e-3
    assert entropy.max() > 1
