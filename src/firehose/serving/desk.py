"""What answers questions: one whole snapshot of the model at a time, in one thread."""

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from firehose.data.clean import mend
from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.game.live import Trained, load
from firehose.generation.generate import Text, generate
from firehose.generation.lookahead import Budget
from firehose.generation.sampling import Sampling
from firehose.generation.suggest import END, QUICK, Asked, Guess, Suggester
from firehose.progress import say
from firehose.serving.database import Database
from firehose.serving.inbox import FILE, LIMIT, Inbox
from firehose.serving.people import Book
from firehose.serving.snapshots import Snapshots
from firehose.serving.state import checkpoints_of, read_card_of

Answer = TypeVar("Answer")
LOOK = 0.1  # seconds between two looks for a newer snapshot
MOST_WAITING = 64  # questions
TOGETHER = 8  # of them that are answered together, if they are for suggestions
SPARE = 4  # words more than asked for, as some may be kept back


class BusyError(FirehoseError):
    """More questions are waiting than can be answered soon."""


class Score(NamedTuple):
    """What a text costs."""

    words: int
    nats: float  # as its user
    nobody: float
    is_known: bool  # whether the user is


class Served(NamedTuple):
    """A snapshot that was taken up."""

    number: int
    trained: Trained
    suggester: Suggester


