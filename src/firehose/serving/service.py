"""A whole service: a process that learns, a process that answers, and who looks after both."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from firehose.errors import FirehoseError, Stopped
from firehose.game.settings import Playing
from firehose.interrupts import BOUND, PATIENCE, stop_requests
from firehose.progress import say
from firehose.serving.access import read_tokens, refuse_no_origin
from firehose.serving.inbox import LIMIT
from firehose.serving.process import FAILED
from firehose.serving.state import NewModel, begin, refuse_no_model
from firehose.storage.locks import locked

LOOK = 0.1  # seconds between two looks at the processes
AGAIN = (0.2, 30.0)  # seconds before a process is started again: at first, and at most
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ServiceSettings(NamedTuple):
    """Where a service listens, whom it lets in, and when it learns."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: one that is free
    token_file: Path | None = None
    round_posts: int | None = None  # None: as the settings of the game say
    round_seconds: float = 5.0
    checkpoint_every: float = 60.0  # seconds
    waiting: int = LIMIT  # posts that may wait
    max_posts: int = 1_000  # of a request
    max_body: int = 1 << 20  # bytes of a request
    max_rate: float = 20.0  # requests of a user in a second
    trust: bool = False
    origins: Sequence[str] = ()  # of pages elsewhere that may use it, such as https://example.org


class Child:
    """One of the two processes; it is started again when something kills it."""

    def __init__(self, task: str, told: dict[str, Any]) -> None:
        self.task, self.told = task, told
        self.wait, self.next = AGAIN[0], 0.0
        self.start()

    def start(self) -> None:
        """Start the process; it ends when this one does."""
        command = [sys.executable, "-m", "firehose.serving.process", self.task]
        environment = {"OMP_NUM_THREADS": "1"} | os.environ | {BOUND: "1"}
        self.process = subprocess.Popen(
            [*command, json.dumps(self.told)],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us, and we tell them
        )
        self.begun = time.monotonic()

    def look_after(self) -> None:
        """Start the process again if it was killed; raises an error where that is of no use."""
        if self.process.poll() is None:
            return
        now = time.monotonic()
        if self.process.returncode == FAILED:
            raise FirehoseError(f"The service cannot go on: the process to {self.task} has failed.")
        if not self.next:
            lived = now - self.begun
            self.wait = AGAIN[0] if lived > AGAIN[1] else min(2 * self.wait, AGAIN[1])
            self.next = now + self.wait
            say(f"The process to {self.task} ended ({self._how()}) and is started again.")
        elif now >= self.next:
            self.next = 0.0
            self.close()
            self.start()

    def _how(self) -> str:
        code = self.process.returncode
        return signal.Signals(-code).name if code < 0 else f"status {code}"

    def end(self) -> None:
        """Let the process end as it should; not for ever."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.close()

    def close(self) -> None:
        """Let go of the pipe that binds the process to this one."""
        if self.process.stdin:
            self.process.stdin.close()


class Service:
    """A running service; ``address`` is where it answers."""

    def __init__(self, state: Path, settings: ServiceSettings) -> None:
        port = _free_port(settings.host, settings.port)
        brackets = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.address = f"http://{brackets}:{port}"
        is_open = settings.token_file is None
        common = {"state": str(state), "trust": settings.trust}
        pace = {
            "posts": settings.round_posts,
            "seconds": settings.round_seconds,
            "checkpoint_every": settings.checkpoint_every,
        }
        answers = {
            "host": settings.host,
            "port": port,
            "token_file": None if is_open else str(settings.token_file),
            # Without a token, only who asks for this machine by its own name is answered.
            "hosts": [*LOOPBACK, "[::1]"] if is_open else [],
            "origins": list(settings.origins),
            "limit": settings.waiting,
            "limits": {
                "posts": settings.max_posts,
                "body": settings.max_body,
                "rate": settings.max_rate,
            },
        }
        self.learner = Child("learn", common | {"pace": pace})
        self.server = Child("answer", common | answers)

    def look_after(self) -> None:
        """Start again what was killed; raises an error where the service cannot go on."""
        for child in (self.learner, self.server):
            child.look_after()

    def look_after_until(self, is_over: Callable[[], bool]) -> None:
        """Look after both processes until it is over."""
        while not is_over():
            self.look_after()
            time.sleep(LOOK)

    def stop(self) -> None:
        """Let the server answer what was asked, and the learner write its checkpoint."""
        for child in (self.server, self.learner):
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()
        for child in (self.server, self.learner):
            child.end()


@contextlib.contextmanager
def running(
    model: str | Path | NewModel | None,
    state: str | Path,
    settings: ServiceSettings = ServiceSettings(),  # noqa: B008 (it cannot be changed)
    playing: Playing | None = None,
    min_users: int | None = None,
) -> Iterator[Service]:
    """A service for as long as the block lasts.

    ``model`` is needed to begin; ``state`` is a folder of its own, which goes on where it ended.
    """
    _refuse_open_door(settings)
    refuse_no_origin(settings.origins)
    folder, start = Path(state), Path(model) if isinstance(model, str) else model
    refuse_no_model(folder, start)  # before a folder is made
    with locked(folder, wait=False):
        begin(folder, start, playing, min_users, settings.trust)
        service = Service(folder, settings)
        try:
            yield service
        finally:
            service.stop()


def serve(
    model: str | Path | NewModel | None,
    state: str | Path,
    settings: ServiceSettings = ServiceSettings(),  # noqa: B008 (it cannot be changed)
    playing: Playing | None = None,
    min_users: int | None = None,
) -> None:
    """Serve a model that learns, until Ctrl-C or SIGTERM."""
    with stop_requests() as request, running(model, state, settings, playing, min_users) as service:
        say(f"Serving at {service.address}; Ctrl-C stops.")
        service.look_after_until(lambda: request.made)
    raise Stopped(f"Stopped; `firehose serve --state {state}` goes on from there.")


def _refuse_open_door(settings: ServiceSettings) -> None:
    """Refuse to listen to others without a token."""
    if settings.token_file is not None:
        read_tokens(settings.token_file)
    elif settings.host not in LOOPBACK:
        raise FirehoseError(
            f"--host {settings.host} lets other machines in, which needs a token: write lines "
            "such as `write TOKEN` into a file, and name it with --token-file."
        )


def _free_port(host: str, port: int) -> int:
    """A port that can be listened at: this one, or any, if it is 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
        except OSError as error:
            raise FirehoseError(
                f"Cannot listen at {host}, port {port} ({error.strerror}); choose another --port, "
                "or another --host."
            ) from None
        free: int = found.getsockname()[1]
        return free
