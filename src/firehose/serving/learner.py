"""The learner of a service: it plays the game with what is in the inbox, round by round."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from firehose.batch import Batch
from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.game.round import Broken
from firehose.interrupts import stop_requests
from firehose.models.users import NOBODY
from firehose.optim.clipping import NotFinite
from firehose.serving.costs import SHOWN, WordCost, word_costs
from firehose.serving.inbox import FILE, Inbox, Played, Request, Round
from firehose.serving.snapshots import KEPT, Snapshots
from firehose.serving.state import Position, checkpoints_of, restore, state_of
from firehose.storage.locks import locked

LOOK = 0.05  # seconds between two looks into an empty inbox


class Pace(NamedTuple):
    """When a round closes, and how often the state is written."""

    posts: int | None = None  # of a round; None: as the settings of the game say
    seconds: float = 5.0  # after which a round closes that is not full
    checkpoint_every: float = 60.0  # seconds


class Learner:
    """Plays the rounds of a service; whenever it is killed, it goes on to the same bits.

    A round is written down before it is played, and so is after which round somebody is forgotten.
    Where somebody is, a checkpoint is written at once and all older ones are removed, before the
    posts are: no round with a post that is gone will have to be played again.
    """

    def __init__(self, folder: Path, pace: Pace = Pace(), trust: bool = False) -> None:  # noqa: B008
        self.folder, self.pace = folder, pace
        self.inbox = Inbox(folder / FILE)
        self.checkpoints = checkpoints_of(folder)
        self.snapshots = Snapshots(folder / "snapshots")
        self.trained, position = restore(folder, trust)
        self.position = position._replace(erased=self._undone(position))
        self.most = pace.posts or self.trained.playing.posts
        self.saved = self.position  # in the newest checkpoint
        self._refuse_other_inbox()

    def _undone(self, position: Position) -> dict[str, Mapping[str, int]]:
        """What was erased by requests that were not done when we were killed."""
        found = {number: self.inbox.find_request(int(number)) for number in position.erased}
        undone = [number for number, request in found.items() if request and not request.is_done]
        return {number: position.erased[number] for number in undone}

    def _refuse_other_inbox(self) -> None:
        """Refuse an inbox that has not the rounds that the checkpoint counts on."""
        found = self.inbox.round(self.position.round)
        if found is None or found.last != self.position.last:
            raise FirehoseError(
                f"{self.folder / FILE} is not the inbox that {self.checkpoints.folder} counts on; "
                "bring it back from a copy, or begin again in another folder."
            )

    def run(self) -> None:
        """Learn until told to stop; then write a checkpoint."""
        with stop_requests() as request:
            if self.snapshots.newest() is None or not self._is_behind():
                self.publish()  # else a newer one is there already
            saved = time.monotonic()
            while not request.made:
                if not self.advance():
                    time.sleep(LOOK)
                if time.monotonic() - saved >= self.pace.checkpoint_every:
                    self.save()
                    saved = time.monotonic()
            self.save()

    def advance(self) -> bool:
        """Play one round, or forget who asked for it; False: there is nothing to do."""
        if self.inbox.has_requests() and self._carry_out():
            return True
        due = self.inbox.round(self.position.round + 1)  # closed before we were killed, perhaps
        due = due or self.inbox.close_round(self.most, self.pace.seconds)
        if due is None:
            return False
        self._play(due)
        return True

    def _play(self, due: Round) -> None:
        """Play a round, write down what came of it, and publish the model."""
        begun, trained = time.perf_counter(), self.trained
        rows = self.inbox.posts_of(due)
        learned = [(seq, post) for seq, post in rows if self._is_readable(post)]
        played = Played([], [], [], [], [], [], len(rows) - len(learned))
        if learned:
            posts = [post for _, post in learned]
            batch = trained.encoder.encode(posts, trained.users, grow=True)
            try:
                costs = self._costs([seq for seq, _ in learned], batch)
                nobody = trained.game.predictor.pay(_as_nobody(batch)).nats
                (found,) = trained.game.rounds([batch])
            except (Broken, NotFinite):
                raise FirehoseError(
                    f"The loss of round {due.number:,} is not a finite number; begin again in "
                    "another folder, with a lower rate (--set play.rule.rate=…)."
                ) from None
            texts = trained.encoder.vocabulary.decode_posts(batch.tokens, batch.offsets)
            played = Played(
                [seq for seq, _ in learned],
                found.paid.nats.tolist(),
                nobody.tolist(),
                found.paid.words.tolist(),
                [text.split() for text in texts],
                [post.user for post in posts],
                len(rows) - len(learned),
                found.steps.taken,
                found.steps.kept,
                time.perf_counter() - begun,
                costs,
            )
        # First, so that the server knows whose words these are when the model may tell them.
        self.inbox.record(due.number, played)
        self.position = self.position._replace(round=due.number, last=due.last)
        if not self._is_behind():
            self.publish()

    def _costs(self, seqs: Sequence[int], batch: Batch) -> dict[int, list[WordCost]]:
        """What each word of the last posts costs, by their seq."""
        last = np.arange(len(batch))[-SHOWN:]
        payer, vocabulary = self.trained.game.predictor, self.trained.encoder.vocabulary
        costs = word_costs(payer, vocabulary, batch.select(last))
        return dict(zip([seqs[index] for index in last], costs, strict=True))

    def _is_readable(self, post: Post) -> bool:
        """Whether a post has words, and not too many."""
        try:
            self.trained.encoder.prompt(post.text)
        except FirehoseError:
            return False
        return True

    def _carry_out(self) -> bool:
        """Carry out all requests; False: a round has to be played before that.

        The order can be interrupted anywhere: what is not done yet is done again.
        """
        if self._is_behind():
            return False
        requests = self.inbox.position(self.position.round)
        for request in requests:
            if request.number > self.position.request:
                self._forget(request)
        self._write(kept=1)  # always: an older one may be left, if we were killed at this point
        number = self.publish(kept=1)
        for request in requests:
            if request.user is not None:
                erased = self.position.erased.get(str(request.number), {})
                self.inbox.erase(request, erased, self._words_of(request))
        self.inbox.finish(requests, number)
        self.position = self.position._replace(erased={})
        return True

    def _is_behind(self) -> bool:
        """Whether a round that was closed is still to be played: before the last kill it was."""
        return self.inbox.round(self.position.round + 1) is not None

    def _forget(self, request: Request) -> None:
        """Forget a user in the game; of a single post, the game has no trace that can be told."""
        erased: dict[str, int] = {}
        if request.post is None and request.user is not None:
            number = self.trained.users.number(request.user)
            erased = {} if number is None else self.trained.forget(request.user)
        done = {**self.position.erased, str(request.number): erased}
        self.position = self.position._replace(request=request.number, erased=done)

    def _words_of(self, request: Request) -> Sequence[str]:
        """The words of the single post that a request speaks of, if it was learned from."""
        if request.post is None or request.user is None:
            return ()
        text = self.inbox.learned_text(request.user, request.post)
        if text is None:
            return ()
        encoder = self.trained.encoder
        batch = encoder.encode([Post(request.user, text)], self.trained.users, grow=False)
        return encoder.vocabulary.decode_posts(batch.tokens, batch.offsets)[0].split()

    def publish(self, kept: int = KEPT) -> int:
        """Publish the model as it is now; returns the number of the snapshot."""
        game = self.trained.game
        told = {"round": self.position.round, "posts": game.posts}
        self.trained.origin = self.trained.origin | {"service": told}
        return self.snapshots.publish(self.trained, kept)

    def save(self) -> None:
        """Write a checkpoint, if there is none of this position."""
        if self.position != self.saved:
            self._write(KEPT)

    def _write(self, kept: int) -> None:
        state = state_of(self.trained, self.position)
        self.checkpoints.write(self.position.round, state, {}, kept)
        self.saved = self.position


def learn(folder: Path, pace: Pace, trust: bool = False) -> None:
    """Learn until told to stop, as the only one who does.

    Another that is about to end is waited for before anything is read: it may still forget
    somebody, and then the rounds with that user's posts cannot be played again.
    """
    with locked(checkpoints_of(folder).folder, wait=True):
        Learner(folder, pace, trust).run()


def _as_nobody(batch: Batch) -> Batch:
    """The same posts, as if nobody known had written them."""
    return replace(batch, user=np.full_like(batch.user, NOBODY))
