"""A service asked everything that its description allows, and much that it does not.

    python benchmarks/schema.py [--requests 10000] [--seed 0]

Schemathesis makes requests from `/openapi.json`, half of them as described and half of them not,
and sends them to a small service that learns from them. Many are about a user who
has posted; who is to be deleted posts before that. Prints how often each operation answered with
each status; ends with status 1 where an answer is a server's fault (500 or more), where there is
none, or where an operation never met a user whom it knows. Needs `pip install schemathesis`.
`/v1/events`, which never ends, is left out.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from conftest import prepared, simple_posts
from small_services import TEXT, begun, live

PATIENCE = 120  # seconds for an answer
# Who have posted: so many that none asks too often.
KNOWN = (*(f"user{n}" for n in range(30)), "a/b ?#&é☃", "<script>alert(1)</script>")
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


class Answers(NamedTuple):
    """How often an operation has answered with each status."""

    all: Counter[int]
    known: Counter[int]  # where it was about somebody who has posted

    def told(self) -> str:
        """Both, in one line."""
        known = _told(self.known)
        return _told(self.all) + (f"; of users who have posted {known}" if known else "")


def _told(statuses: Counter[int]) -> str:
    return ", ".join(f"{status}: {n:,}" for status, n in sorted(statuses.items()) if n)


def strategies(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every operation with its name, asked as described and otherwise, where that is possible."""
    for found in schema.exclude(path="/v1/events").get_all_operations():
        operation = found.ok()
        for mode in MODES:
            if mode is MODES[0] or operation.body or list(operation.iter_parameters()):
                yield operation.label, operation.as_strategy(generation_mode=mode)


def post(address: str, users: Sequence[str]) -> None:
    """Have users post; what is posted twice counts once."""
    sent = [{"user": user, "text": TEXT, "id": "1"} for user in users]
    requests.post(f"{address}/v1/posts", json=sent, timeout=PATIENCE).raise_for_status()


def ask_about(case: Any, user: str, address: str) -> bool:
    """Let a request be about this user, if it can be about any; False: it cannot."""
    named = {each.name for each in case.operation.iter_parameters()}
    bodies = case.body if isinstance(case.body, list) else [case.body]
    found = [(body, "user", user) for body in bodies if isinstance(body, dict)]
    if "name" in named and isinstance(case.path_parameters, dict):
        found.append((case.path_parameters, "name", quote(user, safe="")))
    if "user" in named and isinstance(case.query, dict):
        found.append((case.query, "user", user))
    for place, key, value in found:
        place[key] = value
    if found and case.method == "DELETE":
        post(address, [user])
    return bool(found)


def ask(strategy: Any, address: str, count: int, number: int, answers: Answers) -> list[str]:
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
    @given(case=strategy, user=st.sampled_from(KNOWN), is_known=st.booleans())
    def send(case: Any, user: str, is_known: bool) -> None:
        is_known = is_known and ask_about(case, user, address)
        try:
            status = case.call(base_url=address, session=session, timeout=PATIENCE).status_code
        except requests.ConnectionError as error:
            status = 599
            faults.append(f"no answer ({error}): {case.as_curl_command()}")
        answers.all[status] += 1
        answers.known[status] += is_known
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
            asked = {label: Answers(Counter(), Counter()) for label, _ in every}
            for place, (label, strategy) in enumerate(every):
                # Where little can be varied there are few requests: the later ones make up for it.
                count = -(-(arguments.requests - total) // (len(every) - place))
                before = asked[label].all.total()
                post(address, KNOWN)
                faults += ask(strategy, address, max(count, 1), arguments.seed, asked[label])
                total += asked[label].all.total() - before
    for label, answers in asked.items():
        print(f"{label:28} {answers.told()}")
        if answers.known.total() and not any(answers.known[status] for status in range(200, 300)):
            faults.append(f"{label} never met a user whom it knows")
    print(f"{total:,} requests, {len(faults)} faults, {time.monotonic() - began:.0f} s")
    print(*faults[:20], sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
