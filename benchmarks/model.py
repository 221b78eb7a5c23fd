"""A training step at the paper's size against the machine's own matrix product and against the
same step on padded batches, its memory, and what more users cost: python benchmarks/model.py

Run it on an idle machine: products, flat steps and padded steps take turns, medians are printed.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import firehose  # noqa: F401 (before torch: it says how OpenMP's threads wait)

# isort: split
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from firehose.batch import Batch
from firehose.models.allocation import keep_memory
from firehose.models.personal import ModelPlan, Personal
from firehose.models.transformer_xl import sinusoids
from firehose.models.users import Users
from firehose.optim.adam import Adam

PLAN = ModelPlan()  # the paper's: 12 × 512, adapters
PIECES, USERS, POSTS, LONGEST = 32_000, 94_000, 64, 50


def main() -> None:
    """Print every ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="of which the medians are taken")
    parser.add_argument("--memory", choices=["flat", "padded"], help="one way's peak, and no more")
    options = parser.parse_args()
    keep_memory()
    if options.memory:
        memory(options.memory)
        return
    speed(options.rounds)
    growth(options.rounds)
    peaks = {way: _peak(way) for way in ("flat", "padded")}
    ratio = peaks["flat"] / peaks["padded"]
    print(
        f"peak memory: flat {peaks['flat']:,} MB, padded {peaks['padded']:,} MB, ratio {ratio:.2f}"
    )


def speed(rounds: int) -> None:
    """Products, flat steps and padded steps in turn."""
    generator = np.random.default_rng(0)
    flat, padded = flat_step(), padded_step()
    for _ in range(3):
        flat(batch_of(generator)), padded(batch_of(generator))
    products, flats, paddeds, ratios, factors, needed = [], [], [], [], [], []
    for _ in range(rounds):
        batch = batch_of(generator)
        before = product_rate()
        ours = clock(lambda: flat(batch))  # noqa: B023 (called at once)
        after = product_rate()
        theirs = clock(lambda: padded(batch))  # noqa: B023
        products.append((before + after) / 2)
        flats.append(ours)
        paddeds.append(theirs)
        needed.append(operations(batch))
        ratios.append(needed[-1] / ours / products[-1])
        factors.append(theirs / ours)
    middle = statistics.median
    lengths = batch_of(generator, 100_000).lengths
    print(f"posts: {POSTS}, {lengths.mean():.1f} tokens on average, {lengths.max()} at most")
    print(f"matrix product, float32: {middle(products) / 1e9:.0f} GFLOP/s")
    print(
        f"flat step: {middle(flats):.2f} s for {middle(needed) / 1e9:.0f} GFLOP that the tokens "
        f"need: {middle(ratios):.0%} of the machine's rate ({min(ratios):.0%} to {max(ratios):.0%})"
    )
    print(f"padded step: {middle(paddeds):.2f} s, {middle(factors):.1f} × the flat one")


def growth(rounds: int) -> None:
    """The flat step with more and more users in the table."""
    counts = (1_000, 100_000, 1_000_000)
    model = Personal(PLAN, PIECES)
    adam = Adam(Adam.Settings(warmup=0), model)
    tables = {count: table_of(count) for count in counts}
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    generator = np.random.default_rng(1)
    for number in range(rounds + 1):
        batch = batch_of(generator, users=counts[0])
        for count in counts:
            model.users = tables[count]
            spent = clock(lambda: learn(model, adam, batch))  # noqa: B023
            if number:  # the first round warms up
                seconds[count].append(spent)
    least = seconds[counts[0]]
    for count in counts:
        ratio = statistics.median(a / b for a, b in zip(seconds[count], least, strict=True))
        print(f"{count:>9,} users: {statistics.median(seconds[count]):.2f} s, {ratio:.2f} ×")


def memory(way: str) -> None:
    """Three steps one way; prints the peak of this process in MB."""
    generator = np.random.default_rng(2)
    step = flat_step() if way == "flat" else padded_step()
    for _ in range(3):
        step(batch_of(generator))
    # Not ru_maxrss: a child begins with its parent's.
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) // 1024)


def _peak(way: str) -> int:
    command = [sys.executable, __file__, "--memory", way]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def batch_of(generator: np.random.Generator, posts: int = POSTS, users: int = USERS) -> Batch:
    """Random posts, as long as those of the paper's corpus: 17 tokens on average, at most 50."""
    lengths = np.clip(np.rint(generator.gamma(2.2, 7.8, posts)), 3, LONGEST).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Batch(
        generator.integers(0, PIECES, offsets[-1]).astype(np.uint16),
        offsets,
        generator.integers(0, users, posts).astype(np.int32),
        np.zeros(posts, np.int64),
        lengths.astype(np.int32),
    )


