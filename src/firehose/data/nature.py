"""Nature: a simulated population, whose posts have probabilities that are known exactly.

Users join, post in bursts, fall silent, return and leave. An ordinary English post of user u in
era e has one hidden topic z, drawn from the user's own mixture θ[u, e]. The classes of its words
are a Markov chain, and a topical word is drawn from (1 - a[u]) φ[z, e] + a[u] ψ[u], a mixture of
the topic's words in that era and of the user's own few words. `truth.py` computes the
probabilities from the same numbers.
"""

import datetime
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from firehose.data import nature_language
from firehose.data.nature_language import CLASSES, END, MENTION_CLASS, TOPICAL, URL_CLASS
from firehose.data.post import Post
from firehose.data.sources import Shard, Source
from firehose.errors import FirehoseError

if TYPE_CHECKING:
    from firehose.data.truth import Truth

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

YEAR = 31_557_600_000  # milliseconds
ERA = YEAR // 4
MINUTE = 60_000
SHARD_POSTS = 16_384
PIECE = 4_096  # posts of one user that are written at a time, which bounds the memory
ORDINARY, RETWEET, REPLY, FOREIGN = range(4)
OWN_WORDS = {"noun": 3, "verb": 2, "adjective": 2, "hashtag": 2, "mention": 2, "emoji": 1}
PLACES = [62**place for place in range(10)]  # of the ten letters of a link
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Nature(Source):
    """Posts of simulated users; :meth:`truth` gives the probability of each.

    Every draw depends only on the seed and the user's number, so that the posts are the same
    however the work is divided, and on every machine.
    """

    kind: Literal["nature"] = "nature"
    seed: int = Field(default=0, ge=0)
    users: int = Field(default=300, ge=2, le=10**8)
    posts: int = Field(default=30_000, ge=2, le=10**11)  # raw posts of all users together
    start: datetime.date = datetime.date(2013, 1, 1)
    years: float = Field(default=5.0, gt=0, le=100)
    topics: int = Field(default=12, ge=1, le=100)
    vocabulary: int = Field(default=2_000, ge=60, le=20_000)  # different words, without <EOT>
    longest: int = Field(default=24, ge=1, le=30)  # the most words of a post
    retweets: float = Field(default=0.10, ge=0, le=1)  # this and the next two: shares of raw posts
    replies: float = Field(default=0.10, ge=0, le=1)
    foreign: float = Field(default=0.08, ge=0, le=1)
    personal: float = Field(default=0.5, ge=0, le=0.6)  # the average share of a user's own words
    drift: float = Field(default=0.5, ge=0, le=1)  # how far topics and users move over the years

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.paths:
            raise ValueError("nature is simulated and reads no paths")
        if not 1000 <= self.start.year < 2900:
            raise ValueError("start must be in the years 1000 to 2899")
        if self.posts < self.users:
            raise ValueError("posts must be at least as many as users")
        if self.retweets + self.replies + self.foreign > 1:
            raise ValueError("retweets, replies and foreign must not add up to more than 1")
        return self

    @property
    def first_moment(self) -> int:
        """The start, in milliseconds since 1970."""
        return int(np.datetime64(self.start, "ms").astype(np.int64))

    @property
    def eras(self) -> int:
        """The number of eras, which are quarters of a year."""
        return math.ceil(self.years * 4)

    def era(self, times: Integers) -> Integers:
        """The era of each time; raises an error for a time before the first or after the last."""
        eras = (np.asarray(times, dtype=np.int64) - self.first_moment) // ERA
        if eras.size and (eras.min() < 0 or eras.max() >= self.eras):
            raise FirehoseError(
                f"A time lies outside the {self.years} years from {self.start} of this nature: "
                "score only posts that come from it."
            )
        return np.asarray(eras)

    def shards(self) -> list[Shard]:
        """Blocks of users with at most 16,384 posts together, or of one user who has more."""
        shards: list[Shard] = []
        first = total = 0
        for user, count in enumerate(population(self).counts.tolist()):
            if user > first and total + count > SHARD_POSTS:
                shards.append({"first": first, "last": user})
                first, total = user, 0
            total += count
        return [*shards, {"first": first, "last": self.users}]

    def read(self, shard: Shard) -> Iterator[Post]:
        """The posts of the users of a shard, those of each user in time order."""
        everyone = population(self)
        for user in range(shard["first"], shard["last"]):
            yield from everyone.posts(user)

    def truth(self) -> "Truth":
        """The exact probabilities of ordinary English posts."""
        return _truth(self)


