"""Ctrl-C and SIGTERM: as requests to a run, which stops where it can go on later, or as ends.

A process that was started to do a part of another's work ends with the other, however that ends.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

BOUND = "FIREHOSE_BOUND"  # tells a process to end when its standard input does
PATIENCE = 120  # seconds that a process has to write its checkpoint when it is to stop


class Request:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.made = False


class _Received:
    """The last signal that asked this process to end."""

    number = int(signal.SIGINT)


def status() -> int:
    """What a process that was told to stop ends with, as shells have it: 130, or 143."""
    return 128 + _Received.number


def interrupt_when_terminated() -> None:
    """Let SIGTERM do from now on what Ctrl-C does: what is open is closed on the way out."""

    def interrupt(number: int, _: Any) -> None:
        _Received.number = number
        raise KeyboardInterrupt

    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, interrupt)


@contextlib.contextmanager
def stop_requests() -> Iterator[Request]:
    """Ctrl-C and SIGTERM ask the run to stop where it can go on later; a second one insists."""
    request = Request()

    def ask(number: int, _: Any) -> None:
        _Received.number = number
        if request.made:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        request.made = True

    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread: nobody to ask
        before = {kind: signal.signal(kind, ask) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def end_with_parent() -> None:
    """Stop as if told to when the parent that bound this process to itself has ended.

    The parent holds the other end of this process's standard input, which the system closes
    however the parent ends: nothing has to be asked for, and no moment is missed.
    """
    if os.environ.pop(BOUND, ""):
        threading.Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(128 + signal.SIGTERM)
