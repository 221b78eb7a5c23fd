"""Learners and optimizers: one contract for every pair of them, those of the docs included."""

import itertools

import numpy as np
import pytest
import torch

from firehose.methods.optimizers.congrad import ConGraD
from small_methods import Parts, adam, buffer, congrad, learner, online_gd, shown, stream
from small_models import tiny

LEARNERS = {
    **{kind: kind for kind in ("online-only", "replay-only", "mixed-replay", "a-gem", "gem")},
    **shown("add-a-learner.md"),
}
OPTIMIZERS = {"online-gd": online_gd, "congrad": congrad}
PAIRS = list(itertools.product(LEARNERS, OPTIMIZERS))


def parts(kind: str, optimizer: str) -> Parts:
    """A game of posts before its first round."""
    model = tiny("adapters")
    return Parts(
        model,
        learner(LEARNERS[kind], 4, model),
        OPTIMIZERS[optimizer](adam(model, 0.01)),
        buffer("reservoir", posts=9),
        np.random.default_rng(1),
    )


def flat(game: Parts) -> torch.Tensor:
    """All that the model has learned."""
    users = game.model.users
    assert users is not None
    weights = [weight.detach().flatten() for weight in game.model.parameters()]
    return torch.cat([*weights, users.vectors[: len(users)].flatten()])


@pytest.mark.parametrize(("kind", "optimizer"), PAIRS)
def test_every_learner_goes_with_every_optimizer(kind: str, optimizer: str) -> None:
    results = []
    for _ in range(2):
        game = parts(kind, optimizer)
        rounds = game.play(stream(12))
        assert len(rounds) == 12
        released = sum(r.released for r in rounds)
        chosen = game.optimizer
        waiting = len(chosen.validation) if isinstance(chosen, ConGraD) else 0
        assert released + waiting == 12 * 4  # nothing is lost on the way
        assert len(game.memory) == 9
        assert all(0 <= r.steps.kept <= r.steps.taken <= 3 for r in rounds)
        assert all(set(r.seconds) == {"pay", "admit", "descend", "remember"} for r in rounds)
        results.append((flat(game), [r.paid.nats.tolist() for r in rounds]))
    assert torch.equal(results[0][0], results[1][0])  # one seed, one result
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize(("kind", "optimizer"), PAIRS)
def test_the_loss_is_paid_before_anything_is_learned_from_the_batch(
    kind: str, optimizer: str
) -> None:
    game, batches = parts(kind, optimizer), stream(8)
    for batch in batches:
        before = game.model.pay(batch).nats.tolist()
        (played,) = game.play([batch])
        assert played.paid.nats.tolist() == before
    assert any(game.model.pay(batch).nats.tolist() != before for batch in batches)


def test_a_batch_s_words_do_not_leak_into_its_own_prediction() -> None:
    """Two streams that differ in the words of one batch: what came before, and the prediction of
    the same first word in it, cost the same."""
    paid = []
    for word in (5, 17):
        batches = stream(4)
        batches[2].tokens[1:3] = (9, word)
        rounds = parts("online-only", "online-gd").play(batches)
        paid.append([r.paid.nats.tolist() for r in rounds])
    assert paid[0][:2] == paid[1][:2]
    assert paid[0][2][1:] == paid[1][2][1:]  # the other posts of that batch
    assert paid[0][3] != paid[1][3]