def operations(batch: Batch) -> float:
    """Floating-point operations of the products that the real tokens need, forth and back."""
    shape, lengths = PLAN.shape, batch.lengths - 1
    inner = shape.heads * shape.d_head
    layer = 4 * shape.d_model * inner + 2 * shape.d_model * (shape.d_inner + PLAN.mlp)
    per_token = shape.layers * layer + PIECES * shape.d_model
    pairs = (lengths * (lengths + 1) // 2).sum()  # a token looks at itself and those before it
    return float(6 * (lengths.sum() * per_token + pairs * 3 * inner * shape.layers))


def product_rate() -> float:
    """Operations a second of a product of large square matrices."""
    size = 2048
    left, right = torch.randn(size, size), torch.randn(size, size)
    out = left @ right
    seconds = [clock(lambda: torch.mm(left, right, out=out)) for _ in range(5)]
    return float(2 * size**3 / statistics.median(seconds))


def clock(work: Callable[[], object]) -> float:
    """How long it takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def table_of(count: int) -> Users:
    """A table with so many users."""
    users = Users(PLAN.d_user)
    users.take(np.arange(count), learn=True)
    return users


def learn(model: Personal, adam: Adam, batch: Batch) -> None:
    """One step our way: forward, backward, clip, Adam."""
    adam.step(model.gradient(batch))


def flat_step() -> Callable[[Batch], None]:
    """Our own step, with a model of its own."""
    model = Personal(PLAN, PIECES).train()
    model.users = table_of(USERS)
    adam = Adam(Adam.Settings(warmup=0), model)
    return lambda batch: learn(model, adam, batch)


class Padded(nn.Module):
    """The same model the usual way: every post as long as the longest, every position computed."""

    def __init__(self) -> None:
        super().__init__()
        shape = PLAN.shape
        model = Personal(PLAN, PIECES)
        self.shared, self.mlps, self.projection = model.shared, model.mlps, model.projection
        self.users = nn.Embedding(USERS, PLAN.d_user)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, tokens: Tensor, users: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """``tokens`` and the rest [posts, width]; ``weights`` are zero on padding."""
        shared, shape = self.shared, PLAN.shape
        hidden = self.drop(functional.embedding(tokens, shared.embedding) * shape.d_model**0.5)
        user = self.projection(self.users(users)) * shape.d_model**0.5
        user = user[:, None].expand_as(hidden)
        distances = self.drop(sinusoids(tokens.shape[1], shape.d_model))
        block: Any
        mlp: Any
        for number in range(shape.layers):
            hidden = self._attend(shared.attention[number], hidden, distances)
            block = shared.feed_forward[number]
            inner = self.drop(block.up(hidden).relu())
            hidden = block.norm(hidden + self.drop(block.down(inner)))
            mlp = self.mlps[str(number + 1)]
            inner = self.drop(mlp.up(torch.cat([hidden, user], -1)).relu())
            hidden = hidden + mlp.norm(self.drop(mlp.down(inner)))
        logits = functional.linear(self.drop(hidden), shared.embedding, shared.output_bias)
        costs = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        return (costs * weights.flatten()).sum()

    def _attend(self, block: Any, hidden: Tensor, distances: Tensor) -> Tensor:
        shape = PLAN.shape
        posts, width, _ = hidden.shape
        qkv = block.queries_keys_values(hidden).view(posts, width, 3, shape.heads, shape.d_head)
        query, key, value = qkv.unbind(2)
        relative_keys = block.positions(distances).view(width, shape.heads, shape.d_head)
        content, position = self.shared.biases
        scores = torch.einsum("pqhd,pkhd->phqk", query + content, key)
        by_distance = torch.einsum("pqhd,khd->phqk", query + position, relative_keys)
        moved = functional.pad(by_distance, (1, 0)).view(posts, shape.heads, width + 1, width)
        scores = (scores + moved[:, :, 1:].view_as(scores)) * shape.d_head**-0.5
        later = torch.ones(width, width, dtype=torch.bool).triu(1)
        weights = self.drop(scores.masked_fill(later, float("-inf")).softmax(-1))
        found = torch.einsum("phqk,pkhd->pqhd", weights, value).flatten(2)
        attended: Tensor = block.norm(hidden + self.drop(block.out(found)))
        return attended


def padded_step() -> Callable[[Batch], None]:
    """The usual step, with a model of its own: dense gradients, dense Adam."""
    model = Padded().train()
    adam = torch.optim.Adam(model.parameters(), lr=2.5e-4)

    def step(batch: Batch) -> None:
        lengths = torch.from_numpy(batch.lengths)
        posts = torch.from_numpy(batch.tokens.astype(np.int64)).split(batch.lengths.tolist())
        tokens = nn.utils.rnn.pad_sequence(posts, batch_first=True)
        real = torch.arange(tokens.shape[1] - 1) < lengths[:, None] - 1
        weights = real / (lengths[:, None] - 1) / len(batch)
        users = torch.from_numpy(batch.user.astype(np.int64))
        adam.zero_grad()
        model(tokens[:, :-1], users, tokens[:, 1:], weights).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        adam.step()

    return step


if __name__ == "__main__":
    main()
