"""A service under load: posts come in and are learned from while people type.

    python benchmarks/serve.py [--minutes 1] [--posts 50] [--suggestions 50] [--predictor model]

Serves a model of laptop size with 4,000 pieces on this machine. So many posts a second are sent,
which is what all of Bluesky writes, and so many suggestions are asked for, by people who type
letter by letter. Prints how long suggestions take (half of them, and 99 of 100), for how many of
them an answer was refused, how many posts wait, what memory each process has, by quarters of the
time, and how many accepted posts were lost; ends with status 1 if any was. With --posts 0 nothing
is learned meanwhile. With --recipe paper the model is of the paper's size, with 32,000 pieces, and
untrained; what answers has all cores then:

    python benchmarks/serve.py --recipe paper --posts 0 --suggestions 5
"""

import argparse
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

if "paper" not in sys.argv:
    os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import psutil

from firehose.data.vocabulary import Vocabulary
from firehose.game.live import ONLINE
from firehose.game.settings import make_settings
from firehose.serving.demo import make_model, stream
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.people import Book
from firehose.serving.service import Service, ServiceSettings, running
from firehose.serving.state import REMEMBERING, NewModel

WORDS, PIECES = 5_000, 4_000
INVENTED, PAPER_PIECES = 90_000, 32_000  # words beside those of the posts, at paper size
THREADS = 8  # that send requests of a kind
DRAIN = 600  # seconds that what waits at the end may take


class Answered(NamedTuple):
    """A request that came to an end."""

    moment: float  # seconds after the start
    seconds: float
    status: int


