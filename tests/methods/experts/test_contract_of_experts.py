"""One contract for every expert, the one that the docs show included."""

from typing import Any

import numpy as np
import pytest

from firehose.errors import FirehoseError
from firehose.methods.experts import EXPERTS, Expert
from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.mixture import Mixture
from firehose.methods.predictor import PREDICTORS, RawWeights
from firehose.methods.step import Setup
from small_methods import same, shown, stored, stream
from small_models import PIECES, tiny

ALL = {kind: kind for kind in EXPERTS.built_in} | shown("add-an-expert.md")
USER = 1
every_kind = pytest.mark.parametrize("kind", ALL.values(), ids=ALL)


def make(kind: str) -> Expert:
    return EXPERTS.make(EXPERTS.settings(kind), Setup(tiny("adapters")))


def ask(expert: Expert, batch: Any) -> Any:
    contexts = Contexts.of(batch, expert.reach)
    return expert.look(contexts, np.tile(np.arange(PIECES), (len(contexts), 1)))


@every_kind
def test_an_opinion_is_a_distribution_where_it_speaks(kind: str) -> None:
    expert, batches = make(kind), stream(8)
    features = None
    for batch in batches:
        before = stored(expert.state())
        said = ask(expert, batch)
        assert same(before, stored(expert.state()))  # to look changes nothing
        places = int((batch.lengths - 1).sum())
        assert said.probability.shape == (len(expert.opinions), places, PIECES)
        assert said.speaks.shape == (len(expert.opinions), places)
        assert said.features.shape[1] == places
        assert said.probability.dtype == said.features.dtype == np.float32
        assert said.probability.sum(2) == pytest.approx(said.speaks.astype(float), abs=1e-5)
        assert (said.probability >= 0).all() and np.isfinite(said.features).all()
        assert features is None or len(said.features) == features
        features = len(said.features)
        expert.learn(batch)
    expert.learn(batch)
    assert ask(expert, batch).speaks.any(1).all()  # no opinion is silent everywhere


@every_kind
def test_what_weights_depend_on_does_not_depend_on_the_pieces_asked_for(kind: str) -> None:
    expert, batches = make(kind), stream(8)
    for batch in batches:
        expert.learn(batch)
    contexts = Contexts.of(batches[0], expert.reach)
    every = ask(expert, batches[0])
    for piece in (2, 9):
        said = expert.look(contexts, np.full((len(contexts), 1), piece))
        assert np.array_equal(said.probability[:, :, 0], every.probability[:, :, piece])
        assert np.array_equal(said.speaks, every.speaks)
        assert np.array_equal(said.features, every.features)


@every_kind
def test_only_candidates_are_possible(kind: str) -> None:
    expert, batches = make(kind), stream(8)
    for batch in batches[:6]:
        expert.learn(batch)
    for batch in batches:
        possible = (ask(expert, batch).probability > 0).any(0)
        candidates = expert.candidates(Contexts.of(batch, expert.reach), PIECES)
        assert candidates.shape == possible.shape and (candidates >= possible).all()


@every_kind
def test_it_goes_on_from_its_state_to_the_same_bits(kind: str) -> None:
    whole, resumed, batches = make(kind), make(kind), stream(8)
    for batch in batches[:4]:
        whole.learn(batch)
    resumed.restore(stored(whole.state()))
    for batch in batches[4:]:
        for one, other in zip(ask(whole, batch), ask(resumed, batch), strict=True):
            assert np.array_equal(one, other)
        for expert in (whole, resumed):
            expert.learn(batch)
    assert same(stored(whole.state()), stored(resumed.state()))


@every_kind
def test_who_is_forgotten_might_never_have_been_there(kind: str) -> None:
    expert, other, batches = make(kind), make(kind), stream(8)
    for batch in batches:
        expert.learn(batch)
        other.learn(batch.select(np.flatnonzero(batch.user != USER)))
    assert USER in expert.users() and USER not in other.users()
    assert expert.forget(USER) > 0
    assert expert.forget(USER) == expert.forget(10**6) == 0
    assert expert.users().tolist() == other.users().tolist()
    for batch in batches:
        for one, two in zip(ask(expert, batch), ask(other, batch), strict=True):
            assert np.array_equal(one, two)


@every_kind
def test_what_is_left_out_might_never_have_been_learned_and_is_there_afterwards(kind: str) -> None:
    expert, other, batches = make(kind), make(kind), stream(8)
    for number, batch in enumerate(batches):
        expert.learn(batch)
        if number != 3:
            other.learn(batch)
    before = stored(expert.state())
    with expert.without(batches[3]):
        one, two = (ask(each, batches[3]) for each in (expert, other))
        for name in ("probability", "speaks") if expert.leaves_out else ():
            assert np.array_equal(getattr(one, name), getattr(two, name))
    assert same(before, stored(expert.state()))


@every_kind
def test_a_mixture_with_it_pays_less_for_what_it_has_seen(kind: str) -> None:
    settings = PREDICTORS.settings({"kind": "mixture", "experts": [kind], "rate": 0.03})
    mixed = PREDICTORS.make(settings, Setup(tiny("adapters")), [RawWeights()])
    assert isinstance(mixed, Mixture)
    (batch,) = stream(1)
    before = mixed.pay(batch).nats.sum()
    for _ in range(9):
        mixed.learn(batch)
    assert mixed.pay(batch).nats.sum() < 0.95 * before


@every_kind
def test_settings_that_are_unknown_are_refused(kind: str) -> None:
    assert EXPERTS.settings(kind).kind == kind
    with pytest.raises(FirehoseError, match="Unknown key 'hue' in the expert "):
        EXPERTS.settings({"kind": kind, "hue": 3})
