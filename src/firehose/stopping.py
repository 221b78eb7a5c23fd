"""Ctrl-C that cannot get lost.

Python raises KeyboardInterrupt wherever it happens to be. Within a callback, as imports and the
collection of garbage have them, it is printed and dropped, and the program goes on. So a command
notes that it was asked to stop, and long work looks there from time to time.
"""

import signal
from typing import Any, NoReturn

_asked = False


def listen() -> None:
    """From now on, Ctrl-C is noted before it interrupts; where it is ignored, it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(*_: Any) -> NoReturn:
    global _asked  # noqa: PLW0603 (a process has one keyboard)
    _asked = True
    raise KeyboardInterrupt


def check() -> None:
    """Stop here, if that was asked for."""
    if _asked:
        raise KeyboardInterrupt
