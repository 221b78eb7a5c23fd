"""The mixture: a distribution, decided before it learns, never much worse than its best part."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from firehose.errors import FirehoseError
from firehose.methods.experts import Evidence
from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.gate import Gate
from firehose.methods.experts.mixture import Mixture
from firehose.methods.experts.posterior import Posterior
from firehose.methods.predictor import PREDICTORS, RawWeights
from firehose.methods.step import Setup
from firehose.models.model import Outlook
from firehose.models.personal import SHARE, predicted_places
from small_methods import stream
from small_models import PIECES, awake, tiny

WEIGHINGS = ("network", "posterior")
every_weighing = pytest.mark.parametrize("weighing", WEIGHINGS)


def mixture(**chosen: Any) -> Mixture:
    settings = PREDICTORS.settings({"kind": "mixture", **chosen})
    made = PREDICTORS.make(settings, Setup(awake(tiny("adapters"))), [RawWeights()])
    assert isinstance(made, Mixture)
    return made


def evidence(generator: np.random.Generator, opinions: int, places: int) -> Evidence:
    """Something that opinions could say of three pieces; the last one always speaks."""
    probability = generator.dirichlet(np.ones(3), (opinions, places)).astype(np.float32)
    speaks = generator.random((opinions, places)) < 0.7
    speaks[-1] = True
    probability *= speaks[:, :, None]
    features = generator.normal(size=(4, places)).astype(np.float32)
    return Evidence(probability, speaks, features)


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(FirehoseError, match="weight_sets = 2, but the optimizer has 1"):
        mixture(weight_sets=2)
    settings = PREDICTORS.settings("mixture")
    with pytest.raises(FirehoseError, match="pictures need"):
        PREDICTORS.make(settings, Setup(object()), [RawWeights()])


def test_another_seed_of_the_game_is_another_network() -> None:
    """So that two seeds of a mixture are two, even where the model never takes a step."""

    def weights(seed: int, own: int = 0) -> list[float]:
        settings = PREDICTORS.settings({"kind": "mixture", "seed": own})
        made = PREDICTORS.make(settings, Setup(tiny("adapters"), seed=seed), [RawWeights()])
        return [float(each.sum()) for each in made.state()["gate"]["weights"].values()]

    assert weights(0) == weights(0) != weights(1) == weights(0, own=1)


@every_weighing
def test_it_sums_to_1_over_all_pieces(weighing: str) -> None:
    mixed = mixture(weighing=weighing)
    batches = stream(6)
    for batch in batches:
        mixed.learn(batch)
    contexts = Contexts.of(batches[3], mixed.reach)
    places = len(contexts)
    every = np.tile(np.arange(PIECES), (places, 1))
    of_model = np.random.default_rng(0).dirichlet(np.ones(PIECES), (1, places))
    said = mixed.gather(contexts, every, [Outlook(*np.zeros((3, places)))], of_model)
    total = mixed.gate.mix(said).sum(1)
    assert total == pytest.approx(np.ones(places), abs=1e-5)
    assert len(mixed.opinions) == len(said.speaks)
    heard = said.speaks.sum(0)
    assert heard.min() >= 2 < heard.max()  # the model and the uniform one; memories besides
    alone = said.probability.sum(2)
    assert alone == pytest.approx(said.speaks.astype(float), abs=1e-5)


@pytest.mark.parametrize("weight_sets", [0, 1])
def test_what_is_said_of_all_pieces_is_what_is_said_of_each(weight_sets: int) -> None:
    mixed = mixture(weight_sets=weight_sets)
    for batch in stream(4):
        mixed.pay(batch)
        mixed.learn(batch)
    tokens = stream(1)[0].tokens[:4].astype(np.int64)
    texts = np.stack([tokens, tokens[[0, 2, 1, 3]], tokens[[0, 3, 3, 3]]])
    drawn = torch.randn(3, PIECES, generator=torch.Generator().manual_seed(0)).double()
    logs = drawn.log_softmax(1)
    said = mixed.speak(torch.from_numpy(texts), 1, [logs] * weight_sets)
    contexts = Contexts.of_rows(texts, 1, mixed.reach)
    sure, entropy = logs.amax(1).numpy(), -(logs.exp() * logs).sum(1).numpy()
    of_model = np.array([logs.exp().numpy()] * weight_sets).reshape(weight_sets, 3, PIECES)
    every = np.tile(np.arange(PIECES), (3, 1))
    outlooks = [Outlook(sure, sure, entropy)] * weight_sets
    expected = mixed.gate.mix(mixed.gather(contexts, every, outlooks, of_model))
    assert said.exp().numpy() == pytest.approx(expected, rel=1e-5)
    assert mixed.experts[0].candidates(contexts, PIECES).any()


@every_weighing
def test_paying_changes_nothing_and_the_order_of_posts_does_not_matter(weighing: str) -> None:
    mixed = mixture(weighing=weighing)
    *batches, last = stream(6)
    for batch in batches:
        mixed.learn(batch)
    paid = mixed.pay(last).nats
    assert mixed.pay(last).nats.tolist() == paid.tolist()
    mixed.pay(batches[0])  # and something else in between
    order = np.array([2, 0, 3, 1])
    assert mixed.pay(last.select(order)).nats == pytest.approx(paid[order], rel=1e-6)
    assert mixed.pay(last.select(order[:1])).nats == pytest.approx(paid[order[:1]], rel=1e-6)
    mixed.learn(last)
    assert not np.allclose(mixed.pay(last).nats, paid)


@every_weighing
def test_a_round_is_paid_before_it_is_learned_from(weighing: str) -> None:
    """Two streams that differ in the words of one round: what came before costs the same."""
    paid = []
    for word in (5, 17):
        batches = stream(4)
        batches[2].tokens[1:3] = (9, word)
        mixed = mixture(weighing=weighing)
        costs = []
        for batch in batches:
            costs.append(mixed.pay(batch).nats.tolist())
            mixed.learn(batch)
        paid.append(costs)
    assert paid[0][:2] == paid[1][:2]
    assert paid[0][2][1:] == paid[1][2][1:]
    assert paid[0][3] != paid[1][3]


def test_what_was_paid_is_what_is_learned_from_whether_or_not_it_is_kept() -> None:
    one, other = mixture(), mixture()
    for batch in stream(4):
        one.pay(batch)
        one.learn(batch)
        other.learn(batch)
    last = stream(5)[-1]
    assert one.pay(last).nats.tolist() == other.pay(last).nats.tolist()


def test_a_model_that_learns_by_its_share_descends_what_the_mixture_pays() -> None:
    """Against differences, while all opinions weigh the same, whatever the model says."""
    mixed = mixture()
    *past, batch = stream(6)
    mixed.prime(past)
    model = mixed.model
    model.max_tokens = int(batch.lengths.max())

    def paid() -> float:
        return float((mixed.pay(batch).nats / (batch.lengths - 1)).mean())

    paid()
    lesson = mixed.to_learn_from(batch)
    share = lesson.per_token[SHARE][predicted_places(batch)]
    assert 0 < share.min() < 0.9 * share.max() < 1
    gradient = model.gradient(lesson)
    assert gradient.loss == pytest.approx(model.cost(lesson), rel=1e-5)
    weight, names = model.shared.output_bias, [name for name, _ in model.named_parameters()]
    slope = gradient.shared[names.index("shared.output_bias")]
    assert slope is not None
    for piece in range(0, PIECES, 5):
        costs = []
        for change in (0.01, -0.02):
            with torch.no_grad():
                weight[piece] += change
            costs.append(paid())
        with torch.no_grad():
            weight[piece] += 0.01
        assert (costs[0] - costs[1]) / 0.02 == pytest.approx(float(slope[piece]), abs=1e-5)


def test_a_model_can_learn_as_if_it_were_alone() -> None:
    batch = stream(1)[0]
    for chosen in ({"learn_by_share": False}, {"weight_sets": 0}):
        assert mixture(**chosen).to_learn_from(batch) is batch


def test_the_gate_s_steps_follow_the_gradient() -> None:
    """Against autograd, and Adam of torch."""
    generator = np.random.default_rng(0)
    gate = Gate(4, 5, hidden=6, rate=0.01, seed=3, steps=1)
    copies = [each.clone().requires_grad_() for each in gate.parameters]
    adam = torch.optim.Adam(copies, lr=0.01)
    for _ in range(5):
        said = evidence(generator, 5, 40)
        gate.learn(said, np.zeros(40, np.int64))
        inner = (torch.from_numpy(said.features.T) @ copies[0].T + copies[1]).relu()
        logits = inner @ copies[2].T + copies[3]
        weights = logits.masked_fill(~torch.from_numpy(said.speaks.T), -torch.inf).softmax(1)
        mixed = (weights * torch.from_numpy(said.probability[:, :, 0].T)).sum(1)
        adam.zero_grad()
        (-mixed.log().mean()).backward()
        adam.step()
    for one, other in zip(gate.parameters, copies, strict=True):
        assert one.numpy() == pytest.approx(other.detach().numpy(), abs=2e-5)


def test_weights_do_not_depend_on_the_pieces_asked_for() -> None:
    said = evidence(np.random.default_rng(0), 5, 30)
    gate = Gate(4, 5, hidden=6, rate=0.1, seed=0)
    gate.learn(said, np.zeros(30, np.int64))
    other = said._replace(probability=said.probability[:, :, ::-1].copy())
    assert torch.equal(gate.weights(said), gate.weights(other))
    assert gate.weights(said)[~torch.from_numpy(said.speaks.T)].abs().max() == 0
    assert gate.weights(said).std(0).max() > 0.01  # they depend on the place


posts = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(posts, st.integers(1, 6), st.integers(0, 10**6), st.floats(0.05, 5))
def test_the_posterior_pays_no_more_than_ln_n_more_than_the_best(
    lengths: list[int], opinions: int, seed: int, spread: float
) -> None:
    generator, gate = np.random.default_rng(seed), Posterior(opinions)
    paid, each = 0.0, np.zeros(opinions)
    for length in lengths:
        probability = generator.dirichlet(np.full(4, spread), (opinions, length)) + 1e-9
        probability = (probability / probability.sum(2, keepdims=True)).astype(np.float32)
        always = np.ones((opinions, length), bool)
        said = Evidence(probability, always, np.zeros((0, length), np.float32))
        post = np.zeros(length, np.int64)
        paid -= np.log(gate.mix(said, post)[:, 0]).sum()
        each -= np.log(probability[:, :, 0].astype(np.float64)).sum(1)
        gate.learn(said, post)
        # It is Bayes' mixture, so the cost is known, and not only bounded.
        assert paid == pytest.approx(np.log(opinions) - np.logaddexp.reduce(-each), abs=1e-5)
    assert paid <= each.min() + np.log(opinions) + 1e-6


def test_the_posterior_against_a_plain_loop_with_several_posts_and_silence() -> None:
    generator, gate, weights = np.random.default_rng(1), Posterior(4), np.full(4, 0.25)
    for _ in range(3):
        said = evidence(generator, 4, 12)
        post = np.repeat([0, 1, 2], [5, 1, 6])
        expected, after = [], weights.copy()
        for number in range(3):
            here = weights.copy()
            for place in np.flatnonzero(post == number):
                speaking = here * said.speaks[:, place]
                mixed = speaking / speaking.sum() @ said.probability[:, place]
                expected.append(mixed)
                paid = np.where(said.speaks[:, place], said.probability[:, place, 0], mixed[0])
                here, after = here * paid, after * paid
        assert gate.mix(said, post) == pytest.approx(np.array(expected), rel=1e-5)
        gate.learn(said, post)
        weights = after / after.sum()
    assert np.exp(gate.logs) / np.exp(gate.logs).sum() == pytest.approx(weights, rel=1e-5)