class Desk:
    """Answers from the newest snapshot; a newer one takes its place between two answers.

    A model that is read by two threads at once would be slower, and some exchange their weights
    while they are read: there is one thread, and those who ask wait for it. Who waits for
    suggestions is answered together with others who do.
    """

    def __init__(
        self, state: Path, limit: int = LIMIT, trust: bool = False, budget: Budget = QUICK
    ) -> None:
        self.state, self.trust, self.budget = state, trust, budget
        self.min_users = read_card_of(state).min_users
        self.inbox = Inbox(state / FILE, limit)
        # Who reads does not wait for posts to be on disk: that takes longer than an answer.
        self.book = Book(Database(state / FILE))
        self.snapshots = Snapshots(state / "snapshots")
        self.served: Served | None = None
        self._failed: int | None = None  # the last that could not be taken up
        self._changed = threading.Condition()
        self._thread = ThreadPoolExecutor(1, "answers")
        self._places = threading.BoundedSemaphore(MOST_WAITING)
        self._asking = deque[tuple[Asked, Future[list[Guess]]]]()  # for suggestions
        self._asked, self._counting = 0, threading.Lock()  # questions that are not answered yet
        self.ending = threading.Event()  # set when nobody is to be kept waiting any more
        self._ended = threading.Event()
        self._looker = threading.Thread(target=self._look_for_newer, daemon=True)
        self._looker.start()

    def close(self) -> None:
        """Answer what was asked, and nothing more."""
        self._ended.set()
        self._looker.join()
        self._thread.shutdown()
        self.book.database.close()
        self.inbox.close()

    def _look_for_newer(self) -> None:
        while not self._ended.wait(LOOK):
            self.take_up()

    def take_up(self) -> None:
        """Load the newest snapshot, if it is not there yet."""
        newest = self.snapshots.newest()
        if newest is None or (self.served is not None and newest <= self.served.number):
            return
        try:
            place = self.snapshots.place(newest)
            trained = load(place, min_users=self.min_users, trust=self.trust)
            _ = trained.speaker  # which makes what predicts beside the model
        except (FirehoseError, OSError) as error:
            if self.snapshots.newest() == newest and newest != self._failed:
                say(f"Snapshot {newest:,} cannot be served: {error}")
                self._failed = newest
            return  # else it was removed meanwhile: there is a newer one
        suggester = Suggester(trained)
        if self.served is None:
            _warm_up(suggester)
        with self._changed:
            self.served = Served(newest, trained, suggester)
            self._changed.notify_all()

    def wait_for(self, number: int, seconds: float) -> bool:
        """Wait until a snapshot, or a newer one, is served; False: that takes too long."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.served is not None and self.served.number >= number, seconds
            )

    def is_learning(self) -> bool:
        """Whether the learner is at work."""
        return checkpoints_of(self.state).are_held()

    def ask(self, question: Callable[[Served], Answer]) -> Answer:
        """The answer to a question to the model; raises BusyError, or what the question raises."""
        with self._in_line():
            answer: Future[Answer] = self._thread.submit(lambda: question(self._model()))
            return answer.result()

    @contextmanager
    def _in_line(self) -> Iterator[None]:
        """Wait for an answer inside; raises BusyError where too many do."""
        if not self._places.acquire(blocking=False):
            raise BusyError("Too many questions are waiting; try again in a moment.")
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._places.release()

    def _count(self, change: int) -> None:
        with self._counting:
            self._asked += change

    def _model(self) -> Served:
        if self.served is None:
            raise BusyError("The model is being loaded; try again in a moment.")
        return self.served

    def _suggest_together(self) -> None:
        """Answer those who wait for suggestions, several at a time; it may be that none does.

        The time for that is shared by all who wait for an answer, in turns of so many.
        """
        together = [self._asking.popleft() for _ in range(min(TOGETHER, len(self._asking)))]
        if not together:
            return
        questions, answers = zip(*together, strict=True)
        turns, seconds = max(self._asked / TOGETHER, 1.0), self.budget.seconds
        budget = self.budget._replace(seconds=seconds and seconds / turns)
        try:
            found = self._model().suggester.suggest_all(questions, budget)
        except Exception as error:
            for answer in answers:
                answer.set_exception(error)
            return
        for answer, each in zip(answers, found, strict=True):
            if isinstance(each, FirehoseError):
                answer.set_exception(each)
            else:
                answer.set_result(each)

    def suggest(self, text: str, user: str | None, k: int) -> list[Guess]:
        """The most probable next words; where a word is begun at the end, its completions.

        Words that only fewer than ``min_users`` others have written are left out.
        """
        context, _, begun = text.rpartition(" ")
        if "\n" in begun or "\t" in begun:
            context, begun = text, ""
        answer = Future[list[Guess]]()
        with self._in_line():
            self._asking.append((Asked(context, user, k + SPARE, begun), answer))
            self._thread.submit(self._suggest_together)
            found = answer.result()
        told = (each for each in found if not self.keeps_back(each.word, user))
        return list(islice(told, k))

    def generate(
        self, prompt: str, user: str | None, sampling: Sampling, count: int
    ) -> tuple[list[Text], int]:
        """Texts that begin with a prompt, and how many were left out for words of others."""
        texts = self.ask(lambda served: generate(served.trained, prompt, user, sampling, count))
        own = set(prompt.split())
        told = [
            text
            for text in texts
            if not any(self.keeps_back(w, user) for w in text.text.split() if w not in own)
        ]
        return told, len(texts) - len(told)

    def keeps_back(self, word: str, user: str | None) -> bool:
        """Whether a word must not be told: few others have written it, and no piece is all of it.

        Words that are pieces were common in what the vocabulary was made from.
        """
        if word == END or self.min_users < 2 or self.served is None:
            return False
        tokens, _ = self.served.trained.encoder.vocabulary.encode([word])
        is_piece = len(tokens) <= 3  # with <SOT> and <EOT>
        return not is_piece and self.book.is_private(word, user, self.min_users)

    def score(self, text: str, user: str | None) -> Score:
        """What a text costs as this user, and as nobody."""

        def pay(served: Served) -> Score:
            trained = served.trained
            nobody = trained.pay([Post("", text)])  # no user has this name
            paid = nobody if user is None else trained.pay([Post(user, text)])
            costs = float(paid.nats[0]), float(nobody.nats[0])
            return Score(int(paid.words[0]), *costs, trained.knows(user))

        return self.ask(pay)

    def refuse_unreadable(self, post: Post) -> None:
        """Raise FirehoseError for a post that could not be learned from."""
        self._model().trained.encoder.prompt(post.text)

    def _has_trace(self, user: str) -> bool:
        """Whether anything here may be a user's; somebody who is being forgotten still has some."""
        served = self.served
        is_named = served is None or served.trained.users.number(mend(user)) is not None
        return is_named or self.inbox.has_requests() or self.book.has_posted(user)

    def forget(self, user: str, post: str | None, seconds: float) -> dict[str, int] | None:
        """Ask the learner to forget, and wait until it is done; None: that takes longer."""
        if post is None and not self._has_trace(user):
            return {}
        number, deadline = self.inbox.request(user, post), time.monotonic() + seconds
        while time.monotonic() < deadline:
            request = self.inbox.find_request(number)
            if request is not None and request.is_done:
                assert request.snapshot is not None
                is_up = self.wait_for(request.snapshot, deadline - time.monotonic())
                return request.erased if is_up else None
            time.sleep(LOOK)
        return None


def _warm_up(suggester: Suggester) -> None:
    """Load what a first answer needs, so that nobody waits for it.

    All that is there now stays: to look through it for garbage would hold up an answer for 100 ms.
    """
    suggester.suggest("@somebody has", None, 1)
    gc.collect()
    gc.freeze()
