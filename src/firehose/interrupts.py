"""Ctrl-C and SIGTERM as requests: a run stops where it can go on later."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class Request:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.made = False


@contextlib.contextmanager
def stop_requests() -> Iterator[Request]:
    """Ctrl-C and SIGTERM ask the run to stop where it can go on later; a second one insists."""
    request = Request()

    def ask(number: int, _: Any) -> None:
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
