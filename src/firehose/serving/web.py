"""The service over HTTP: posts in, suggestions, texts and scores out, and forgetting on request."""

import math
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.middleware.cors import CORSMiddleware

import firehose
from firehose.data.clean import mend
from firehose.data.post import Post
from firehose.data.sources.fields import moment
from firehose.errors import FirehoseError
from firehose.generation.sampling import Sampling
from firehose.serving.access import Gatekeeper, Token, allows
from firehose.serving.desk import BusyError, Desk
from firehose.serving.inbox import FullError
from firehose.serving.metrics import Metrics, Timed
from firehose.serving.pacing import Pacing, TooOftenError
from firehose.serving.page import add_page

RETRY = {"Retry-After": "5"}  # seconds


class Limits(NamedTuple):
    """What a request may have."""

    body: int = 1 << 20  # bytes
    posts: int = 1_000
    texts: int = 16  # that are generated at once
    seconds: float = 60.0  # that somebody waits to be forgotten
    rate: float = 20.0  # requests of a user in a second, on average over five


def _named(name: str) -> str:
    if not name.strip():
        raise ValueError("a user needs a name that can be seen")
    return mend(name)


Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_named)]
Text = Annotated[str, Field(max_length=4_096)]


class Body(BaseModel):
    """What is sent: no other fields than those that are known."""

    model_config = ConfigDict(extra="forbid")


class NewPost(Body):
    """A post: who writes what; when, as ISO 8601 or a number; and an id that counts once."""

    user: Name
    text: Text
    time: int | float | str | None = None
    id: str | None = Field(default=None, min_length=1, max_length=256)

    def to_post(self) -> Post:
        """The post; raises FirehoseError for a time that cannot be read."""
        found = 0 if self.time is None else moment(self.time)
        if found is None:
            raise FirehoseError(f"time = {self.time!r:.40} is neither ISO 8601 nor a number.")
        return Post(self.user, self.text, found, self.id or "")


class Prompt(Body):
    """How texts begin, who writes them, and how they are drawn."""

    prompt: Text
    user: Name | None = None
    count: int = Field(default=1, ge=1)
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class Question(Body):
    """A text to be scored."""

    text: Text
    user: Name | None = None


def needs(role: str) -> Any:
    """A dependency: only who has this role may go on."""

    def check(request: Request) -> None:
        if not allows(request.scope.get("role"), role):
            raise HTTPException(403, f"This needs a token with the role {role}.")

    return Depends(check)


READ, WRITE, ADMIN = needs("read"), needs("write"), needs("admin")


def make_app(
    desk: Desk,
    tokens: Sequence[Token] = (),
    hosts: Sequence[str] = (),
    limits: Limits = Limits(),  # noqa: B008 (it cannot be changed)
    origins: Sequence[str] = (),
) -> Any:
    """The application that uvicorn serves; ``hosts`` are the names it may be called by, if any.

    Pages of other ``origins`` than its own may use it only if they are named.
    """
    app = FastAPI(
        title="Firehose",
        description="A language model for each user, which learns from posts as they come.",
        version=firehose.__version__,
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
    )
    metrics, pacing = Metrics(desk), Pacing(limits.rate)
    app.add_middleware(Timed, metrics)
    _add_handlers(app)
    _add_posts(app, desk, limits, pacing)
    _add_answers(app, desk, limits, pacing)
    _add_users(app, desk, limits, pacing)
    _add_health(app, desk, metrics)
    add_page(app, desk, READ)
    guarded = Gatekeeper(app, tokens, hosts, limits.body)
    if not origins:
        return guarded
    # Outside of the gate: browsers ask without a token whether they may ask.
    return CORSMiddleware(
        guarded,
        allow_origins=origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("Authorization", "Content-Type"),
        expose_headers=("Retry-After",),
    )


def _add_handlers(app: FastAPI) -> None:
    """Errors are a sentence."""

    @app.exception_handler(FirehoseError)
    def refused(_: Request, error: FirehoseError) -> JSONResponse:
        busy = {FullError: 429, TooOftenError: 429, BusyError: 503}
        status = busy.get(type(error), 422)
        headers = RETRY if status != 422 else None
        if isinstance(error, TooOftenError):
            headers = {"Retry-After": str(math.ceil(error.seconds))}
        return JSONResponse({"detail": mend(str(error))}, status, headers)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]  # without what was sent, which may be long, or no text at all
        place = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"detail": mend(f"{place}: {first['msg']}")}, 422)

    @app.exception_handler(sqlite3.OperationalError)
    def unwritable(_: Request, error: sqlite3.OperationalError) -> JSONResponse:
        return JSONResponse({"detail": f"The inbox cannot be used now: {error}."}, 503, RETRY)


