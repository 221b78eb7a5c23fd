"""Sums in shared memory are those of numbers, and whoever waits for the dead is told."""

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch._C._distributed_c10d import HashStore

from firehose.parallel import shared
from firehose.parallel.place import LostError, Place
from firehose.parallel.shared import SLOT, SharedSums

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="memory is shared on Linux only, by processors of one kind",
)


def together(size: int, work: Callable[[SharedSums], None]) -> list[SharedSums]:
    """Let as many threads meet as there would be processes, and do something with each."""
    store, found, errors = HashStore(), {}, []

    def join(rank: int) -> None:
        try:
            sums = SharedSums.meet(store, Place(rank, size, rank))
            assert sums is not None
            found[rank] = sums
            work(sums)
        except BaseException as error:  # raised again where the threads were started
            errors.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_WORLD_SIZE", str(size))
        threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return [found[rank] for rank in range(size)]


@settings(deadline=None, max_examples=30)
@given(
    size=st.integers(2, 4),
    lengths=st.lists(st.sampled_from([0, 1, 7, 1000, SLOT // 8 + 3]), min_size=1, max_size=4),
    kind=st.sampled_from([torch.float32, torch.float64, torch.int64]),
)
def test_sums(size: int, lengths: list[int], kind: torch.dtype) -> None:
    def values(rank: int, number: int) -> torch.Tensor:
        generator = np.random.default_rng([rank, number])
        return torch.from_numpy(generator.integers(-9, 9, lengths[number])).to(kind)

    came: dict[tuple[int, int], torch.Tensor] = {}

    def work(sums: SharedSums) -> None:
        for number in range(len(lengths)):
            mine = values(sums.place.rank, number)
            sums.add_up(mine)
            came[sums.place.rank, number] = mine

    together(size, work)
    for number in range(len(lengths)):
        expected = sum(values(rank, number) for rank in range(size))
        for rank in range(size):
            assert torch.equal(came[rank, number], torch.as_tensor(expected))


def test_roundings_are_the_same_everywhere() -> None:
    came: list[torch.Tensor] = []

    def work(sums: SharedSums) -> None:
        mine = torch.randn(999, generator=torch.Generator().manual_seed(sums.place.rank))
        sums.add_up(mine)
        came.append(mine)

    together(3, work)
    assert all(torch.equal(came[0], other) for other in came[1:])


def test_a_tensor_that_is_not_in_one_piece() -> None:
    came: list[torch.Tensor] = []

    def work(sums: SharedSums) -> None:
        mine = torch.arange(6.0).view(2, 3).T
        sums.add_up(mine)
        came.append(mine)

    together(2, work)
    assert all(torch.equal(each, 2 * torch.arange(6.0).view(2, 3).T) for each in came)


def test_nothing_is_left_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "FOLDER", tmp_path)
    together(2, lambda _: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("local", ["1", "3"])
def test_machines_share_no_memory(monkeypatch: pytest.MonkeyPatch, local: str) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    assert SharedSums.meet(HashStore(), Place(0, 2)) is None


def test_where_there_is_no_room_nobody_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "FOLDER", tmp_path / "missing")
    with pytest.raises(AssertionError):
        together(2, lambda _: None)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared, "FOLDER", tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not shared._make(2)
    assert not list(tmp_path.iterdir())


def test_whoever_waits_for_the_dead_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    first, _ = together(2, lambda _: None)
    first.process[1] = ended.pid
    monkeypatch.setattr(shared, "LOOK", 0.0)
    with pytest.raises(LostError):
        first.add_up(torch.zeros(3))
