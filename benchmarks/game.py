"""What a round costs, and what more users add to it: python benchmarks/game.py

Rounds with few and many users, and of all optimizers, take turns; medians are printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import firehose  # noqa: F401 (before torch: it says how OpenMP's threads wait)

# isort: split
import numpy as np

from firehose.batch import Batch
from firehose.game.assembly import Game
from firehose.game.settings import make_settings
from firehose.methods.buffers import BUFFERS, Buffer
from firehose.methods.optimizers.congrad import ConGraD
from firehose.methods.step import Setup
from firehose.models.allocation import keep_memory
from firehose.models.personal import SHARE, Personal
from firehose.optim.adam import Adam

FEW, MANY, PIECES, TOKENS = 1_000, 1_000_000, 2_000, 50
WRITERS, LITTLE = 1_000, 10_000  # users who repeat themselves; posts that are remembered
LAPTOP = make_settings("laptop")
OPTIMIZERS = ("online-gd", "congrad", "averaged")  # the last one around the first


def main() -> None:
    """Print every ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="of which the medians are taken")
    parser.add_argument("--only", choices=["mixture"], help="print the ratios of this part alone")
    parser.add_argument("--remembered", type=int, default=100_000, help="posts, at the most")
    options = parser.parse_args()
    keep_memory()
    if options.only == "mixture":
        mixtures(options.rounds, options.remembered)
        return
    buffers(options.rounds)
    games = {
        (optimizer, users): Table(optimizer, users)
        for optimizer in OPTIMIZERS
        for users in (FEW, MANY)
    }
    for number in range(options.rounds + 2):
        for table in games.values():
            table.play(np.random.default_rng(number), keep=number > 1)
    for optimizer in OPTIMIZERS:
        few, many = (games[optimizer, users].seconds for users in (FEW, MANY))
        ratio = statistics.median(b / a for a, b in zip(few, many, strict=True))
        print(
            f"{optimizer}: a round at {FEW:,} users {statistics.median(few) * 1e3:.0f} ms, "
            f"at {MANY:,} users {ratio:.2f} ×"
        )
    for optimizer in OPTIMIZERS[1:]:
        pairs = zip(games["online-gd", FEW].seconds, games[optimizer, FEW].seconds, strict=True)
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"{optimizer}: {ratio:.2f} × online-gd, same steps")
    for optimizer in OPTIMIZERS:
        shares = games[optimizer, FEW].others
        print(f"{optimizer}: {statistics.median(shares):.1%} of a round is neither pass nor step")
    weigh(games["congrad", MANY])
    mixtures(options.rounds, options.remembered)


class Table:
    """A game at the laptop preset with so many users, who all have posted before."""

    def __init__(self, optimizer: str, users: int, predictor: str = "model") -> None:
        self.users = users
        model = Personal(LAPTOP.model, PIECES)
        model.users.take(np.arange(users), learn=True)
        chosen = {"memory": {"per_user": 2}, "optimizer": optimizer, "predictor": predictor}
        self.game = Game(model, make_settings("laptop", play=chosen).play)
        fill(self.game.memory, users, 2, has_shares=predictor == "mixture")
        self.buffers = [self.game.memory]
        if isinstance(self.game.optimizer, ConGraD):
            fill(self.game.optimizer.validation, users, 1)
            self.buffers.append(self.game.optimizer.validation)
        self.seconds: list[float] = []
        self.others: list[float] = []  # the share of what is neither a pass nor a step

    def play(self, generator: np.random.Generator, keep: bool, batch: Batch | None = None) -> None:
        """One round, with random posts or those given."""
        batch = batch or random_posts(generator, LAPTOP.play.posts, self.users)
        self.game.generator = generator
        with passes_and_steps() as spent:
            begin = time.perf_counter()
            for _ in self.game.rounds([batch]):
                pass
            whole = time.perf_counter() - begin
        if keep:
            self.seconds.append(whole)
            self.others.append(1 - sum(spent) / whole)