def _add_posts(app: FastAPI, desk: Desk, limits: Limits, pacing: Pacing) -> None:
    @app.post("/v1/posts", dependencies=[WRITE])
    def accept(posts: NewPost | list[NewPost]) -> dict[str, Any]:
        """Take one post or many; they are on disk when the answer comes."""
        every = posts if isinstance(posts, list) else [posts]
        if len(every) > limits.posts:
            raise FirehoseError(f"A request has no more than {limits.posts:,} posts.")
        pacing.take(post.user for post in every)
        made = [post.to_post() for post in every]
        for post in made:
            desk.refuse_unreadable(post)
        accepted = desk.inbox.accept(made)
        return {"accepted": sum(accepted.is_new), "ids": accepted.ids, "new": accepted.is_new}

    @app.delete("/v1/posts", dependencies=[WRITE], status_code=202)
    def withdraw(
        user: Annotated[Name, Query()], id: Annotated[str, Query(max_length=256)]
    ) -> dict[str, Any]:
        """Delete one post; what the weights have learned of it already stays in them."""
        pacing.take([user])
        return {"request": desk.inbox.request(user, id)}


def _add_answers(app: FastAPI, desk: Desk, limits: Limits, pacing: Pacing) -> None:
    @app.get("/v1/suggest", dependencies=[READ])
    def suggest(
        text: Annotated[Text, Query()] = "",
        user: Annotated[Name | None, Query()] = None,
        k: Annotated[int, Query(ge=1, le=20)] = 3,
    ) -> dict[str, Any]:
        """The most probable next words after a text, or the completions of a begun word."""
        pacing.take([user] if user else ())
        found = desk.suggest(text, user, k)
        return {"suggestions": [each._asdict() for each in found]}

    @app.post("/v1/generate", dependencies=[READ])
    def generate(asked: Prompt) -> dict[str, Any]:
        """Texts as a user would go on from a prompt."""
        pacing.take([asked.user] if asked.user else ())
        if asked.count > limits.texts:
            raise FirehoseError(f"No more than {limits.texts} texts are written at once.")
        values = asked.model_dump(exclude={"prompt", "user", "count"})
        sampling = Sampling.of(values, "the request")
        texts, withheld = desk.generate(asked.prompt, asked.user, sampling, asked.count)
        told = [{"text": t.text, "nats": t.nats, "finished": t.finished} for t in texts]
        return {"texts": told, "withheld": withheld}

    @app.post("/v1/score", dependencies=[READ])
    def score(asked: Question) -> dict[str, Any]:
        """What a text costs as this user, and as nobody: nats, and perplexity per word."""
        pacing.take([asked.user] if asked.user else ())
        found = desk.score(asked.text, asked.user)
        return {
            "words": found.words,
            "nats": found.nats,
            "nats_as_nobody": found.nobody,
            "perplexity": _perplexity(found.nats, found.words),
            "perplexity_as_nobody": _perplexity(found.nobody, found.words),
            "known": found.is_known,
        }


def _add_users(app: FastAPI, desk: Desk, limits: Limits, pacing: Pacing) -> None:
    @app.get("/v1/users/{name:path}", dependencies=[READ])
    def person(name: Name) -> dict[str, Any]:
        """What is known of a user, and what it saves that it is known."""
        pacing.take([name])
        found = desk.book.person(name)
        if found is None:
            raise HTTPException(404, "Nobody of that name has posted.")
        return {
            "user": mend(name),
            "posts": found.posts,
            "learned": found.learned,
            "first": _iso(found.first),
            "last": _iso(found.last),
            "words": found.words,
            "perplexity": _perplexity(found.nats, found.words),
            "perplexity_as_nobody": _perplexity(found.nobody, found.words),
            "typical_words": found.typical,
        }

    @app.delete("/v1/users/{name:path}", dependencies=[ADMIN])
    def forget(name: Name, response: Response) -> dict[str, Any]:
        """Forget a user: posts, vector, moments, counts and name; the answer says what there was.

        It comes when nothing is left. Where that takes too long, the status is 202, and it goes on.
        """
        pacing.take([name])
        erased = desk.forget(name, None, limits.seconds)
        if erased is None:
            response.status_code = 202
            return {"done": False, "erased": {}}
        if not any(erased.values()):
            raise HTTPException(404, "There is no user of that name.")
        return {"done": True, "erased": erased}


def _add_health(app: FastAPI, desk: Desk, metrics: Metrics) -> None:
    @app.get("/healthz")
    def alive() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    @app.get("/readyz", dependencies=[READ])
    def ready(response: Response) -> dict[str, Any]:
        """Whether a model is loaded; also whether it is learning right now."""
        if desk.served is None:
            response.status_code = 503
        number = desk.served.number if desk.served else None
        return {"snapshot": number, "learning": desk.is_learning()}

    @app.get("/metrics", dependencies=[READ])
    def numbers() -> Response:
        """All that is counted and measured, for Prometheus."""
        return Response(metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _perplexity(nats: float, words: int) -> float | None:
    """Per word; None: there are none, or it is beyond all numbers."""
    per_word = nats / words if words else math.inf
    return math.exp(per_word) if per_word < 700 else None


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
