"""The methods that play with pictures: any learner, any optimizer, and what they are made of."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from firehose.batch import Batch
from firehose.config import Section, refuse_unknown
from firehose.data.pictures.files import CLASSES
from firehose.data.pictures.tasks import Benchmark, Order, Tasks
from firehose.errors import FirehoseError
from firehose.experiments.naming import name_of
from firehose.methods.buffers.all import make_buffer
from firehose.methods.buffers.storage import Buffer, BufferPlan, Strategy
from firehose.methods.learners.all import LEARNERS, Learner, make_learner
from firehose.methods.learners.gem import GEM
from firehose.methods.learners.icarl import Exemplars, ICaRL
from firehose.methods.optimizers.all import ConGraD, OnlineGD, Optimizer
from firehose.models.perceptron import Perceptron, PixelScale, Start
from firehose.optim.sgd import SGD

HIDDEN = (100, 100)
ALONE = ("online-only", "gem")  # learn from the stream's pictures, without remembered ones

OPTIMIZERS = {"GD": "online-gd", "ConGraD": "congrad"}
METHODS = {  # the paper's: learner, and optimizer
    "GEM": ("gem", "online-gd"),
    "iCaRL": ("icarl", "online-gd"),
    "GD online": ("online-only", "online-gd"),
    "GD replay": ("replay-only", "online-gd"),
    "GD mixed": ("mixed-replay", "online-gd"),
    "ConGraD online": ("online-only", "congrad"),
    "ConGraD replay": ("replay-only", "congrad"),
    "ConGraD mixed": ("mixed-replay", "congrad"),
}


def parse(method: str) -> tuple[str, str]:
    """Learner and optimizer of one of the eight methods, or of any other two, as ``GD a-gem``."""
    optimizer, _, learner = method.partition(" ")
    if method in METHODS:
        return METHODS[method]
    known = (*LEARNERS, "gem", "icarl")
    if optimizer not in OPTIMIZERS or not (learner in known or ":" in learner):
        there = [*METHODS, *(f"{first} {second}" for first in OPTIMIZERS for second in known)]
        own = "One of your own is 'GD FILE.py:Class' or 'ConGraD FILE.py:Class'."
        refuse_unknown("method", method, there, own)
    if learner == "icarl" and optimizer == "ConGraD":
        raise FirehoseError(
            "iCaRL needs a task's pictures together, and ConGraD holds some back: use 'iCaRL'."
        )
    if ":" in learner:
        make_learner(learner, 2)  # or say what is wrong with it
    return learner, OPTIMIZERS[optimizer]


def in_words(method: str) -> str:
    """A method in words."""
    optimizer, _, learner = method.partition(" ")
    return method if method in METHODS else f"{optimizer} {name_of(learner)}"


def in_order(methods: Iterable[str]) -> list[str]:
    """Each once, by the paper's name if it has one; the paper's first, others as they come."""
    names = {pair: name for name, pair in METHODS.items()}
    asked = dict.fromkeys(names.get(parse(method), method) for method in methods)
    if len(set(map(in_words, asked))) < len(asked):
        raise FirehoseError("Two methods would be called the same; rename one of the classes.")
    return [*(name for name in METHODS if name in asked), *(n for n in asked if n not in METHODS)]


class Protocol(Section):
    """What is the same for all methods; what the paper leaves open is chosen here."""

    order: Order = "fixed"  # of tasks: of classes, and the one that is not permuted first
    pixels: Literal["share", "standard"] = "share"  # of 255; or with mean 0 and deviation 1
    weights: Start = "xavier"
    posts: int = Field(default=10, ge=1)  # of a round
    step_size: int = Field(default=20, ge=2)  # of a step; mixed replay remembers half of it
    memory: int = Field(default=300, ge=0)  # pictures in all
    memory_strategy: Strategy = "stratified"
    validation: int = Field(default=50, ge=0)  # pictures that ConGraD holds back
    validation_strategy: Strategy = "stratified"
    steps: int = Field(default=3, ge=1)  # of a round, at most
    online_steps: int = Field(default=1, ge=1)  # of online only and GEM, with Online GD
    zero: bool = True  # whether no step at all is a candidate of ConGraD, too
    gem_memory: int = Field(default=60, ge=1)  # pictures of each task
    gem_margin: float = Field(default=0.5, ge=0)
    icarl_pace: float = Field(default=2.0, gt=0)  # its rate is so many times the others'
    icarl_strength: float = Field(default=1.0, ge=0)  # of its reminders
    rate: float | None = Field(default=None, gt=0)  # if not the benchmark's


class Parts(NamedTuple):
    """What a game with pictures is made of."""

    model: Perceptron
    learner: Learner
    optimizer: Optimizer
    memory: Buffer
    classify: Callable[[Batch], NDArray[np.int64]]


def make_parts(
    benchmark: Benchmark, tasks: Tasks, method: str, seed: int, protocol: Protocol
) -> Parts:
    """The parts of a method."""
    name, optimizer = parse(method)
    pixel_scale = tasks.standard if protocol.pixels == "standard" else PixelScale()
    model = Perceptron(tasks.pixels, CLASSES, HIDDEN, seed, pixel_scale, protocol.weights)
    width = tasks.pixels + 1
    rate = benchmark.rate if protocol.rate is None else protocol.rate
    rule = SGD(model, rate * protocol.icarl_pace if name == "icarl" else rate)
    is_short = name in ALONE and optimizer == "online-gd"
    steps = protocol.online_steps if is_short else protocol.steps
    held = BufferPlan(strategy=protocol.validation_strategy, posts=protocol.validation)
    descent: Optimizer = (
        ConGraD(rule, steps, make_buffer(held, width), protocol.validation, protocol.zero)
        if optimizer == "congrad"
        else OnlineGD(rule, steps)
    )
    if name == "icarl" and protocol.memory < CLASSES:
        raise FirehoseError(
            f"iCaRL remembers pictures of each of {CLASSES} classes: memory = {protocol.memory} is "
            f"too little, choose {CLASSES} at least."
        )
    if name == "icarl":
        exemplars = Exemplars(model, protocol.memory, [len(posts) for posts in tasks.train])
        distilling = ICaRL(protocol.posts, protocol.icarl_strength)
        return Parts(model, distilling, descent, exemplars, exemplars.classify)
    if name == "gem":
        ring = make_buffer(BufferPlan(per_user=protocol.gem_memory), width)
        projecting = GEM(protocol.posts, protocol.gem_margin)
        return Parts(model, projecting, descent, ring, likeliest(model))
    size = protocol.posts if name in ALONE else protocol.step_size
    plan = BufferPlan(strategy=protocol.memory_strategy, posts=protocol.memory)
    memory = make_buffer(plan, width)
    return Parts(model, make_learner(name, size), descent, memory, likeliest(model))


def likeliest(model: Perceptron) -> Callable[[Batch], NDArray[np.int64]]:
    """The class that the model gives the most."""

    def classify(batch: Batch) -> NDArray[np.int64]:
        return np.asarray(model.outputs(batch).argmax(1))

    return classify
