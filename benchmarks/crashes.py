"""Crashes of the machine in every command that writes, and what a user finds afterwards.

    python benchmarks/crashes.py [--states 3000] [--seed 0] [--only play …]

Each command is recorded, operation by operation, and then crashed: what was not synchronised is
lost, cut, or filled with zeros. After each crash the command is gone on with, or given again, as a
user would; the result must be the same to the bit as without a crash, or refused in a sentence that
leads on. Ends with status 1 where anything else came out.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # the same bits in every process
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))

from crash_bench import WRONG, Rehearsal, Report
from scenarios import AGAIN, REFUSED, RESUMED, SCENARIOS

COLUMNS = {
    RESUMED: "resumed",
    AGAIN: "run again",
    REFUSED: "refused",
    WRONG: "wrong",
}
MEMORY = Path("/dev/shm")  # synchronising costs nothing there


def crash(name: str, states: int, seed: int) -> Report:
    """Record one command, and crash it in so many states."""
    base = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="firehose-crashes-", dir=base))
    try:
        return Rehearsal(name, folder).run(states, seed)
    finally:
        shutil.rmtree(folder)


def line(name: str, operations: object, possible: object, tried: object, *rest: object) -> None:
    """Print one line of the table."""
    numbers = "".join(f"{value:>11}" for value in (operations, possible, tried, *rest))
    print(f"{name:24}{numbers}", flush=True)


def main() -> None:
    """Print a line for each command, and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--states", type=int, default=3000, help="at most, of all commands together"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses the states")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--only", nargs="*", choices=SCENARIOS, default=list(SCENARIOS))
    arguments = parser.parse_args()
    begun = time.monotonic()
    each = -(-arguments.states // len(arguments.only))
    line("", "operations", "possible", "tried", *COLUMNS.values())
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=spawn) as pool:
        work = [pool.submit(crash, name, each, arguments.seed) for name in arguments.only]
        for report in (future.result() for future in work):
            counts = [report.outcomes[name] for name in COLUMNS]
            tried = report.outcomes.total()
            line(report.name, report.operations, report.possible, tried, *counts)
            outcomes += report.outcomes
            for fault, places in report.faults.items():
                faults.append(f"{report.name}, {len(places)} ×: {fault}\n    {places[0]}")
    line("all", "", "", outcomes.total(), *(outcomes[name] for name in COLUMNS))
    print(f"{time.monotonic() - begun:.0f} s")
    print(*faults, sep="\n")
    sys.exit(outcomes[WRONG] > 0)


if __name__ == "__main__":
    main()
