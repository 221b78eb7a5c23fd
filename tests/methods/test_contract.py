"""One contract for every learner with every optimizer, those that the docs show included.

They play with posts and a model that knows users, and with pictures and one that does not.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from firehose.batch import Batch
from firehose.data.pictures.files import Pictures
from firehose.data.pictures.tasks import as_posts
from firehose.errors import FirehoseError
from firehose.methods.learners import LEARNERS
from firehose.methods.optimizers import OPTIMIZERS
from firehose.methods.optimizers.congrad import ConGraD
from firehose.methods.step import Setup, Step
from firehose.models.model import Model
from firehose.models.perceptron import Perceptron
from firehose.models.personal import Personal
from firehose.plugins import Registry
from small_methods import Parts, adam, buffer, learner, optimizer, same, sgd, shown, stream
from small_models import TINY, tiny

SHOWN_LEARNERS, SHOWN_OPTIMIZERS = shown("add-a-learner.md"), shown("add-an-optimizer.md")
ALL_LEARNERS = {kind: kind for kind in LEARNERS.built_in} | SHOWN_LEARNERS
ALL_OPTIMIZERS = {kind: kind for kind in OPTIMIZERS.built_in} | SHOWN_OPTIMIZERS
ALL_OPTIMIZERS |= {"averaged-congrad": "averaged"}
HELD_BACK = {"validation": {"kind": "fifo", "posts": 5}, "validation_batch": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "gem": {"tasks": 3},
    "congrad": HELD_BACK,
    "averaged": {"horizons": [0.3, 3]},
    "averaged-congrad": {"inner": {"kind": "congrad", **HELD_BACK}, "candidates": True},
}
ROUNDS, STORED = 9, 4  # the rounds of a game, and those after which it is stored
PIXELS, TASK = 6, 8  # the pixels of a picture, the pictures of a task
SHAPE = TINY.model_copy(update={"layers": 1, "dropout": 0.1})


class Case(NamedTuple):
    """A learner and an optimizer, by name, and what they play with."""

    learner: str
    optimizer: str
    world: str

    def parts(self, seed: int = 0) -> Parts:
        """A game before its first round; the seed is that of the model's weights."""
        model = self._model(seed)
        setup = Setup(model, task_sizes=(TASK,) * ROUNDS)
        kind = "exemplars" if self.learner == "icarl" else "reservoir"
        rule = adam(model, 0.01) if self.world == "posts" else sgd(model, 0.1)
        return Parts(
            model,
            learner(ALL_LEARNERS[self.learner], 4, model, **SETTINGS.get(self.learner, {})),
            optimizer(ALL_OPTIMIZERS[self.optimizer], rule, 2, **SETTINGS.get(self.optimizer, {})),
            buffer(kind, model.max_tokens, setup, posts=10),
            np.random.default_rng(1),
        )

    def batches(self) -> list[Batch]:
        """Batches of four posts, whose times are their numbers."""
        if self.world == "posts":
            return stream(ROUNDS)
        generator = np.random.default_rng(0)
        batches: list[Batch] = []
        for number in range(ROUNDS):
            pixels = generator.integers(0, 256, (4, PIXELS), dtype=np.uint8)
            classes = generator.integers(0, 3, 4, dtype=np.uint8)
            batch = as_posts(Pictures(pixels, classes), number * 4 // TASK)
            batch.time[:] = number * 4 + np.arange(4)
            batches.append(batch)
        return batches

    def _model(self, seed: int) -> Model:
        if self.world == "pictures":
            return Perceptron(PIXELS, 3, (5,), seed)
        return tiny("adapters", seed, shape=SHAPE)


CASES = [
    Case(*case)
    for case in itertools.product(ALL_LEARNERS, ALL_OPTIMIZERS, ("posts", "pictures"))
    # iCaRL needs classes, and the pictures of a task together.
    if case[0] != "icarl" or (case[2] == "pictures" and "congrad" not in case[1])
]
every_case = pytest.mark.parametrize("case", CASES, ids="-".join)


@every_case
def test_every_learner_goes_with_every_optimizer(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = case.parts()
    remembered = recorded(game, monkeypatch)
    rounds = game.play(case.batches())
    assert len(rounds) == ROUNDS
    chosen = getattr(game.optimizer, "inner", game.optimizer)
    waiting = chosen.validation.all().time.tolist() if isinstance(chosen, ConGraD) else []
    assert sorted(remembered + waiting) == list(range(4 * ROUNDS))  # nothing is lost on the way
    assert sum(r.released for r in rounds) == len(remembered)
    assert len(game.memory) == (7 if case.learner == "icarl" else 10)
    assert all(0 <= r.steps.kept <= r.steps.taken <= 2 for r in rounds)
    assert (sum(r.steps.kept for r in rounds) > 0) == (case.optimizer != "frozen")
    assert all((r.steps.tokens > 0) == (r.steps.taken > 0) for r in rounds)
    assert all(set(r.seconds) == {"pay", "admit", "descend", "remember"} for r in rounds)


def recorded(game: Parts, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The times of all posts that will go into the memory."""
    times: list[int] = []
    push = game.memory.push

    def note(batch: Batch, generator: np.random.Generator) -> Batch:
        times.extend(batch.time.tolist())
        return push(batch, generator)

    monkeypatch.setattr(game.memory, "push", note)
    return times


@every_case
def test_the_loss_is_paid_before_anything_is_learned_from_the_batch(case: Case) -> None:
    game, batches = case.parts(), case.batches()
    at_first = [game.model.pay(batch).nats.tolist() for batch in batches]
    for batch in batches:
        before = game.predictor().pay(batch).nats.tolist()
        (played,) = game.play([batch])
        assert played.paid.nats.tolist() == before
    in_the_end = [game.model.pay(batch).nats.tolist() for batch in batches]
    assert (in_the_end != at_first) == (case.optimizer != "frozen")


def test_a_batch_s_words_do_not_leak_into_its_own_prediction() -> None:
    """Two streams that differ in the words of one batch: what came before, and the prediction of
    the same first word in it, cost the same."""
    paid = []
    for word in (5, 17):
        batches = stream(4)
        batches[2].tokens[1:3] = (9, word)
        rounds = Case("online-only", "online-gd", "posts").parts().play(batches)
        paid.append([r.paid.nats.tolist() for r in rounds])
    assert paid[0][:2] == paid[1][:2]
    assert paid[0][2][1:] == paid[1][2][1:]  # the other posts of that batch
    assert paid[0][3] != paid[1][3]


WITH_GD = [case for case in CASES if case.optimizer == "online-gd"]


@pytest.mark.parametrize("case", WITH_GD, ids="-".join)
def test_a_gradient_changes_neither_model_nor_memory(case: Case) -> None:
    game, batches = case.parts(), case.batches()
    game.play(batches[:STORED])
    if isinstance(game.model, Personal):
        game.model.eval()  # masks of dropout would be drawn
        game.model.users.take(np.arange(ROUNDS + 3), learn=True)  # who is new would get a row
    released = batches[STORED - 1]
    copies = [column.copy() for column in (released.tokens, released.user, released.offsets)]
    before = game.state()
    rule = game.optimizer.rule
    step = Step(game.model, game.learner, released, game.memory, game.generator, rule)
    assert game.learner.gradient(step) is not None
    after = game.state()
    for part in ("model", "memory", "rule", "optimizer"):
        assert same(before[part], after[part]), part
    now = (released.tokens, released.user, released.offsets)
    assert all((one == other).all() for one, other in zip(copies, now, strict=True))


@every_case
def test_a_game_is_the_same_to_the_bit_also_where_it_was_stored_in_between(case: Case) -> None:
    whole, begun, resumed = case.parts(), case.parts(), case.parts(seed=9)
    rounds = whole.play(case.batches())
    repeated = begun.play(case.batches()[:STORED])
    state = begun.state()
    resumed.generator.random(3)  # what it was before does not matter
    resumed.restore(state)
    assert same(resumed.state(), state)
    repeated += resumed.play(case.batches()[STORED:])
    for one, other in zip(rounds, repeated, strict=True):
        assert one.paid.nats.tolist() == other.paid.nats.tolist()
        assert (one.steps, one.released) == (other.steps, other.released)
    assert same(whole.state(), resumed.state())


KINDS = [
    *((LEARNERS, kind) for kind in ALL_LEARNERS.values()),
    *((OPTIMIZERS, kind) for kind in ALL_OPTIMIZERS.values()),
]


@pytest.mark.parametrize(
    ("registry", "kind"), KINDS, ids=lambda part: getattr(part, "what", str(part).split(":")[-1])
)
def test_settings_that_are_unknown_are_refused(registry: Registry[Any], kind: str) -> None:
    assert registry.settings(kind).kind == kind
    with pytest.raises(FirehoseError, match=f"Unknown key 'hue' in the {registry.what} "):
        registry.settings({"kind": kind, "hue": 3})
