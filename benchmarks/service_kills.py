"""A service whose processes are killed at random moments, while posts come in.

    python benchmarks/service_kills.py [--kills 50] [--seed 0] [--rate 20] [--predictor mixture]

The process that answers and the process that learns are killed (SIGKILL), one or both, while they
start and while they work; they are started again. Whoever posts asks again until there is an
answer. Then every accepted post must have been learned once, and the model must be the same to the
bit as one that plays the same inbox without a kill. Ends with status 1 where it is not.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # the same bits in every process
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from conftest import prepared, simple_posts
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.learner import Pace
from firehose.serving.listening import Address
from firehose.serving.people import Book
from firehose.serving.service import Child, Service, ServiceSettings, running
from small_services import MIXTURE, begun, differing, drained, final_state, posts

ROUND = 8  # posts
SETTINGS = ServiceSettings(port=0, round_posts=ROUND, round_seconds=0.3, checkpoint_every=1.0)
WAIT = 0.1  # seconds before a process is started again
MOST_BETWEEN = 40  # posts between two kills
DRAIN = 900.0  # seconds that the rest may take


def post(address: str, rate: float, ended: threading.Event, accepted: Counter[str]) -> None:
    """Bring posts until told to end, each until it is accepted; some are sent twice."""
    target, number, chance = Address(address, None), 0, random.Random(0)
    while not ended.wait(chance.expovariate(rate)):
        (made,) = posts(1, number)
        for _ in range(2 if chance.random() < 0.05 else 1):
            accepted[made.id] += target.bring([made])
        number += 1


class Progress:
    """How far a service has come: posts that were accepted, and rounds that were played."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox

    def now(self) -> tuple[int, int]:
        """Both, as they are on disk."""
        value = self.inbox.database.value
        rounds = value("SELECT count(*) FROM rounds WHERE played")
        return value("SELECT count(*) FROM posts"), rounds

    def is_beyond(self, before: tuple[int, int], posts: int) -> bool:
        """Whether both processes have worked since: so many posts, and a round."""
        accepted, rounds = self.now()
        return accepted >= before[0] + posts and rounds > before[1]


def kill(child: Child, counts: Counter[str], phase: str) -> None:
    """Kill a process, whatever it does."""
    if child.process.poll() is None:
        counts[f"{child.task}, {phase}"] += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.process.pid, signal.SIGKILL)
    child.wait = WAIT  # else it would wait ever longer


def disturb(
    service: Service, progress: Progress, kills: int, chance: random.Random
) -> Counter[str]:
    """Kill processes so many times, and let them be started again; returns what was killed.

    Moments are chosen by what was done since the last kill, so that they are as random on a machine
    that is busy; a few are soon after it, while processes start.
    """
    counts: Counter[str] = Counter()
    while counts.total() < kills:
        before, more = progress.now(), chance.randint(1, MOST_BETWEEN)
        is_early = chance.random() < 0.15
        if not is_early:
            service.look_after_until(lambda: progress.is_beyond(before, more))  # noqa: B023
        end = time.monotonic() + chance.uniform(0, 1)
        service.look_after_until(lambda: time.monotonic() > end)  # noqa: B023
        both = [service.learner, service.server]
        for child in chance.sample(both, k=1 if chance.random() < 0.8 else 2):
            kill(child, counts, "starting" if is_early else "working")
    return counts


def main() -> None:
    """Kill, drain, replay, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments")
    parser.add_argument("--rate", type=float, default=20.0, help="posts a second")
    parser.add_argument("--predictor", choices=("model", "mixture"), default="mixture")
    arguments = parser.parse_args()
    began, accepted, ended = time.monotonic(), Counter[str](), threading.Event()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        more = MIXTURE if arguments.predictor == "mixture" else []
        state = begun(folder, prepared(folder, simple_posts()), *more)
        fresh = shutil.copytree(state, folder / "fresh")
        inbox = Inbox(state / FILE)
        with running(None, state, SETTINGS) as service:
            poster = threading.Thread(
                target=post, args=(service.address, arguments.rate, ended, accepted)
            )
            poster.start()
            counts = disturb(
                service, Progress(inbox), arguments.kills, random.Random(arguments.seed)
            )
            ended.set()
            # What was asked for last is answered when the server is up again.
            service.look_after_until(lambda: not poster.is_alive())
            end = time.monotonic() + DRAIN
            service.look_after_until(lambda: not inbox.waiting() or time.monotonic() > end)
        totals, faults = Book(inbox.database).totals(), list[str]()
        # An answer that was lost with its process was a yes: asked again, the post was there.
        faults += [f"{each} was new twice" for each, times in accepted.items() if times > 1]
        if (totals.learned, totals.waiting) != (len(accepted), 0):
            faults.append(f"{len(accepted):,} posts were accepted, {totals.learned:,} learned")
        rounds = inbox.database.value("SELECT sum(posts) FROM rounds WHERE played")
        if rounds != len(accepted):
            faults.append(f"the rounds have {rounds:,} posts")
        inbox.close()
        for path in state.glob("inbox*"):
            shutil.copy(path, fresh)
        drained(fresh, Pace(posts=ROUND, seconds=0.0))
        result = final_state(state)
        if result["posts"] != len(accepted):
            faults.append(f"the model has learned from {result['posts']:,}")
        faults += [
            f"{place} differs from the replay" for place in differing(final_state(fresh), result)
        ]
    print(*(f"{count:4} × {what}" for what, count in sorted(counts.items())), sep="\n")
    print(
        f"{counts.total()} kills, {len(accepted):,} posts, {totals.rounds:,} rounds, "
        f"{time.monotonic() - began:.0f} s; {len(faults)} faults",
        *faults[:20],
        sep="\n",
    )
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
