"""What a memory of posts takes, in bytes and in time: python benchmarks/memory.py [CORPUS]

With `torchrun --nproc-per-node 2 benchmarks/memory.py`, processes divide it among them.
Without a corpus the posts are those of a simulated population. Where there are fewer than are to be
remembered, they come again with other pieces and users.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from firehose.batch import Batch
from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import prepare
from firehose.methods.experts.contexts import Contexts, targets
from firehose.methods.experts.memory import AT_ONCE, Memory, MemorySettings
from firehose.methods.step import Setup
from firehose.models.data_parallel import divided
from firehose.parallel import group
from firehose.parallel.joining import joined

POSTS, ROUNDS = 64, 20  # of a round; that are timed, at each size
SIZES = (10_000, 100_000, 1_000_000)
SPECIAL = 4  # pieces that stay what they are


def main() -> None:
    """Print bytes for each part, and times at every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("--posts", type=int, nargs="+", default=SIZES, help="to be remembered")
    parser.add_argument("--min-users", type=int, default=1)
    parser.add_argument("--tokens", type=int, help="the most that is remembered in all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, joined(shard_users=True):
        measure(Corpus(options.corpus or simulate(Path(folder))), options)


def simulate(folder: Path) -> Path:
    """A corpus of a simulated population."""
    sizes = ["source.users=2000", "source.posts=30000", "vocabulary.size=2000"]
    return prepare(make_plan(source="nature", assignments=sizes), folder / "corpus").corpora[0].path


def measure(corpus: Corpus, options: argparse.Namespace) -> None:
    """Fill a memory, and stop at every size."""
    settings = MemorySettings(min_users=options.min_users, tokens=options.tokens)
    memory = Memory(settings, Setup())
    stream, kept, first = blocks(corpus), 0, None
    begin = time.process_time()
    for size in sorted(options.posts):
        while kept < size:
            batch = next(stream)
            memory.learn(batch)
            kept += len(batch)
        filled = time.process_time() - begin
        look, learn = rounds(memory, next(stream))
        first = first or look + learn
        print(
            f"{kept:,} posts, {memory.posts.size:,} tokens, in {filled:.1f} s; a round of {POSTS}: "
            f"look {look * 1e3:.1f} ms, learn {learn * 1e3:.1f} ms, {(look + learn) / first:.2f} ×"
        )
        weigh(memory)
        begin = time.process_time() - filled


def blocks(corpus: Corpus) -> Iterator[Batch]:
    """The posts of a corpus, in order, again and again."""
    pieces, users = corpus.vocabulary.size, len(corpus.users)
    splits = [corpus.splits[name] for name in ("pretrain", "train") if name in corpus.splits]
    for turn in range(10**6):
        other = np.arange(pieces)
        if turn:
            np.random.default_rng(turn).shuffle(other[SPECIAL:])
        for split in splits:
            for start in range(0, len(split), AT_ONCE):
                batch = split.between(start, min(start + AT_ONCE, len(split)))
                user = np.where(batch.user < 0, -1, batch.user + turn * users).astype(np.int32)
                yield replace(batch, tokens=other[batch.tokens].astype(np.uint16), user=user)


def rounds(memory: Memory, posts: Batch) -> tuple[float, float]:
    """The seconds of a look and of learning, medians."""
    looks, learns = [], []
    for number in range(min(ROUNDS, len(posts) // POSTS)):
        batch = posts.select(np.arange(number * POSTS, (number + 1) * POSTS))
        part = batch.select(divided(batch.lengths - 1, group.size())[group.rank()])
        begin = time.process_time()
        memory.look(Contexts.of(part, memory.reach), targets(part)[:, None])
        between = time.process_time()
        memory.learn(batch)
        looks.append(between - begin)
        learns.append(time.process_time() - between)
    return statistics.median(looks), statistics.median(learns)


def weigh(memory: Memory) -> None:
    """Print the bytes for each token, by part."""
    tokens = memory.posts.size - memory.posts.removed
    parts = {"posts": memory.posts.nbytes}
    parts |= {"counts": sum(each.nbytes for each in memory.counts)}
    parts |= {"everybody's places": sum(each.nbytes for each in memory.longer)}
    parts |= {"users' places": sum(each.nbytes for each in memory.own)}
    shown = ", ".join(f"{name} {size / tokens:.1f}" for name, size in parts.items())
    print(f"  {memory.nbytes / tokens:.1f} bytes for a token: {shown}")


if __name__ == "__main__":
    main()
