"""Start a command as several processes that play together on this machine, and watch them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from firehose.errors import FirehoseError
from firehose.interrupts import BOUND, PATIENCE
from firehose.parallel.place import LAUNCHED, LOST

HOST = "127.0.0.1"
GRACE = 10.0  # seconds for the others to end by themselves, once one has failed
POLL = 0.05  # seconds between two looks


def launch(processes: int, command: Sequence[str] | None = None) -> int:
    """Run this command as several processes; returns the status that it ends with.

    Signals are handed on to all of them, and the first one prints. Raises FirehoseError where one
    was killed, or they lost each other.
    """
    program = list(command or [sys.executable, "-m", "firehose", *sys.argv[1:]])
    port, children = free_port(), []
    try:
        for rank in range(processes):
            environment = os.environ | _environment(rank, processes, port)
            # In a session of its own, so that Ctrl-C comes from here, and only once.
            children.append(
                subprocess.Popen(
                    program, env=environment, stdin=subprocess.PIPE, start_new_session=True
                )
            )
        with _handing_on(children) as signals:
            ended = _watch(children)
        return _judge(ended, signals)
    finally:
        _end(children)


def _environment(rank: int, processes: int, port: int) -> dict[str, str]:
    """What torchrun would say, and how many threads each process has."""
    threads = max((os.cpu_count() or 1) // processes, 1)
    told = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes,
        "MASTER_ADDR": HOST, "MASTER_PORT": port, LAUNCHED: 1, BOUND: 1,
        "TORCH_CPP_LOG_LEVEL": "FATAL",  # what else torch has to say of lost processes, we say
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads),
    }  # fmt: skip
    if sys.platform == "linux":  # not by the name of the machine, which may lead nowhere
        told["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    return {name: str(value) for name, value in told.items()}


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def _handing_on(children: Sequence["subprocess.Popen[bytes]"]) -> Iterator[list[int]]:
    """Hand on Ctrl-C and SIGTERM to all processes inside; yields those that came."""
    came: list[int] = []

    def hand_on(number: int, _: Any) -> None:
        came.append(number)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    before = {kind: signal.signal(kind, hand_on) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _watch(children: Sequence["subprocess.Popen[bytes]"]) -> dict[int, int]:
    """Wait until all have ended, or for a while after one has failed; their statuses, by rank."""
    ended: dict[int, int] = {}
    deadline = float("inf")
    while len(ended) < len(children) and time.monotonic() < deadline:
        time.sleep(POLL)
        for rank, child in enumerate(children):
            if rank not in ended and child.poll() is not None:
                ended[rank] = child.returncode
        if any(ended.values()) or 0 in ended:
            stopped = any(status > 128 for status in ended.values())
            deadline = min(deadline, time.monotonic() + (PATIENCE if stopped else GRACE))
    return ended


def _judge(ended: dict[int, int], signals: Sequence[int]) -> int:
    """The status of all together; raises FirehoseError where nobody has said what went wrong."""
    told = [status for _, status in sorted(ended.items()) if status > 0 and status != LOST]
    killed = {rank: -status for rank, status in sorted(ended.items()) if status < 0}
    if told or not any(ended.values()):
        return next(iter(told), 0)
    if signals:
        return 128 + signals[-1]
    what = "One of the processes does not answer any more"
    for rank, number in killed.items():
        name = signal.Signals(number).name
        what = f"Process {rank + 1} of those that play together was ended by {name}"
        if number == signal.SIGKILL:
            what += " (was there too little memory?)"
    raise FirehoseError(
        f"{what}, so all have stopped; `firehose resume` goes on with a run from its last "
        "checkpoint, with any number of processes."
    )


def _end(children: Sequence["subprocess.Popen[bytes]"]) -> None:
    """End what is still there."""
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()
        if child.stdin is not None:
            child.stdin.close()
