"""What a crash may leave of files, after every operation of a recording."""

import functools
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeVar

from recorder import Moment

T = TypeVar("T")

FEW = 2  # files whose remains are tried in all combinations
MANY = 5  # names that had not reached the disk, and files, of which each is tried by itself


class Crash(NamedTuple):
    """The files after a crash, with the operations that led to them."""

    after: int  # the last moment after which a crash can leave them
    names: int  # the moment whose names had reached the disk
    operation: str
    files: Mapping[str, bytes | None]  # by path; None: a folder

    def place(self, root: Path) -> None:
        """Make the files below ``root``, and remove all others."""
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for path, content in sorted(self.files.items()):
            if content is None:
                (root / path).mkdir(exist_ok=True)
            else:
                (root / path).write_bytes(content)

    def told(self) -> str:
        """Where it is in the recording."""
        return f"after operation {self.after} ({self.operation}), names as after {self.names}"


def crashes(moments: Sequence[Moment]) -> list[Crash]:
    """All different states that a crash may leave, in the order of the operations.

    After each operation, names have reached the disk up to any one between the last certain change
    and the last change. Files that have changed since they were synchronised are as they were then,
    as they are now, cut, or filled with zeros. Where there is much of either, a part of it is
    tried, and after the next operation another part.
    """
    found: dict[int, Crash] = {}
    for after, now in enumerate(moments):
        changes = [
            journal
            for journal in range(now.certain, after)
            if moments[journal].names != moments[journal + 1].names
        ]
        for journal in [*changes[:1], *_some(changes[1:], after), after]:
            for files in _states(now, moments[journal], after):
                key = hash(frozenset((path, content) for path, content in files.items()))
                found[key] = Crash(after, journal, now.operation, files)
    return list(found.values())


def killed(moments: Sequence[Moment], after: int) -> Crash:
    """What is left where only the process ends: everything up to its last operation."""
    now = moments[after]
    files = {path: now.data.get(number) for path, number in now.names.items()}
    return Crash(after, after, now.operation, files)


def sample(found: Sequence[Crash], count: int, seed: int) -> list[Crash]:
    """Choose some states at random, evenly over the operations, one after the last included."""
    chance = random.Random(seed)
    by_moment: dict[int, list[Crash]] = {}
    for crash in found:
        by_moment.setdefault(crash.after, []).append(crash)
    for group in by_moment.values():
        chance.shuffle(group)
    chosen = [by_moment[max(by_moment)].pop()]
    while (groups := [group for group in by_moment.values() if group]) and len(chosen) < count:
        chance.shuffle(groups)
        chosen += [group.pop() for group in groups][: count - len(chosen)]
    return chosen


def _some(items: Sequence[T], turn: int) -> Sequence[T]:
    """Not too many items, evenly spread; others at the next turn."""
    apart = max(len(items) // MANY, 1)
    return items[turn % apart :: apart]


def _states(now: Moment, journal: Moment, turn: int) -> Iterator[dict[str, bytes | None]]:
    """The files under the names of one moment with all that may have become of their contents."""
    whole: dict[str, bytes | None] = {}
    open_ends: dict[str, list[bytes]] = {}
    for path, number in journal.names.items():
        if number not in now.data:
            whole[path] = None
            continue
        left = remains(now.synced.get(number, b""), now.data[number])
        whole[path] = left[0]
        if len(left) > 1:
            open_ends[path] = left
    for chosen in _choices(list(open_ends.values()), now is journal, turn):
        yield whole | dict(zip(open_ends, chosen, strict=True))


def _choices(
    remaining: Sequence[Sequence[bytes]], is_latest: bool, turn: int
) -> Iterator[Sequence[bytes]]:
    """One of the remains for each file: the same for all, or one file unlike the others."""
    if len(remaining) <= FEW:
        yield from product(*remaining)
        return
    kinds = max(map(len, remaining))
    rows = [[left[min(kind, len(left) - 1)] for left in remaining] for kind in range(kinds)]
    yield from rows
    if is_latest:
        for others in rows[:2]:  # all as they were, or all as they are
            for place in _some(range(len(remaining)), turn):
                for each in remaining[place]:
                    yield [*others[:place], each, *others[place + 1 :]]


@functools.cache
def remains(synced: bytes, data: bytes) -> list[bytes]:
    """What may be left of a file: as synchronised, as it is, cut, or filled with zeros.

    What is the same at the beginning of both was not written again, and stays.
    """
    both = enumerate(zip(synced, data, strict=False))
    kept = next((n for n, (a, b) in both if a != b), min(len(synced), len(data)))
    if kept == len(data):  # only cut short
        return list(dict.fromkeys([synced, data]))
    middle = (kept + len(data)) // 2
    zeros = bytes(len(data) - kept)
    return list(dict.fromkeys([synced, data, data[:kept], data[:middle], data[:kept] + zeros]))