class Timeline(NamedTuple):
    """The times and kinds of all posts of one user."""

    times: Integers  # milliseconds since 1970, ascending
    kinds: Integers
    choice: Floats  # uniform: chooses the sentence of a foreign post, or who is answered


class Population:
    """All parameters of the users and their language, drawn from the configuration."""

    def __init__(self, nature: Nature) -> None:
        self.nature = nature
        users, topics = nature.users, nature.topics
        self.handles = nature_language.handles(users, _generator(nature, 0))
        words = nature_language.vocabulary(nature.vocabulary, self.handles, _generator(nature, 1))
        years, chance = (np.arange(nature.eras) + 0.5) / 4, _generator(nature, 2)
        self.language = nature_language.language(words, topics, years, nature.drift, chance)
        draws = _generator(nature, 3).random((users, 5))
        # A Pareto distribution, times a factor that adds users who hardly post.
        activity = (0.12 + 0.88 * draws[:, 0]) * (1 - draws[:, 1]) ** (-1 / 1.6)
        self.counts = 1 + _apportion(nature.posts - users, activity)
        span = nature.years * YEAR
        self.joins = 0.9 * span * draws[:, 2] ** 1.7  # most join early
        self.lives = (span - self.joins) * (0.15 + 0.84 * np.sqrt(draws[:, 3]))
        self.strength = nature.personal * (0.5 + draws[:, 4])  # a
        # θ at the start, and at the end if drift were 1; and, by era, the weight of the latter.
        self.mixtures = _mixtures(_generator(nature, 4).random((users, 2, topics, 2)))
        self.lateness = nature.drift * (np.arange(nature.eras) / max(1, nature.eras - 1))
        self.own_keys, self.own_values = self._own_words()  # ψ, by user × vocabulary + word
        self._foreign = nature_language.foreign()
        self._build_tables()

    def theta(self, users: Integers, eras: Integers) -> Floats:
        """The topics' probabilities for each pair of a user and an era."""
        late = self.lateness[eras][:, None]
        return np.asarray((1 - late) * self.mixtures[users, 0] + late * self.mixtures[users, 1])

    def timeline(self, user: int) -> Timeline:
        """The user's posts, in sessions of minutes with silences of hours to years between."""
        nature = self.nature
        draws = _generator(nature, user, 0).random((self.counts[user], 5))
        opens = draws[:, 0] < 0.35
        opens[0] = False  # the first post is at the moment of joining
        pauses = np.where(opens, 0.0, -np.log1p(-draws[:, 1]) * 12 * MINUTE)
        pauses[0] = 0.0
        # The tail is so heavy that the longest silence takes a good part of a user's time.
        silences = np.where(opens, (1 - draws[:, 2]) ** (-1 / 0.75), 0.0)
        life = self.lives[user]
        pauses *= min(1.0, 0.5 * life / max(pauses.sum(), 1.0))
        silences *= (life - pauses.sum()) / max(silences.sum(), 1.0)
        # Rounded to seconds before they are summed, as the last digits of logarithms and powers
        # differ between processors, and the times must not.
        seconds = np.floor((pauses + silences) / 1000).astype(np.int64)
        seconds[0] = self.joins[user] // 1000
        bounds = np.cumsum([nature.retweets, nature.replies, nature.foreign])
        kinds = np.array([RETWEET, REPLY, FOREIGN, ORDINARY])
        kinds = kinds[np.searchsorted(bounds, draws[:, 3], side="right")]
        return Timeline(nature.first_moment + 1000 * np.cumsum(seconds), kinds, draws[:, 4])

    def posts(self, user: int) -> Iterator[Post]:
        """All posts of a user, in time order."""
        name, others = self.handles[user], self.nature.users - 1
        line = self.timeline(user)
        generator = _generator(self.nature, user, 1)
        for begin in range(0, len(line.times), PIECE):
            part = slice(begin, begin + PIECE)
            texts = self._write(user, line.times[part], generator)
            rows = zip(*(column[part].tolist() for column in line), texts, strict=True)
            for number, (time, kind, choice, english) in enumerate(rows, begin):
                text, code = english, "en"
                if kind == FOREIGN:
                    code, text = self._foreign[int(choice * len(self._foreign))]
                elif kind != ORDINARY:
                    other = self.handles[(user + 1 + int(choice * others)) % (others + 1)]
                    text = f"RT @{other} : {english}" if kind == RETWEET else f"@{other} {english}"
                key = f"n{user}-{number}"
                yield Post(name, text, time, key, code, kind == RETWEET, kind == REPLY)

    def _write(self, user: int, times: Integers, generator: np.random.Generator) -> list[str]:
        """Write an English text for each time."""
        longest, count = self.nature.longest, len(times)
        draws = generator.random((count, 1 + 2 * longest))
        eras = self.nature.era(times)
        late, uniform = _split(draws[:, 0], self.lateness[eras])
        topics = self._topics.draw(2 * user + late, uniform) % self.nature.topics
        classes = np.full((count, longest), END)
        going, before = np.arange(count), np.full(count, END)
        for place in range(longest):
            after = self._grammar.draw(before, draws[going, 1 + place]) % (END + 1)
            going, before = going[after < END], after[after < END]
            classes[going, place] = before
        rows, places = np.nonzero(classes < END)
        uniforms = draws[rows, 1 + longest + places]
        words = self._words(user, classes[rows, places], topics[rows], eras[rows], uniforms)
        tokens = [self.language.words[word] for word in words.tolist()]
        for at in np.flatnonzero(classes[rows, places] == URL_CLASS).tolist():
            tokens[at] = _link(uniforms[at])
        ends = np.cumsum((classes < END).sum(1)).tolist()
        return [" ".join(tokens[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _words(
        self, user: int, classes: Integers, topics: Integers, eras: Integers, uniforms: Floats
    ) -> Integers:
        """Draw a word of each class, with one uniform number for each."""
        words = np.empty(len(classes), dtype=np.int64)
        closed = classes < TOPICAL
        words[closed] = self._closed.draw(classes[closed], uniforms[closed])
        topical = np.flatnonzero(~closed)
        mine, rest = _split(uniforms[topical], self.strength[user])
        theirs = ~mine
        kinds, open_classes = classes[topical] - TOPICAL, len(CLASSES) - TOPICAL
        drawn = self._own.draw(user * open_classes + kinds[mine], rest[mine])
        words[topical[mine]] = self.own_keys[drawn] % self.nature.vocabulary
        rows = (eras[topical] * self.nature.topics + topics[topical]) * open_classes + kinds
        first = self.language.start[TOPICAL]
        drawn = self._topical.draw(rows[theirs], rest[theirs])
        words[topical[theirs]] = first + drawn % (self.nature.vocabulary - first)
        return words

    def _own_words(self) -> tuple[Integers, Floats]:
        """The values of ψ that are not 0, and their keys, user × vocabulary + word, ascending.

        A value is the probability of the word among the user's own words of its class.
        """
        start, users = self.language.start, np.arange(self.nature.users)[:, None]
        draws = _generator(self.nature, 5).random((len(users), sum(OWN_WORDS.values())))
        keys, values = [], []
        for index, name in enumerate(CLASSES[TOPICAL:], TOPICAL):
            count = OWN_WORDS[name]
            size = int(start[index + 1] - start[index])
            part, draws = draws[:, :count], draws[:, count:]
            if index == MENTION_CLASS:  # of somebody else, never of oneself
                known = users < size
                steps = 1 + (part * (size - known)).astype(np.int64)
                words = np.where(known, (users + steps) % size, steps - 1)
            else:
                words = (part * size).astype(np.int64)
            weights = 1.0 / np.arange(1, count + 1)
            keys.append(users * self.nature.vocabulary + start[index] + words)
            values.append(np.broadcast_to(weights / weights.sum(), words.shape))
        # A word drawn twice by one user has the sum of both weights.
        distinct, inverse = np.unique(np.concatenate(keys, 1).ravel(), return_inverse=True)
        return distinct, np.bincount(inverse, np.concatenate(values, 1).ravel()).astype(float)

    def _build_tables(self) -> None:
        language, size = self.language, self.nature.vocabulary
        first = language.start[TOPICAL]
        self._grammar = Table(language.transition.ravel(), np.arange(END + 1) * (END + 1))
        self._closed = Table(language.closed, language.start[:TOPICAL])
        blocks = np.arange(self.nature.eras * self.nature.topics) * (size - first)
        inside = language.start[TOPICAL:-1] - first
        self._topical = Table(language.topical.ravel(), (blocks[:, None] + inside).ravel())
        rows = np.arange(2 * self.nature.users) * self.nature.topics
        self._topics = Table(self.mixtures.ravel(), rows)
        users = np.arange(self.nature.users)[:, None] * size
        starts = np.searchsorted(self.own_keys, (users + language.start[TOPICAL:-1]).ravel())
        self._own = Table(self.own_values, starts)


class Table:
    """Rows of probabilities, one after another in one array, to draw from."""

    def __init__(self, probabilities: Floats, starts: Integers) -> None:
        lengths = np.diff(np.append(starts, len(probabilities)))
        total = np.cumsum(probabilities)
        before = np.repeat((total - probabilities)[starts], lengths)
        sums = np.repeat(np.add.reduceat(probabilities, starts), lengths)
        # Row r of the cumulative probabilities lies between r and r + 1, so that one search in the
        # whole array draws from all rows.
        self._cumulative = np.repeat(np.arange(len(starts)), lengths) + (total - before) / sums
        possible = np.where(probabilities > 0, np.arange(len(probabilities)), -1)
        self._first, self._last = starts, np.maximum.reduceat(possible, starts)

    def draw(self, rows: Integers, uniforms: Floats) -> Integers:
        """Draw an index of ``probabilities`` from each of the rows, with a uniform number each."""
        found = np.searchsorted(self._cumulative, rows + uniforms, side="right")
        return np.clip(found, self._first[rows], self._last[rows])  # rounding could lead out of it


@lru_cache(maxsize=4)
def population(nature: Nature) -> Population:
    """The population of a configuration; the last few are cached."""
    return Population(nature)


@lru_cache(maxsize=4)
def _truth(nature: Nature) -> "Truth":
    from firehose.data.truth import Truth

    return Truth(nature)


def _generator(nature: Nature, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(nature.seed, spawn_key=key)))


def _apportion(total: int, weights: Floats) -> Integers:
    """Divide ``total`` into whole numbers in proportion to the weights, by largest remainder."""
    exact = total * weights / weights.sum()
    parts = np.floor(exact).astype(np.int64)
    parts[np.argsort(parts - exact, kind="stable")[: total - parts.sum()]] += 1
    return np.asarray(parts)


def _mixtures(draws: Floats) -> Floats:
    """Mixtures of two topics, weighted by a flat Dirichlet distribution, with a little of all."""
    topics = draws.shape[-2]
    order = np.argsort(np.argsort(draws[..., 0], axis=-1, kind="stable"), axis=-1, kind="stable")
    weights = np.where(order < 2, -np.log1p(-draws[..., 1]), 0.0) + 1e-9
    return np.asarray(0.96 * weights / weights.sum(-1, keepdims=True) + 0.04 / topics)


def _split(uniforms: Floats, share: Floats | float) -> tuple[NDArray[np.bool_], Floats]:
    """For each uniform number, whether it is below ``share``, and a new uniform number."""
    coin = uniforms < share
    fresh = np.where(coin, uniforms, uniforms - share)
    return coin, fresh / np.where(coin, np.maximum(share, 1e-300), 1 - share)


def _link(uniform: float) -> str:
    number = int(uniform * 62**10)
    return "https://t.co/" + "".join(ALPHABET[number // place % 62] for place in PLACES)
