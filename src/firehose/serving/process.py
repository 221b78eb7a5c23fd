"""The two processes of a service, each started as ``python -m firehose.serving.process``.

What each is to do is told as JSON on the command line; secrets are not: they are in files.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from firehose.errors import FirehoseError, visible_lines
from firehose.interrupts import end_with_parent

FAILED = 3  # what a process ends with that would fail again


def learn(told: Mapping[str, Any]) -> None:
    """Learn until told to stop."""
    from firehose.models.allocation import keep_memory
    from firehose.serving.learner import Pace, learn as begin

    keep_memory()
    begin(Path(told["state"]), Pace(**told["pace"]), told["trust"])


def answer(told: Mapping[str, Any]) -> None:
    """Answer over HTTP until told to stop."""
    import uvicorn

    from firehose.serving.access import read_tokens
    from firehose.serving.desk import Desk
    from firehose.serving.web import Limits, make_app

    tokens = read_tokens(Path(told["token_file"])) if told["token_file"] else []
    desk = Desk(Path(told["state"]), told["limit"], told["trust"])
    limits = Limits(**told["limits"])
    app = make_app(desk, tokens, told["hosts"], limits, told["origins"])
    config = uvicorn.Config(
        app,
        host=told["host"],
        port=told["port"],
        access_log=False,  # addresses have names of users in them
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=10,
        limit_concurrency=512,
    )

    class Server(uvicorn.Server):
        """Tells those who watch that it ends: else it would wait for them."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            desk.ending.set()
            super().handle_exit(sig, frame)

    try:
        Server(config).run()
    finally:
        desk.close()


TASKS: dict[str, Callable[[Mapping[str, Any]], None]] = {"learn": learn, "answer": answer}


def main() -> None:
    """Do a task; what somebody can mend is one sentence on stderr, and status 3."""
    end_with_parent()
    try:
        TASKS[sys.argv[1]](json.loads(sys.argv[2]))
    except FirehoseError as error:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"Error: {visible_lines(str(error))}\n")
            sys.stderr.flush()
        os._exit(FAILED)
    except KeyboardInterrupt:
        os._exit(130)


if __name__ == "__main__":
    main()