def mixtures(rounds: int, remembered: int) -> None:
    """The same rounds with memories and a mixture, much and little remembered, and without."""
    generator = np.random.default_rng(0)
    past = [written_posts(generator, 2000) for _ in range(remembered // 2000)]
    tables = {kind: Table("online-gd", WRITERS, predictor=kind) for kind in ("model", "mixture")}
    tables["mixture"].game.predictor.prime(past[: LITTLE // 2000])
    tables["much"] = Table("online-gd", WRITERS, predictor="mixture")
    tables["much"].game.predictor.prime(past)
    for number in range(rounds + 2):
        batch = written_posts(np.random.default_rng([1, number]), LAPTOP.play.posts)
        for table in tables.values():
            table.play(np.random.default_rng(number), keep=number > 1, batch=batch)
    model, mixture, much = (tables[name].seconds for name in ("model", "mixture", "much"))
    print(f"a round without memories: {statistics.median(model) * 1e3:.0f} ms")
    for what, one, other in (
        (f"a round with memories of {LITTLE:,} posts, mixed : without", model, mixture),
        (f"a round with memories of {remembered:,} posts : of {LITTLE:,}", mixture, much),
    ):
        ratio = statistics.median(b / a for a, b in zip(one, other, strict=True))
        print(f"{what}: {ratio:.2f} ×")


def written_posts(generator: np.random.Generator, posts: int) -> Batch:
    """Posts that repeat what their users wrote, as people do: four phrases each, some shared."""
    users = generator.integers(0, WRITERS, posts)
    phrases = np.where(generator.random((posts, 4)) < 0.5, users[:, None] * 8, 0)
    phrases = phrases + generator.integers(0, 8, (posts, 4))
    length = TOKENS // 4
    words = (phrases[:, :, None] * 7919 + np.arange(length) ** 2 * 31) % (PIECES - 3) + 3
    new = generator.random(words.shape) < 0.2
    words[new] = generator.integers(3, PIECES, int(new.sum()))
    tokens = words.reshape(posts, -1)
    tokens = np.pad(tokens, ((0, 0), (1, TOKENS - 1 - tokens.shape[1])), constant_values=1)
    tokens[:, -1] = 2
    time = np.zeros(posts, np.int64)
    offsets = np.arange(posts + 1) * TOKENS
    words_of_each = np.full(posts, 20, np.int32)
    kind = np.uint16
    return Batch(tokens.ravel().astype(kind), offsets, users.astype(np.int32), time, words_of_each)


@contextmanager
def passes_and_steps() -> Iterator[list[float]]:
    """Time what goes through the model, and the optimizer's steps."""
    spent: list[float] = []

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                spent.append(time.perf_counter() - begin)

        return call

    places = [(Personal, "pay"), (Personal, "cost"), (Personal, "gradient"), (Adam, "step")]
    before = [(owner, name, owner.__dict__[name]) for owner, name in places]
    for owner, name in places:
        setattr(owner, name, timed(getattr(owner, name)))
    try:
        yield spent
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def buffers(rounds: int) -> None:
    """Push and sample with everybody's slots full."""
    for strategy in ("fifo", "reservoir", "stratified", "stratified-reservoir"):
        settings = BUFFERS.settings({"kind": strategy, "per_user": 2})
        buffer = BUFFERS.make(settings, Setup(max_tokens=TOKENS))
        fill(buffer, MANY, 2)
        generator = np.random.default_rng(0)
        seconds = []
        for _ in range(20 * rounds):
            batch = random_posts(generator, 128, MANY)
            begin = time.perf_counter()
            buffer.push(batch, generator)
            buffer.sample(128, generator)
            seconds.append(time.perf_counter() - begin)
        middle = statistics.median(seconds) * 1e3
        print(f"{strategy}: push 128 and sample 128 with {MANY:,} users: {middle:.2f} ms")


def fill(buffer: Buffer, users: int, posts: int, has_shares: bool = False) -> None:
    """Push so many posts of every user; with ``has_shares``, as a mixture has them."""
    generator = np.random.default_rng(0)
    for _ in range(posts):
        for first in range(0, users, 100_000):
            numbers = np.arange(first, min(first + 100_000, users))
            batch = posts_of(generator, numbers)
            if has_shares:
                share = np.full(len(batch.tokens), 0.5, np.float16)
                batch = batch.with_columns(per_token={SHARE: share})
            buffer.push(batch, generator)


def random_posts(generator: np.random.Generator, posts: int, users: int) -> Batch:
    """Posts of random users."""
    return posts_of(generator, generator.integers(0, users, posts))


def posts_of(generator: np.random.Generator, users: Any) -> Batch:
    """A post of 50 tokens for each user."""
    posts = len(users)
    return Batch(
        generator.integers(0, PIECES, posts * TOKENS).astype(np.uint16),
        np.arange(posts + 1) * TOKENS,
        users.astype(np.int32),
        np.zeros(posts, np.int64),
        np.full(posts, 20, np.int32),
    )


def weigh(table: Table) -> None:
    """Everything that is there for each user: posts, vector, Adam's moments, where they lie."""
    arrays: list[Any] = [state.values for state in table.game.rule.row_states()]
    parts: list[Any] = [table.game.model.users]
    for buffer in table.buffers:
        arrays += vars(buffer)["columns"].rows.values()
        parts += [buffer, vars(buffer)["users"]]
    values = [value for part in parts for value in vars(part).values()]
    arrays += [value for value in values if hasattr(value, "nbytes")]
    size = sum(array.nbytes for array in arrays) / table.users
    print(f"memory: {size / 1e3:.2f} kB a user, with 2 + 1 posts of {TOKENS} tokens")


if __name__ == "__main__":
    main()
