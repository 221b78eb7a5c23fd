"""Models so small that a test can afford them."""

import numpy as np
import torch

from firehose.batch import Batch
from firehose.data.corpus import Corpus
from firehose.models.personal import Architecture, ModelPlan, Personal
from firehose.models.store import Trained
from firehose.models.transformer_xl import Shape

TINY = Shape(layers=2, d_model=16, heads=2, d_head=8, d_inner=32, dropout=0.0)
PIECES = 23
PERSONAL: list[Architecture] = ["encoder", "decoder", "adapters"]


SIZES = ["layers=1", "d_model=8", "heads=2", "d_head=4", "d_inner=16"]
TINY_MODEL = [f"model.shape.{size}" for size in SIZES] + ["model.mlp=4", "model.d_user=4"]
GAME = ["posts=6", "step_size=4", "rule.rate=0.01", "rule.warmup=3", "steps=2", "memory.per_user=2"]
TINY_GAME = TINY_MODEL + [f"play.{setting}" for setting in GAME]


def batch_of(posts: list[list[int]], users: list[int] | None = None) -> Batch:
    lengths = [len(post) for post in posts]
    return Batch(
        np.array([token for post in posts for token in post], np.uint16),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
        np.array(users if users is not None else range(len(posts)), np.int32),
        np.zeros(len(posts), np.int64),
        np.array(lengths, np.int32),
    )


def tiny(architecture: Architecture, seed: int = 0, **changes: object) -> Personal:
    torch.manual_seed(seed)
    sizes = {"d_user": 4, "mlp": 8}
    plan = ModelPlan.of({"architecture": architecture, "shape": TINY, **sizes, **changes})
    model = Personal(plan, PIECES)
    torch.nn.init.normal_(model.shared.biases)
    torch.nn.init.normal_(model.shared.output_bias)
    return model


def awake(model: Personal) -> Personal:
    """Let the residual MLPs say something, and the users differ."""
    for mlp in model.mlps.values():
        torch.nn.init.normal_(mlp.norm.weight)  # type: ignore[union-attr, arg-type]
    model.users.take(np.arange(9), learn=True)
    model.users.put(torch.arange(9), torch.randn(9, 4))
    return model


def trained_on(corpus: Corpus, architecture: Architecture = "adapters") -> Trained:
    plan = ModelPlan(architecture=architecture, shape=TINY, d_user=4, mlp=8)
    torch.manual_seed(0)
    model = awake(Personal(plan, corpus.vocabulary.size))
    for number in (1, *range(len(corpus.users), 20)):
        model.users.forget(number)
    return Trained.of_corpus(model, corpus, {"kind": "by hand"})
