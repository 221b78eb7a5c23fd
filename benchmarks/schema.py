"""A service asked everything that its description allows, and much that it does not.

    python benchmarks/schema.py [--requests 10000] [--seed 0]

Schemathesis makes requests from `/openapi.json`, half of them as described and half of them not,
and sends them to a small service that learns from them. Prints how often each operation answered
with each status; ends with status 1 where an answer is a server's fault (500 or more), or where
there is none. Needs `pip install schemathesis`. `/v1/events`, which never ends, is left out.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from conftest import prepared, simple_posts
from small_services import begun, live

PATIENCE = 120  # seconds for an answer
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


def strategies(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every operation with its name, asked as described and otherwise, where that is possible."""
    for found in schema.exclude(path="/v1/events").get_all_operations():
        operation = found.ok()
        for mode in MODES:
            if mode is MODES[0] or operation.body or list(operation.iter_parameters()):
                yield operation.label, operation.as_strategy(generation_mode=mode)


def ask(strategy: Any, address: str, count: int, number: int, statuses: Counter[int]) -> list[str]:
    """Send so many requests; returns those whose answer is the server's fault."""
    faults: list[str] = []
    session = requests.Session()

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def send(case: Any) -> None:
        try:
            status = case.call(base_url=address, session=session, timeout=PATIENCE).status_code
        except requests.ConnectionError as error:
            status = 599
            faults.append(f"no answer ({error}): {case.as_curl_command()}")
        statuses[status] += 1
        if status >= 500:
            faults.append(f"{status}: {case.as_curl_command()}")

    send()
    return faults


def main() -> None:
    """Print a line for each operation, and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--requests", type=int, default=10_000, help="in all, or a few more")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began, total, faults = time.monotonic(), 0, []
    with tempfile.TemporaryDirectory() as name:
        state = begun(Path(name), prepared(Path(name), simple_posts()))
        with live(state) as address:
            schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
            every = sorted(strategies(schema), key=lambda each: "POST" in each[0])
            asked: dict[str, Counter[int]] = {label: Counter() for label, _ in every}
            for place, (label, strategy) in enumerate(every):
                # Where little can be varied there are few requests: the later ones make up for it.
                count = -(-(arguments.requests - total) // (len(every) - place))
                before = asked[label].total()
                faults += ask(strategy, address, max(count, 1), arguments.seed, asked[label])
                total += asked[label].total() - before
            for label, statuses in asked.items():
                told = ", ".join(f"{status}: {n:,}" for status, n in sorted(statuses.items()))
                print(f"{label:28} {told}")
    print(f"{total:,} requests, {len(faults)} faults, {time.monotonic() - began:.0f} s")
    print(*faults[:20], sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
