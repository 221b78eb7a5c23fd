"""Learners, optimizers, buffers and update rules with small settings, and steps made of them."""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from firehose.batch import Batch
from firehose.game.round import Round, play
from firehose.methods.buffers import BUFFERS, Buffer
from firehose.methods.learners import LEARNERS, Learner
from firehose.methods.optimizers import OPTIMIZERS, Optimizer
from firehose.methods.optimizers.congrad import ConGraD
from firehose.methods.predictor import ModelPredictor
from firehose.methods.step import Setup, Step
from firehose.models.model import Model, WeightSet
from firehose.optim.adam import Adam
from firehose.optim.rule import RULES, UpdateRule
from firehose.optim.sgd import SGD
from firehose.storage.checkpoints import pack, unpack
from small_models import batch_of

MAX_TOKENS = 8
DOCS = Path(__file__).parents[1] / "docs"
_SHOWN = tempfile.TemporaryDirectory()  # the files that pages of the docs show


def shown(page: str) -> dict[str, str]:
    """The plug-ins that a page of the docs shows: the name of each class, and its kind."""
    text = (DOCS / page).read_text(encoding="utf-8")
    kinds = {}
    for title, code in re.findall(r"```python title=(\S+)\n(.*?)```", text, re.DOTALL):
        path = Path(_SHOWN.name) / title
        path.write_text(code, encoding="utf-8")
        (name,) = re.findall(r"^class (\w+)", code, re.MULTILINE)
        kinds[name] = f"{path}:{name}"
    return kinds


def model_predictor(model: Model, weights: Sequence[WeightSet]) -> ModelPredictor:
    """What pays with a model alone."""
    return ModelPredictor(ModelPredictor.Settings(), Setup(model), weights)


def buffer(
    kind: str = "reservoir",
    max_tokens: int = MAX_TOKENS,
    setup: Setup = Setup(),  # noqa: B008 (it cannot be changed)
    **limit: Any,
) -> Buffer:
    """A buffer; its limit is ``posts`` or ``per_user``."""
    settings = BUFFERS.settings({"kind": kind, **limit})
    return BUFFERS.make(settings, setup._replace(max_tokens=max_tokens))


def learner(kind: str, step_size: int, model: Model | None = None, **settings: Any) -> Learner:
    """A learner whose steps have so many posts."""
    return LEARNERS.make(LEARNERS.settings({"kind": kind, **settings}), Setup(model, step_size))


def adam(model: Model, rate: float, warmup: int = 0, **settings: Any) -> Adam:
    """Adam, at its full rate from the beginning."""
    rule = RULES.make(RULES.settings({"rate": rate, "warmup": warmup, **settings}), model)
    assert isinstance(rule, Adam)
    return rule


def sgd(model: Model, rate: float, **settings: Any) -> SGD:
    """Plain gradient descent."""
    rule = RULES.make(RULES.settings({"kind": "sgd", "rate": rate, **settings}), model)
    assert isinstance(rule, SGD)
    return rule


def optimizer(kind: str, rule: UpdateRule, steps: int = 3, **settings: Any) -> Optimizer:
    """An optimizer that takes up to so many steps a round."""
    model: Any = rule.model
    setup = Setup(model, steps=steps, max_tokens=model.max_tokens)
    return OPTIMIZERS.make(OPTIMIZERS.settings({"kind": kind, **settings}), setup, rule)


def online_gd(rule: UpdateRule, steps: int = 3) -> Optimizer:
    """Online GD."""
    return optimizer("online-gd", rule, steps)


def congrad(rule: UpdateRule, steps: int = 3, validation: int = 5, **settings: Any) -> ConGraD:
    """ConGraD; it holds so many of the newest posts back, and compares on four of them."""
    held = {"kind": "fifo", "posts": validation}
    made = optimizer(
        "congrad", rule, steps, **{"validation": held, "validation_batch": 4} | settings
    )
    assert isinstance(made, ConGraD)
    return made


def step(
    model: Model,
    learner: Learner,
    released: Batch,
    memory: Buffer | None = None,
    generator: np.random.Generator | int = 0,
    rule: UpdateRule | None = None,
) -> Step:
    """One step; a generator may be given as its seed."""
    held = memory if memory is not None else buffer(posts=9)
    drawn = np.random.default_rng(generator)
    return Step(model, learner, released, held, drawn, rule or adam(model, 0.01))


def stream(rounds: int = 6, posts: int = 4, seed: int = 0) -> list[Batch]:
    """Batches of short posts by more and more users; the time of a post is its number."""
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


def _in_one_place(found: Any) -> Tensor:
    return found if isinstance(found, Tensor) else torch.from_numpy(np.asarray(found))


def stored(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state as a checkpoint gives it back: through a file of tensors and one of JSON."""
    tensors, values = pack(state)
    whole = {name: _in_one_place(each).contiguous() for name, each in tensors.items()}
    file = safetensors.torch.save(whole)
    return unpack(safetensors.torch.load(file), json.loads(json.dumps(values)))


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal to the bit."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


class Parts(NamedTuple):
    """The parts of a game."""

    model: Model
    learner: Learner
    optimizer: Optimizer
    memory: Buffer
    generator: np.random.Generator

    def play(self, batches: list[Batch]) -> list[Round]:
        """All rounds of a game with these batches."""
        return list(play(batches, self.predictor(), *self))

    def predictor(self) -> ModelPredictor:
        """What pays."""
        return model_predictor(self.model, self.optimizer.weights)

    def state(self) -> dict[str, Any]:
        """The state of all parts, as a checkpoint gives it back."""
        state = {name: getattr(self, name).state() for name in self._fields[:-1]}
        state["rule"] = self.optimizer.rule.state()
        return stored(state | {"generator": self.generator.bit_generator.state})

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Go on from the state of other parts of the same kinds."""
        for name in self._fields[:-1]:
            getattr(self, name).restore(state[name])
        self.optimizer.rule.restore(state["rule"])
        self.generator.bit_generator.state = state["generator"]
        return self
