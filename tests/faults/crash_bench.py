"""Crash a scenario in many states, recover from each, and count how it came out."""

import contextlib
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aftermath import Crash, crashes, sample
from judging import Wrong, leftovers, meaning, refuse_other
from recorder import Recorder
from scenarios import SCENARIOS, Scenario, Truth, World

WRONG = "wrong"


class Report(NamedTuple):
    """What came of the crashes of one scenario."""

    name: str
    operations: int
    possible: int  # different states
    outcomes: Counter[str]
    faults: dict[str, list[str]]  # what was wrong, and where


class Rehearsal:
    """A scenario that was recorded, and can be crashed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.scenario: Scenario = SCENARIOS[name]
        with _silence():
            self.world = World.make(folder)
            self.scenario.before(self.world)
            before = meaning(self.world.live)
            with Recorder(self.world.live) as recorder:
                self.scenario.act(self.world)
            self.done = meaning(self.world.live)
            self.scenario.finish(self.world)
            self.truth = Truth(before, meaning(self.world.live))
        self.operations = len(recorder.moments)
        self.crashes = crashes(recorder.moments)

    def outcome(self, crash: Crash) -> str:
        """Recover from a crash; raises Wrong where that leads to anything but the truth."""
        crash.place(self.world.live)
        if crash.after == self.operations - 1:
            self._refuse_undone()
        with _silence():
            came_out = self.scenario.recover(self.world, self.truth)
            self.scenario.finish(self.world)
        refuse_other(self.world.live, self.truth.after)
        return came_out

    def _refuse_undone(self) -> None:
        """Raise Wrong where a command that has ended well is undone by a crash after it."""
        refuse_other(self.world.live, self.done)
        if left := leftovers(self.world.live):
            raise Wrong(f"after the end of the command there is still {left[0]}")

    def run(self, count: int, seed: int) -> Report:
        """Crash in so many of the possible states."""
        chosen = sample(self.crashes, count, seed)
        outcomes: Counter[str] = Counter()
        faults: dict[str, list[str]] = {}
        for crash in chosen:
            try:
                outcomes[self.outcome(crash)] += 1
            except Wrong as error:
                outcomes[WRONG] += 1
                faults.setdefault(str(error), []).append(crash.told())
        return Report(self.name, self.operations, len(self.crashes), outcomes, faults)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stderr(io.StringIO()):
        yield
