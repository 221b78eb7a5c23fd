"""The service: a model that learns while it serves, and what it listens to."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from firehose.cli.app import App, Assignments, Trust, app, show
from firehose.errors import FirehoseError

DEMO = Path("demo/live")  # where the demo is served from

TokenFile = Annotated[
    Path | None, Option(help="A file of tokens: `read`, `write` or `admin`, a space, the token.")
]


@app.command()
def serve(  # noqa: PLR0913, PLR0917 (an option each)
    model: Annotated[
        Path | None, Argument(help="The model to begin with; not needed to go on.")
    ] = None,
    state: Annotated[
        Path | None, Option(help="The folder of the service, new or gone on with.")
    ] = None,
    new: Annotated[bool, Option("--new", help="Begin with a model that has read nothing.")] = False,
    vocab_model: Annotated[
        Path | None, Option(help="With --new: a SentencePiece .model, which spells its words.")
    ] = None,
    demo: Annotated[
        bool, Option("--demo", help="Serve a small model, to which simulated people post.")
    ] = False,
    host: Annotated[str, Option(help="Where to listen; elsewhere than here needs tokens.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Option(min=0, max=65_535, help="0: any that is free.")] = 8000,
    token_file: TokenFile = None,
    allow_origin: Annotated[
        list[str] | None,
        Option(help="Pages of this origin may use it, as https://example.org (may be repeated)."),
    ] = None,
    round_posts: Annotated[
        int | None, Option(min=1, help="A round closes after so many posts (default: play.posts).")
    ] = None,
    round_seconds: Annotated[
        float, Option(min=0, help="… or when a post has waited for so many seconds.")
    ] = 5.0,
    waiting: Annotated[int, Option(min=1, help="The most posts that may wait.")] = 10_000,
    max_rate: Annotated[
        float, Option(min=0.01, help="The most requests of a user in a second, on average.")
    ] = 20.0,
    min_users: Annotated[
        int | None,
        Option(min=1, help="Nobody is told words that fewer users have written (default: 3)."),
    ] = None,
    recipe: Annotated[
        str | None, Option(help="How it learns: laptop, paper, or a TOML file.")
    ] = None,
    assignments: Assignments = None,
    checkpoint_every: Annotated[float, Option(min=0, help="Seconds between checkpoints.")] = 60.0,
    trust: Trust = False,
) -> None:
    """Serve a model over HTTP that learns from the posts it is given.

    Accepted posts are on disk before the answer. They are played as in `firehose play`, by a
    process of its own; whatever is killed goes on to the same bits. Ctrl-C stops the service, and
    `firehose serve --state DIR` goes on with it.

    Answers: `POST /v1/posts`, `GET /v1/suggest`, `POST /v1/generate`, `POST /v1/score`,
    `GET` and `DELETE /v1/users/NAME`, `/healthz`, `/readyz`, `/metrics`.

    Examples:

    - `firehose serve oracle --state service`

    - `firehose serve --state service --host 0.0.0.0 --token-file tokens`

    - `firehose serve --new --vocab-model pretrained/model/vocabulary.model --state fresh`

    - `firehose serve --demo`
    """
    from firehose.game.live import ONLINE
    from firehose.game.settings import make_settings
    from firehose.serving.demo import serve_demo
    from firehose.serving.service import ServiceSettings, serve as begin
    from firehose.serving.state import REMEMBERING, NewModel

    settings = ServiceSettings(
        host, port, token_file, round_posts, round_seconds, checkpoint_every, waiting
    )._replace(max_rate=max_rate, trust=trust, origins=allow_origin or ())
    if demo:
        others = (model, vocab_model, recipe, min_users, assignments)
        if new or any(other is not None for other in others):
            raise FirehoseError("--demo brings its own model, and how it learns; leave them out.")
        serve_demo(state or DEMO, settings._replace(round_seconds=min(round_seconds, 2.0)))
        return
    if state is None:
        raise FirehoseError("A service needs a folder for all that it keeps: --state DIR.")
    if new is not (vocab_model is not None) or (new and model is not None):
        raise FirehoseError(
            "A new model is begun with --new and --vocab-model FILE, and without another model."
        )
    usual = () if recipe else REMEMBERING if new else ONLINE
    chosen = make_settings(recipe or "laptop", [*usual, *(assignments or ())], trust)
    playing = chosen.play if recipe is not None or assignments else None
    start = model if vocab_model is None else NewModel(vocab_model, chosen.model)
    begin(start, state, settings, playing, min_users)


listen = App(
    help="Listen to posts and bring them to a service, or into the folder of one.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(listen, name="listen")
Into = Annotated[
    str, Option(help="The address of a service (http://…), or the folder of one, new or not.")
]


SentToken = Annotated[
    Path | None, Option(help="A file of tokens, of which the one that may do most is sent.")
]


@listen.command()
def jsonl(into: Into, token_file: SentToken = None) -> None:
    """Bring posts from standard input: a JSON object a line, with user and text.

    A line may also have `time` and `id`; with an id it counts once, however often it is sent. Lines
    that are no posts are counted, and the first of each kind is shown.

    Example: `zcat posts.jsonl.gz | firehose listen jsonl --into http://127.0.0.1:8000`
    """
    from firehose.serving.listening import Carrier, Heard, hear_lines, open_target

    heard = Heard()
    with open_target(into, token_file) as target:
        hear_lines(sys.stdin.buffer, Carrier(target, heard))
    show(heard.summary())


class Protocol(StrEnum):
    """How a stream of Bluesky is spoken."""

    JETSTREAM = "jetstream"
    REPOS = "repos"


@listen.command()
def bluesky(
    into: Into,
    token_file: SentToken = None,
    protocol: Annotated[
        Protocol, Option(help="Jetstream (JSON), or the protocol's own subscribeRepos (CBOR).")
    ] = Protocol.JETSTREAM,
    url: Annotated[
        str | None, Option(help="Where it is read, as wss://HOST (default: the public one).")
    ] = None,
    cursor: Annotated[
        Path | None,
        Option(help="The file that keeps how far it has come (default: in the folder, or here)."),
    ] = None,
    languages: Annotated[str, Option(help="Languages to keep, as en,de.")] = "en",
) -> None:
    """Bring the public posts of Bluesky, as they are written.

    Replies are left out. A post that its author deletes is deleted, and an account that is deleted
    is forgotten, which needs a token with the role admin. Stopped or killed, the same command goes
    on where it was, as long as the stream still has it. What cannot be read is counted.

    Examples:

    - `firehose listen bluesky --into service`

    - `firehose listen bluesky --into service --protocol repos --url wss://pds.example.org`
    """
    from firehose.serving.bluesky import hear_bluesky
    from firehose.serving.listening import Carrier, Heard, open_target
    from firehose.serving.streams import stream_of

    is_address, stream = into.startswith(("http://", "https://")), stream_of(protocol)
    place = cursor or (Path() if is_address else Path(into)) / stream.cursor_file
    heard = Heard()
    with open_target(into, token_file) as target:
        kept = languages.replace(",", " ").split()
        hear_bluesky(Carrier(target, heard), place, protocol, url, kept)
    show(heard.summary())