class Load(threading.Thread):
    """Sends requests at a steady rate; where answers are late, several at a time."""

    def __init__(self, address: str, rate: float, end: float, make: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.host, self.rate, self.end, self.make = address.removeprefix("http://"), rate, end, make
        self.answers: list[Answered] = []
        self.accepted: list[str] = []  # what requests are called that were
        self.behind = 0  # requests that were due and could not be sent, as all threads waited
        self._lock = threading.Lock()
        self._next = 0.0

    def run(self) -> None:
        """Send requests until the end."""
        self._next = time.monotonic()  # not earlier, or it would begin with a burst
        workers = [threading.Thread(target=self._work) for _ in range(THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self) -> None:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        while (due := self._turn()) < self.end:
            time.sleep(max(due - time.monotonic(), 0.0))
            with self._lock:
                method, path, sent, name = self.make()
            began = time.monotonic()
            try:
                connection.request(method, path, sent, {"content-type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                status = answer.status
            except (OSError, http.client.HTTPException):
                connection.close()
                status = 599
            now = time.monotonic()
            self.answers.append(Answered(now, now - began, status))
            if status == 200:
                self.accepted.append(name)

    def _turn(self) -> float:
        """When the next request is due; what is late by more than a second is not made up for."""
        with self._lock:
            self._next += 1 / self.rate
            late = time.monotonic() - self._next
            if late > 1:
                self.behind += int(late * self.rate)
                self._next = time.monotonic()
            return self._next


def make_vocabulary(path: Path) -> None:
    """A vocabulary as large as the paper's: of the words of the posts, and of invented ones."""
    chance, counts = random.Random(0), Counter[str]()
    for post in islice(stream(WORDS), 5_000):
        counts.update(post.text.split())
    syllables = [
        a + b + c for a in "bdfghklmnprstvwz" for b in "aeiou" for c in ("", "n", "r", "s")
    ]
    while len(counts) < INVENTED:
        counts["".join(chance.choices(syllables, k=chance.randint(1, 4)))] += 2
    path.write_bytes(Vocabulary.train(list(counts.items()), PAPER_PIECES).model)


def posting() -> Callable[[], Any]:
    """Requests that bring one post each, and are called as it is."""
    posts = stream(WORDS)

    def make() -> Any:
        post = next(posts)
        sent = {"user": post.user, "text": post.text, "id": post.id}
        return "POST", "/v1/posts", json.dumps(sent), post.id

    return make


def typing(chance: random.Random) -> Callable[[], Any]:
    """Requests of several people who type, each a letter at a time."""

    def person() -> Iterator[tuple[str, str]]:
        for post in posts:
            for end in range(1, min(len(post.text), 40)):
                yield post.user, post.text[:end]

    posts = stream(WORDS)
    people = [person() for _ in range(10)]

    def make() -> Any:
        user, text = next(chance.choice(people))
        return "GET", f"/v1/suggest?{urlencode({'user': user, 'text': text, 'k': 3})}", None, user

    return make


class Sample(NamedTuple):
    """How things are at a moment."""

    waiting: int
    memory: tuple[float, float]  # MB of the server and the learner
    busy: tuple[float, float]  # seconds that each has computed so far


def watch(service: Service, book: Book, end: float) -> list[Sample]:
    """Look at the service every second until the end."""
    samples = []
    while time.monotonic() < end:
        service.look_after()
        found = [psutil.Process(c.process.pid) for c in (service.server, service.learner)]
        server, learner = (each.memory_info().rss / 1e6 for each in found)
        spent = [sum(each.cpu_times()[:2]) for each in found]
        samples.append(Sample(book.totals().waiting, (server, learner), (spent[0], spent[1])))
        time.sleep(1)
    return samples


def quarters(values: list[float]) -> str:
    """The mean of each quarter."""
    return " ".join(f"{part.mean():8.1f}" for part in np.array_split(np.array(values), 4))


def report(load: Load, samples: list[Sample], posts: Load | None) -> None:
    """Print what came of it."""
    answered = [each for each in load.answers if each.status == 200]
    times = 1000 * np.array([each.seconds for each in answered])
    others = sum(each.status != 200 for each in load.answers)
    half, most = np.percentile(times, [50, 99])
    print(f"suggest: {len(times):,} answers, p50 {half:.1f} ms, p99 {most:.1f} ms")
    print(f"         {others} refused, {load.behind} not sent, as others were awaited")
    if posts is not None:
        half, most = np.percentile([1000 * each.seconds for each in posts.answers], [50, 99])
        fine = sum(each.status == 200 for each in posts.answers)
        print(f"posts:   {fine:,} accepted, p50 {half:.1f} ms, p99 {most:.1f} ms")
    print(f"waiting posts, by quarters:  {quarters([float(each.waiting) for each in samples])}")
    for number, name in enumerate(("server", "learner")):
        print(f"MB of the {name:7}, quarters: {quarters([s.memory[number] for s in samples])}")
    busy = np.diff([samples[0].busy, samples[-1].busy], axis=0)[0]
    # A machine that others use as well makes everything late, and computes no more for that.
    print(f"computed: {busy[0]:.1f} s by the server, {busy[1]:.1f} s by the learner")


def lost(state: Path, ids: list[str], service: Service) -> int:
    """Wait until all is learned from; returns how many accepted posts are not there."""
    inbox = Inbox(state / FILE)
    end = time.monotonic() + DRAIN
    service.look_after_until(lambda: not inbox.waiting() or time.monotonic() > end)
    rows = inbox.database.rows("SELECT id, nats IS NOT NULL FROM posts")
    learned = {name for name, is_learned in rows if is_learned}
    unreadable = Book(inbox.database).totals().unreadable
    inbox.close()
    return max(len(set(ids) - learned) - unreadable, 0)


def main() -> None:
    """Serve, load, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--posts", type=float, default=50.0, help="a second")
    parser.add_argument("--suggestions", type=float, default=50.0, help="a second")
    parser.add_argument("--predictor", choices=("model", "mixture"), default="model")
    parser.add_argument("--recipe", choices=("laptop", "paper"), default="laptop")
    arguments = parser.parse_args()
    chosen = REMEMBERING if arguments.predictor == "mixture" else ONLINE
    settings = make_settings(arguments.recipe, chosen)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start: Path | NewModel
        if arguments.recipe == "paper":
            make_vocabulary(vocabulary := folder / "vocabulary.model")
            start = NewModel(vocabulary, settings.model)
        else:
            start = make_model(folder, WORDS, PIECES)
            vocabulary = start / "vocabulary.model"
        pieces = Vocabulary.load(vocabulary).size
        print(f"{arguments.recipe}, {pieces:,} pieces, {arguments.predictor}")
        state = folder / "state"
        # A few simulated users send what many people would: none is told to wait.
        service_settings = ServiceSettings(port=0, round_seconds=1.0, max_rate=1000.0)
        with running(start, state, service_settings, settings.play) as service:
            inbox = Inbox(state / FILE)
            deadline = time.monotonic() + 300
            while not is_ready(service.address) and time.monotonic() < deadline:
                service.look_after()
                time.sleep(0.2)
            end = time.monotonic() + 60 * arguments.minutes
            typed = Load(service.address, arguments.suggestions, end, typing(random.Random(0)))
            posted = None
            if arguments.posts:
                posted = Load(service.address, arguments.posts, end, posting())
                posted.start()
            typed.start()
            samples = watch(service, Book(inbox.database), end)
            for load in (typed, posted):
                if load is not None:
                    load.join()
            report(typed, samples, posted)
            missing = lost(state, posted.accepted if posted else [], service)
            inbox.close()
    print(f"{missing} posts lost")
    sys.exit(bool(missing))


def is_ready(address: str) -> bool:
    """Whether the service has a model."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
