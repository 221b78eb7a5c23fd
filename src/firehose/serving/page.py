"""The page that people see at ``/``, and the events that keep it up to date."""

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from firehose.serving.desk import BusyError, Desk
from firehose.serving.feed import Feed

EVERY = 1.0  # seconds between two events
LOOK = 0.1  # seconds between two looks whether the service ends
MOST_WATCHING = 64


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """The page and its headers, which allow it its own script and style, and nothing else."""
    content = Path(__file__).with_name("page.html").read_bytes()
    policy = {
        "default-src": "'none'",
        "script-src": _hash(content, b"script"),
        "style-src": _hash(content, b"style"),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return content, {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def _hash(content: bytes, element: bytes) -> str:
    """How a policy names the only script or style of a page."""
    found = re.search(rb"<%s>(.*?)</%s>" % (element, element), content, re.DOTALL)
    assert found is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1]).digest()).decode()}'"


class Watchers:
    """Those who watch a service: each is told what is new, until it or the service ends."""

    def __init__(self, feed: Feed, is_ending: Callable[[], bool]) -> None:
        self.feed, self.is_ending = feed, is_ending
        self.count = 0

    def refuse_too_many(self) -> None:
        """Raise BusyError where there is no room for one more."""
        if self.count >= MOST_WATCHING:
            raise BusyError(f"{MOST_WATCHING} pages are watching already; try again later.")

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events: at first all there is, then what is new."""
        last_round, shown, next_look = 0, None, 0.0
        self.count += 1
        try:
            while not self.is_ending():
                if time.monotonic() >= next_look:
                    news, last_round, shown = await run_in_threadpool(self._look, last_round, shown)
                    next_look = time.monotonic() + EVERY
                    yield f"data: {json.dumps(news)}\n\n"
                await asyncio.sleep(LOOK)
        finally:
            self.count -= 1

    def _look(self, last_round: int, shown: Any) -> tuple[dict[str, Any], int, Any]:
        """What to tell somebody who knows the rounds up to one, and has been shown some posts."""
        news: dict[str, Any] = {"now": self.feed.numbers()}
        rounds = self.feed.rounds(last_round)
        if rounds:
            news["rounds"] = rounds
        posts = self.feed.posts()
        seqs = [post["seq"] for post in posts]
        if seqs != shown:  # all of them: one that was forgotten is to go
            news["posts"] = posts
        return news, int(rounds[-1][0]) if rounds else last_round, seqs


def add_page(app: FastAPI, desk: Desk, read: Any) -> None:
    """Add the page and its events to an application; ``read`` lets in who may read."""
    watchers = Watchers(Feed(desk), desk.ending.is_set)

    @app.get("/", include_in_schema=False)
    def show(request: Request) -> HTMLResponse:
        # Whoever has no token sees a page that asks for one, and is told so by the status.
        content, headers = page()
        return HTMLResponse(content, 200 if request.scope["role"] else 401, headers)

    @app.get(
        "/v1/events",
        dependencies=[read],
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    def events() -> StreamingResponse:
        """What happens, as server-sent events, a JSON object each, for as long as you listen.

        `now` has the numbers of the moment; `rounds` the new points of the curve: number of the
        last round, posts, words, nats, nats as nobody; `posts` the last ones, with what each word
        cost.
        """
        watchers.refuse_too_many()
        return StreamingResponse(
            watchers.events(),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
