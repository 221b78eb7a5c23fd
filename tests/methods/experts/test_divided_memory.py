"""A memory that is divided among processes, which threads play, says what one alone says."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from firehose.batch import Batch
from firehose.methods.experts import Evidence
from firehose.methods.experts.contexts import Contexts, targets
from firehose.methods.experts.memory import Memory
from firehose.methods.experts.ranks import Ranks
from firehose.models.data_parallel import divided, places_of
from firehose.parallel import group
from firehose.parallel.shards import sharding
from small_memories import PIECES, Post, as_batch, memory, rounds
from small_methods import same, stored

quick = settings(max_examples=25, deadline=None)
limits = st.sampled_from(
    [{}, {"per_user": 1}, {"tokens": 40}, {"min_users": 2}, {"tokens": 25, "min_users": 3}]
)


class Threads:
    """So many threads, each of which takes itself for one of as many processes."""

    def __init__(self, size: int) -> None:
        self.size, self.local = size, threading.local()
        self.barrier, self.sent = threading.Barrier(size, timeout=60), [torch.empty(0)] * size
        self.parts: list[list[group.Part]] = [[] for _ in range(size)]

    def rank(self) -> int:
        return getattr(self.local, "rank", 0)  # who asks from outside is the first

    def add_up(self, values: Tensor) -> None:
        self.sent[self.rank()] = values.clone()
        self.barrier.wait()
        torch.sum(torch.stack(self.sent), 0, dtype=values.dtype, out=values)
        self.barrier.wait()

    def enroll(self, part: group.Part) -> int:
        self.parts[self.rank()].append(part)
        return len(self.parts[self.rank()]) - 1

    def ask(self, number: int, start: int, stop: int, sizes: list[int]) -> list[Tensor]:
        found = [parts[number].bytes_of(start, stop) for parts in self.parts]
        assert [len(each) for each in found] == sizes
        return found

    @contextmanager
    def as_processes(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch, sharding():
            patch.setattr(group, "size", lambda: self.size)
            for name in ("rank", "add_up", "enroll", "ask"):
                patch.setattr(group, name, getattr(self, name))
            yield

    def each(self, function: Callable[[int], Any]) -> list[Any]:
        """What each of them gets from a function of its number."""

        def call(rank: int) -> Any:
            self.local.rank = rank
            return function(rank)

        with ThreadPoolExecutor(self.size) as pool:
            return [each.result() for each in [pool.submit(call, n) for n in range(self.size)]]


def look(expert: Memory, batch: Batch) -> Evidence:
    """What is said of all pieces at every place of some posts."""
    every = np.broadcast_to(np.arange(PIECES), (len(targets(batch)), PIECES))
    return expert.look(Contexts.of(batch, expert.reach), every)


@quick
@given(rounds, limits, st.integers(0, 3), st.sampled_from([(2, 2), (2, 3), (3, 1), (1, 3)]))
def test_it_says_what_one_process_says(
    learned: list[list[Post]], limit: dict[str, Any], cut: int, sizes: tuple[int, int]
) -> None:
    """At first by so many processes, and by others from a checkpoint on."""
    few = {"matches": 2, "own_matches": 3} | limit
    alone, state = memory(**few), dict[str, Any]()
    for size, part in zip(sizes, (learned[:cut], learned[cut:]), strict=True):
        threads = Threads(size)
        with threads.as_processes():
            shares = threads.each(partial(restored, few, state))
            for chosen in part:
                go_on(threads, shares, alone, as_batch(chosen))
            state = stored(shares[0].state())
    whole = memory(**few)
    whole.restore(state)
    assert same({"posts": whole.posts.state()}, {"posts": alone.posts.state()})
    for (_, one), (_, other) in zip(whole._parts(), alone._parts(), strict=True):
        assert hasattr(one, "pairs") or same(one.state(), other.state())  # tables may be mixed up
    batch = as_batch([post for chosen in learned for post in chosen])
    assert all(map(np.array_equal, look(whole, batch), look(alone, batch)))


def restored(settings: dict[str, Any], state: dict[str, Any], _: int) -> Memory:
    """A memory, with what another has kept."""
    made = memory(**settings)
    if state:
        made.restore(state)
    return made


def go_on(threads: Threads, shares: list[Memory], alone: Memory, batch: Batch) -> None:
    """Play a round: each looks at a part of the posts, and all learn them."""
    parts = divided(batch.lengths - 1, threads.size)
    own = [batch.select(part) for part in parts]
    found = threads.each(lambda rank: look(shares[rank], own[rank]))
    places = [places_of(batch, part) for part in parts]
    for one, *others in zip(look(alone, batch), *found, strict=True):
        for place, other in zip(places, others, strict=True):
            assert np.array_equal(one[:, place], other)
    alone.learn(batch)
    threads.each(lambda rank: shares[rank].learn(batch))


def test_each_process_has_a_share() -> None:
    generator = np.random.default_rng(0)
    texts = [(n % 50, generator.integers(0, PIECES, 40).tolist()) for n in range(2000)]
    alone, threads = memory(), Threads(4)
    alone.learn(as_batch(texts))
    with threads.as_processes():
        shares = threads.each(lambda _: memory())
        threads.each(lambda rank: shares[rank].learn(as_batch(texts)))
    for parts in zip(*([p for _, p in each._parts()] for each in (alone, *shares)), strict=True):
        whole, *divided_up = (part.nbytes for part in parts)
        assert max(divided_up) < 0.4 * whole


@quick
@given(st.lists(st.lists(st.booleans(), max_size=150), max_size=5))
def test_ranks_count_what_comes_before(steps: list[list[bool]]) -> None:
    ranks, every = Ranks(), np.zeros(0, bool)
    for step in steps:
        places = np.flatnonzero(step) + len(every)
        every = np.append(every, np.array(step, bool))
        ranks.add(places, len(every))
        assert np.array_equal(ranks.among(0, len(every)), every)
        half = len(every) // 2
        assert np.array_equal(ranks.among(half, len(every)), every[half:])
        counted = [ranks.rank(place) for place in range(len(every) + 1)]
        assert counted == np.append(0, np.cumsum(every)).tolist()
