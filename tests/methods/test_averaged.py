"""The optimizer ``averaged``: what it leaves to another one, what it saves, what it refuses."""

import numpy as np
import pytest
import torch

from firehose.errors import FirehoseError
from firehose.game.assembly import Game
from firehose.game.settings import make_settings
from firehose.methods.optimizers.averaged import Averaged
from firehose.methods.optimizers.congrad import ConGraD
from small_methods import Parts, adam, buffer, learner, optimizer, step, stream
from small_models import TINY_GAME, awake, tiny

HELD_BACK = {"kind": "congrad", "validation": {"kind": "fifo", "posts": 5}, "validation_batch": 4}


@pytest.mark.parametrize("inner", [{"kind": "online-gd"}, HELD_BACK])
def test_learning_goes_on_as_without_averages(inner: dict[str, object]) -> None:
    found = []
    for settings in (inner, {"kind": "averaged", "inner": inner}):
        model = tiny("adapters")
        chosen = optimizer(rule=adam(model, 0.01), **settings)
        parts = (learner("mixed-replay", 4), chosen, buffer(posts=9), np.random.default_rng(1))
        found.append(Parts(model, *parts))
    rounds = [game.play(stream()) for game in found]
    assert [r.steps for r in rounds[0]] == [r.steps for r in rounds[1]]
    for plain, averaged in zip(*(game.model.parameters() for game in found), strict=True):
        assert torch.equal(plain, averaged)
    assert rounds[0][-1].paid.nats.tolist() != rounds[1][-1].paid.nats.tolist()


def test_the_average_is_of_what_each_round_ends_with() -> None:
    model = tiny("adapters")
    chosen = optimizer("averaged", adam(model, 0.01), 2, horizons=[0.5, 100])
    assert isinstance(chosen, Averaged)
    game = Parts(
        model, learner("online-only", 4), chosen, buffer(posts=9), np.random.default_rng(1)
    )
    expected = [model.shared.embedding.detach().clone() for _ in range(2)]
    for number, batch in enumerate(stream(4)):
        game.play([batch])
        for place, share in enumerate((1 / 2, 1 / 3)):
            decays = [n * share / (1 + n * share) for n in (2 * number + 1, 2 * number + 2)]
            left = decays[0] * decays[1]
            now = model.shared.embedding.detach()
            expected[place] = left * expected[place] + (1 - left) * now
    for average, wanted in zip(chosen.averages, expected, strict=True):
        found = dict(zip(average.names, average.shared, strict=True))["shared.embedding"]
        assert torch.allclose(found, wanted, atol=1e-6)
    assert [weights.name for weights in chosen.weights] == ["average 0.5", "average 100", "raw"]


def test_congrad_may_go_on_from_an_average() -> None:
    model = awake(tiny("adapters"))
    rule = adam(model, 10.0)  # every step is a disaster
    chosen = optimizer("averaged", rule, 3, inner=HELD_BACK, candidates=True)
    assert isinstance(chosen, Averaged) and isinstance(chosen.inner, ConGraD)
    chosen.admit(stream()[0], np.random.default_rng(0))
    before = [weight.detach().clone() for weight in model.parameters()]
    with torch.no_grad():  # the raw weights are worse than what they were
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight))
    steps = chosen.descend(step(model, learner("online-only", 4), stream()[1], rule=rule))
    assert (steps.taken, steps.kept) == (3, 0)
    assert len(steps.losses) == 5 and np.argmin(steps.losses) == 4
    assert all(map(torch.equal, before, model.parameters()))
    steps = chosen.descend(step(model, learner("online-only", 4), stream()[1], rule=rule))
    assert steps.losses[0] == steps.losses[4]  # which it has gone on from
    assert all(map(torch.equal, before, model.parameters()))


def test_candidates_need_congrad() -> None:
    with pytest.raises(FirehoseError, match="online-gd has no candidates"):
        optimizer("averaged", adam(tiny("adapters"), 0.01), candidates=True)


@pytest.mark.parametrize("horizon", [0, 1, -3])
def test_a_horizon_that_is_none_is_refused(horizon: float) -> None:
    with pytest.raises(FirehoseError, match="a horizon is a number of steps above 1"):
        optimizer("averaged", adam(tiny("adapters"), 0.01), horizons=[horizon])


def test_the_settings_and_the_rate_of_a_recipe_are_those_of_the_inner_optimizer() -> None:
    made = make_settings("demo", ["play.optimizer.kind=averaged", "play.optimizer.inner=congrad"])
    plain = make_settings("demo", ["play.optimizer=congrad"])
    chosen = made.play.optimizer
    assert isinstance(chosen, Averaged.Settings)
    assert chosen.inner == plain.play.optimizer
    assert made.play.rule == plain.play.rule
    descent = make_settings("demo", ["play.optimizer=averaged"]).play
    assert descent.rule == make_settings("demo", ["play.optimizer=online-gd"]).play.rule


@pytest.mark.parametrize(("own", "expected"), [({}, 0.1), ({"averaged": 0.2}, 0.2)])
def test_the_rate_is_that_of_the_inner_optimizer_or_its_own(
    own: dict[str, float], expected: float
) -> None:
    rates = {"congrad": 0.3, "online-gd": 0.1, **own}
    chosen = {"optimizer": "averaged", "rule": {"rate": rates}}
    assert make_settings(play=chosen).play.rule.public()["rate"] == expected


def test_who_is_forgotten_is_in_no_average() -> None:
    settings = ["play.optimizer=averaged", "play.optimizer.horizons=[0.2, 40]"]
    game = Game(tiny("adapters"), make_settings(assignments=TINY_GAME + settings).play)
    for _ in game.rounds(stream(6)):
        pass
    users, chosen = game.model.users, game.optimizer
    assert users is not None and isinstance(chosen, Averaged)
    (row,) = users.rows(np.array([2]))
    own = [average.rows.now(torch.tensor([row]))[0] for average in chosen.averages if average.rows]
    game.forget(2)
    for average, vector in zip(chosen.averages, own, strict=True):
        assert average.rows is not None
        left = average.rows.now(torch.arange(len(users)))
        assert not (left == vector).all(1).any()
        assert torch.allclose(average.rows.total.float(), left.sum(0), atol=1e-5)
        assert not average.rows.values[len(users) :].any()
