"""A service to try: a model that has read a little, and simulated people who post."""

import contextlib
import random
import tempfile
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from firehose.data.nature import Nature
from firehose.data.plan import make_plan
from firehose.data.post import Post
from firehose.data.prepare import Execution, prepare
from firehose.errors import FirehoseError, Stopped
from firehose.game.run import pretrain
from firehose.game.settings import make_settings
from firehose.interrupts import stop_requests
from firehose.models.store import Trained, from_pretrained, save
from firehose.progress import say
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.listening import Address, open_target
from firehose.serving.people import Book
from firehose.serving.service import LOOK, Service, ServiceSettings, running
from firehose.serving.state import REMEMBERING, has_begun

POPULATION = {
    "users": 60,
    "posts": 12_000,
    "retweets": 0.0,
    "replies": 0.0,
    "foreign": 0.0,
}
BEFORE = "2015-01-01"  # earlier posts are read before the service begins; later ones are posted
WORDS, PIECES = 700, 1_200  # of their language, and of the model
RATE = 3.0  # posts per second
FIRST = 40  # posts that are there at once, so that there is something to see


def serve_demo(state: str | Path, settings: ServiceSettings, rate: float = RATE) -> None:
    """Serve a small model to which simulated people post, until Ctrl-C or SIGTERM."""
    folder = Path(state)
    with stop_requests() as request, contextlib.ExitStack() as stack:
        model = None
        if not has_begun(folder):
            say("Making a model for the demo; this takes a minute …")
            model = make_model(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        playing = make_settings("laptop", REMEMBERING).play
        service = stack.enter_context(running(model, folder, settings, playing))
        stack.enter_context(crowd(service, folder, settings.token_file, rate))
        say(f"Serving at {service.address}; open it in a browser. Ctrl-C stops.")
        service.look_after_until(lambda: request.made)
    raise Stopped(f"Stopped; `firehose serve --demo --state {state}` goes on from there.")


def make_model(folder: Path, words: int = WORDS, pieces: int = PIECES) -> Path:
    """A small model of the demo's language, which knows nobody yet."""
    nature = {"kind": "nature"} | POPULATION | {"vocabulary": words}
    plan = make_plan(source=nature, vocabulary={"size": pieces}, split={"pretrain_before": BEFORE})
    (corpus,) = prepare(plan, folder / "corpus", Execution(workers=0)).corpora
    settings = make_settings("laptop", ["pretrain.epochs=4", "pretrain.warmup=20"])
    pretrain(corpus, folder / "pretrained", settings)
    model = from_pretrained(settings.model, corpus, folder / "pretrained", settings.play.seed)
    save(Trained.of_corpus(model, corpus), folder / "model")
    return folder / "model"


def stream(words: int = WORDS) -> Iterator[Post]:
    """The posts of the demo's people, in their order; when all are posted, once more."""
    nature = Nature.model_validate(POPULATION | {"vocabulary": words})
    every = [post for shard in nature.shards() for post in nature.read(shard)]
    began = Nature.model_validate({**POPULATION, "start": BEFORE}).first_moment
    later = sorted((post for post in every if post.time >= began), key=lambda post: post.time)
    for times in count():
        # Without a time they are posted now; the same id of a user would count once.
        yield from (post._replace(time=0, id=f"{post.id}-{times}") for post in later)


@contextlib.contextmanager
def crowd(
    service: Service, state: Path, token_file: Path | None, rate: float
) -> Iterator[threading.Thread]:
    """Let people post as long as the block lasts, from where they were."""
    inbox = Inbox(state / FILE)
    posted = Book(inbox.database).totals().accepted
    inbox.close()
    ended = threading.Event()
    with open_target(service.address, token_file) as target:
        assert isinstance(target, Address)
        thread = threading.Thread(target=_post, args=(target, posted, rate, ended), daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            ended.set()


def _post(target: Address, posted: int, rate: float, ended: threading.Event) -> None:
    """Bring posts to a service, at moments that cannot be foreseen; what is refused is left out."""
    while not target.is_up():
        if ended.wait(LOOK):
            return
    chance, posts = random.Random(posted), stream()
    for _ in range(posted):
        next(posts)
    waiting: Sequence[Post] = [next(posts) for _ in range(0 if posted else FIRST)]
    while True:
        with contextlib.suppress(FirehoseError):
            target.bring(waiting)
        if ended.wait(chance.expovariate(rate)):
            return
        waiting = [next(posts)]
