"""What a second process is worth: python benchmarks/parallel.py

Rounds of one game take turns: of two processes with a thread each, of one process with one thread,
and of one process with two, while the other waits. Medians are printed, and the ratios of rounds
that came one after another. At paper size a round takes minutes: --only laptop leaves it out.

How many messages a round sends, and what a process computes beside what one alone does, is printed,
too: these hold on a machine that is busy with other things, where seconds do not.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import firehose  # noqa: F401 (before torch: it says how OpenMP's threads wait)

# isort: split
import numpy as np
import torch

from firehose.batch import Batch
from firehose.game.assembly import Game
from firehose.game.settings import Settings, make_settings
from firehose.models.allocation import keep_memory
from firehose.models.data_parallel import spread
from firehose.models.personal import Personal
from firehose.parallel import group
from firehose.parallel.joining import joined
from firehose.parallel.launch import launch
from firehose.parallel.place import is_one_of_several

USERS = 1_000


class Size(NamedTuple):
    """A preset with some settings, and what its posts are like: commits, or tweets."""

    preset: str
    settings: list[str]
    pieces: int
    median: int  # tokens of a post
    rounds: int  # of which medians are taken, if no other number is asked for
    wanted: tuple[float | None, float | None]  # ratios to one process with one thread, with two


MILLION = ["play.posts=256", "play.step_size=32"]  # as in results/million.toml
SIZES = {
    "laptop": Size("laptop", [], 2_000, 43, 15, (1.7, 1.2)),
    "million": Size("laptop", MILLION, 2_000, 43, 8, (None, None)),
    "paper": Size("paper", [], 32_000, 20, 2, (1.4, None)),
}
WAYS = {"2 processes": (2, 1), "1 process, 1 thread": (1, 1), "1 process, 2 threads": (1, 2)}


def main() -> None:
    """Print how long rounds take in each way, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, help="of which the medians are taken")
    parser.add_argument("--only", choices=SIZES, help="this size alone")
    options = parser.parse_args()
    if not is_one_of_several():
        sys.exit(launch(2, [sys.executable, *sys.argv]))
    keep_memory()
    with joined():
        compare_sums()
        for name, size in SIZES.items():
            if options.only in (None, name):
                compare(name, size, options.rounds or size.rounds)


def compare_sums(numbers: int = 250_000, times: int = 30) -> None:
    """Let sums as long as a gradient of laptop scale take turns, in shared memory and by Gloo."""
    seconds: dict[str, list[float]] = {"as here": [], "by Gloo": []}
    for way in list(seconds) * times:
        values = torch.ones(numbers)
        group.anybody(False)  # all begin together
        with nullcontext() if way == "as here" else group.adding_up_in(None):
            begin = time.perf_counter()
            group.add_up(values)
            seconds[way].append(time.perf_counter() - begin)
    medians = [f"{statistics.median(each) * 1e3:.2f} ms {way}" for way, each in seconds.items()]
    print(f"a sum of {numbers:,} numbers takes {', '.join(medians)}", flush=True)


def compare(name: str, size: Size, rounds: int) -> None:
    """Let the ways to play a round take turns; all see the same posts."""
    settings = make_settings(size.preset, size.settings)
    games = {way: make_game(settings, size, *WAYS[way]) for way in WAYS}
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    computed: dict[str, list[float]] = {way: [] for way in WAYS}
    messages, sent = Messages(), [0]
    for number, batch in enumerate(posts(settings, size, rounds + 2)):
        for way, (processes, threads) in WAYS.items():
            group.anybody(False)  # all begin together
            torch.set_num_threads(threads)
            begin, begin_computing, messages.bytes = time.perf_counter(), time.process_time(), []
            if processes == 2 or group.is_first():
                for _ in games[way].rounds([batch]):
                    pass
            if number > 1:  # the first rounds release nothing, and warm up
                seconds[way].append(time.perf_counter() - begin)
                computed[way].append(time.process_time() - begin_computing)
            if processes == 2:
                sent = list(messages.bytes)
    together = seconds["2 processes"]
    print(f"{name}: a round of 2 processes takes {statistics.median(together) * 1e3:,.0f} ms")
    for way, wanted in zip(list(WAYS)[1:], size.wanted, strict=True):
        ratio = statistics.median(b / a for a, b in zip(together, seconds[way], strict=True))
        goal = f" (wanted: {wanted} ×)" if wanted else ""
        print(f"{name}: 2 processes are {ratio:.2f} × as fast as {way}{goal}", flush=True)
    pairs = zip(computed["2 processes"], computed["1 process, 1 thread"], strict=True)
    share = statistics.median(a / b for a, b in pairs)
    print(f"{name}: each of 2 processes computes {share:.2f} × as much as one alone")
    print(
        f"{name}: a round sends {len(sent)} messages, {sum(sent) / 1e6:,.2f} MB in all", flush=True
    )


class Messages:
    """The bytes of each message that processes add up or gather."""

    def __init__(self) -> None:
        self.bytes: list[int] = []
        for name in ("add_up", "gather"):
            setattr(group, name, self._noting(getattr(group, name)))

    def _noting(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def noted(values: torch.Tensor) -> Any:
            self.bytes.append(values.nbytes)
            return send(values)

        return noted


def make_game(settings: Settings, size: Size, processes: int, threads: int) -> Game:
    """A game of one process or of two, whose users have all posted before."""
    torch.set_num_threads(threads)
    model = Personal(settings.model, size.pieces)
    model.users.take(np.arange(USERS), learn=True)
    return Game(spread(model) if processes == 2 else model, settings.play)


def posts(settings: Settings, size: Size, rounds: int) -> Iterator[Batch]:
    """Random words, as many in a post as people write: few are long ones."""
    for number in range(rounds):
        generator, count = np.random.default_rng(number), settings.play.posts
        longest = settings.model.max_tokens
        drawn = generator.lognormal(np.log(size.median), 0.6, count).astype(np.int64)
        lengths = np.clip(drawn, 4, longest)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        yield Batch(
            generator.integers(3, size.pieces, offsets[-1]).astype(np.uint16),
            offsets,
            generator.integers(0, USERS, count).astype(np.int32),
            np.zeros(count, np.int64),
            lengths.astype(np.int32),
        )


if __name__ == "__main__":
    main()
