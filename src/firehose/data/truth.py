"""The exact probabilities of the posts of a Nature.

Given user u and era e, p(post) = Σ_z θ[u,e,z] Π_i T[c(i-1), c(i)] p(w(i) | z, u, e), where a word
of a closed class has p = φ[w] and a topical one p = (1 - a[u]) φ[z,e,w] + a[u] ψ[u,w]. With m
topical words and the odds r[u] = a[u] / (1 - a[u]), the product of the latter is

    (1 - a[u])^m  Π_i φ[z,e,w(i)]  Π_i (1 + r[u] ψ[u,w(i)] / φ[z,e,w(i)])

whose last product is 1 for nearly all users. So only the few users who own one of the post's words
are computed one by one; the sum over all others is known in advance. At most 30 factors are
multiplied, none of them below 1e-9, so float64 holds the products without logarithms.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.batch import gather
from firehose.data.clean import MENTION
from firehose.data.nature import Floats, Integers, Nature, population
from firehose.data.nature_language import END, TOPICAL
from firehose.errors import FirehoseError

EOT = "<EOT>"
CHUNK_POSTS = 4_096
CHUNK_OWNERS = 200_000  # pairs of a word and a user who owns it: 20 MB a table with 12 topics

Weights = Literal["train", "balanced"]


class Truth:
    """The best predictor, which knows all parameters of a :class:`Nature`, but not a post's topic.

    Texts are those of ordinary English posts after cleaning: words joined by single spaces, with
    ``<URL>`` for every URL. A post with a word that is not in ``words`` has probability zero.
    """

    def __init__(self, nature: Nature) -> None:
        self.nature = nature
        everyone = population(nature)
        language = everyone.language
        self.words = language.words
        self.users = everyone.handles
        self._everyone = everyone
        self._index = {word: i for i, word in enumerate(self.words)}
        self._users = {name: i for i, name in enumerate(everyone.handles)}
        self._class_of = language.class_of
        with np.errstate(divide="ignore"):
            self._log_transition = np.log(language.transition)
        first = len(language.closed)
        shape = (nature.eras, nature.vocabulary, nature.topics)
        self._emission = np.empty(shape)  # φ[era, word, topic]
        self._emission[:, :first] = language.closed[:, None]
        self._emission[:, first:] = language.topical.transpose(0, 2, 1)
        self._odds = everyone.strength / (1 - everyone.strength)  # r
        # ψ by word: the owners of word w are _owner[_owner_start[w] : _owner_start[w + 1]].
        users, words = np.divmod(everyone.own_keys, nature.vocabulary)
        order = np.argsort(words, kind="stable")
        self._owner, self._owner_value = users[order], everyone.own_values[order]
        self._owner_start = np.searchsorted(words[order], np.arange(nature.vocabulary + 1))

    def next_word(self, user: str, time_ms: int, words: Sequence[str]) -> dict[str, float]:
        """The probability of each word, and of ``<EOT>``, after ``words`` of a post."""
        number = self._numbers([user])[0]
        era = self.nature.era(np.array([time_ms]))[0]
        everyone, longest = self._everyone, self.nature.longest
        _refuse_placeholder(*words)
        known = [self._index.get(word, -1) for word in words]
        classes = [END, *self._class_of[known].tolist()]
        transition = everyone.language.transition
        follows = all(transition[step] for step in pairwise(classes))
        if len(words) > longest or -1 in known or not follows:
            raise FirehoseError(
                f"No post of this nature begins with {' '.join(words)!r}: "
                "ask only for beginnings that are possible."
            )
        if len(words) == longest:
            return dict.fromkeys(self.words, 0.0) | {EOT: 1.0}
        # [word, topic]: the probability of each word for this user and era, given the topic
        every = np.arange(len(self.words))
        own = self._psi(np.full_like(every, number), every)[:, None]
        share = np.where(self._class_of >= TOPICAL, everyone.strength[number], 0.0)[:, None]
        says = (1 - share) * self._emission[era] + share * own
        topics = everyone.theta(np.array([number]), np.array([era]))[0] * says[known].prod(0)
        chance = transition[classes[-1], self._class_of] * (says @ (topics / topics.sum()))
        following = dict(zip(self.words, chance.tolist(), strict=True))
        return following | {EOT: float(transition[classes[-1], END])}

    def nats(self, users: Sequence[str], times: Integers, texts: Sequence[str]) -> Floats:
        """The negative log-likelihood of each post, given its user, ``<EOT>`` included."""
        numbers, eras = self._numbers(users), self.nature.era(times)
        _same_length(numbers, eras, texts)
        chance = np.empty(len(texts))
        for part, parsed in self._parse(texts):
            owner, era = numbers[part], eras[part]
            factors = self._emission[era[parsed.post], parsed.words]  # [word of post, topic]
            own = self._psi(owner[parsed.post], parsed.words)
            factors += (self._odds[owner][parsed.post] * own)[:, None]
            topics = self._everyone.theta(owner, era)
            said = (topics * np.multiply.reduceat(factors, parsed.starts)).sum(1)
            said *= (1 - self._everyone.strength[owner]) ** parsed.topical
            with np.errstate(divide="ignore"):
                chance[part] = np.log(said) + parsed.grammar
        return -chance

    def agnostic_nats(
        self, times: Integers, texts: Sequence[str], counts: Integers, weights: Weights
    ) -> Floats:
        """The negative log-likelihood of each post without knowing its user, only its time.

        The users' probabilities in each era come from ``counts``, which :meth:`tally` makes. With
        ``weights="train"`` they follow the number of posts; with "balanced", which is for splits
        with as many posts of every user, they follow the share of the user's posts that fall into
        the era. In an era without any posts the probability is zero.
        """
        eras = self.nature.era(times)
        _same_length(eras, texts)
        prior = _prior(counts, weights)  # [era, user]
        summed = self._sum_of_users(prior)  # [era, topical words, topic]
        chance = np.empty(len(texts))
        for part, parsed in self._parse(texts):
            era = eras[part]
            factors = self._emission[era[parsed.post], parsed.words]
            said = np.multiply.reduceat(factors, parsed.starts)  # [post, topic]
            total = (said * summed[era, parsed.topical]).sum(1)
            for words in self._by_owners(parsed):
                total += self._excess(parsed, words, era, said, prior)
            with np.errstate(divide="ignore"):
                chance[part] = np.log(total) + parsed.grammar
        return -chance

    def tally(self, users: Sequence[str], times: Integers) -> Integers:
        """The number of posts ``[user, era]``."""
        nature = self.nature
        cells = self._numbers(users) * nature.eras + nature.era(times)
        counts = np.bincount(cells, minlength=nature.users * nature.eras)
        return np.asarray(counts.reshape(nature.users, nature.eras), np.int64)

    def _sum_of_users(self, prior: Floats) -> Floats:
        """Σ_u π[e,u] (1 - a[u])^m θ[u,e,z] for every era e, number m of topical words, topic z."""
        everyone = self._everyone
        late = everyone.lateness[:, None]
        most = self.nature.longest + 1
        summed = np.empty((self.nature.eras, most, self.nature.topics))
        sides = everyone.mixtures.swapaxes(0, 1)
        for topical in range(most):
            weighed = prior * (1 - everyone.strength) ** topical
            # Not @, as the last bits of BLAS's sums depend on its number of threads.
            early, end = (np.einsum("eu,uz->ez", weighed, side) for side in sides)
            summed[:, topical] = (1 - late) * early + late * end
        return summed

    def _excess(
        self, parsed: "_Parsed", words: slice, era: Integers, said: Floats, prior: Floats
    ) -> Floats:
        """What is to be added to the probability of each post because some users own its words.

        The sum over all users in advance takes it that nobody does. The difference is never
        negative, so that adding it loses no precision.
        """
        spoken, post = parsed.words[words], parsed.post[words]
        count = np.diff(self._owner_start)[spoken]
        if not count.any():
            return np.zeros(len(era))
        # First a row for each pair of a word of a post and a user who owns that word,
        rows, _ = gather(self._owner_start[spoken], count)
        user, post, spoken = self._owner[rows], np.repeat(post, count), np.repeat(spoken, count)
        order = np.argsort(post * self.nature.users + user, kind="stable")
        user, post, spoken, rows = user[order], post[order], spoken[order], rows[order]
        odds = self._odds[user] * self._owner_value[rows]
        factors = 1 + odds[:, None] / self._emission[era[post], spoken]
        # then one for each pair of a post and a user who owns some of its words.
        new = np.append(True, (post[1:] != post[:-1]) | (user[1:] != user[:-1]))
        factors = np.multiply.reduceat(factors, np.flatnonzero(new)) - 1
        user, post = user[new], post[new]
        factors *= self._everyone.theta(user, era[post])
        factors *= said[post]
        keep = (1 - self._everyone.strength[user]) ** parsed.topical[post]
        excess = prior[era[post], user] * keep * factors.sum(1)
        return np.bincount(post, excess, len(era)).astype(float)

    def _by_owners(self, parsed: "_Parsed") -> Iterator[slice]:
        """Slices of the words, of whole posts, with a bounded number of owners in each."""
        owners = np.cumsum(np.diff(self._owner_start)[parsed.words])
        bounds = np.append(parsed.starts, len(parsed.words))
        begin = 0
        while begin < len(parsed.starts):
            gone = owners[bounds[begin] - 1] if begin else 0
            fits = np.searchsorted(owners[bounds[1:] - 1], gone + CHUNK_OWNERS, side="right")
            end = max(int(fits), begin + 1)
            yield slice(bounds[begin], bounds[end])
            begin = end

    def _psi(self, users: Integers, words: Integers) -> Floats:
        """The value of ψ for each pair of a user and a word."""
        everyone = self._everyone
        keys = users * self.nature.vocabulary + words
        places = np.minimum(np.searchsorted(everyone.own_keys, keys), len(everyone.own_keys) - 1)
        return np.where(everyone.own_keys[places] == keys, everyone.own_values[places], 0.0)

    def _parse(self, texts: Sequence[str]) -> Iterator[tuple[slice, "_Parsed"]]:
        for begin in range(0, len(texts), CHUNK_POSTS):
            part = slice(begin, begin + CHUNK_POSTS)
            yield part, self._parse_chunk(texts[part])

    def _parse_chunk(self, texts: Sequence[str]) -> "_Parsed":
        posts = [text.split(" ") for text in texts]
        find = self._index.get
        words = np.array([find(word, -1) for post in posts for word in post], dtype=np.int64)
        lengths = np.array([len(post) for post in posts])
        ends = np.cumsum(lengths)
        starts = ends - lengths
        post = np.repeat(np.arange(len(posts)), lengths)
        strange = words < 0
        if strange.any():
            for number in np.unique(post[strange]).tolist():
                _refuse_placeholder(*posts[number])
        classes = np.where(strange, END, self._class_of[words])
        before = np.append(END, classes[:-1])
        before[starts] = END
        steps = self._log_transition[before, classes]
        steps[strange] = -np.inf
        grammar = np.add.reduceat(steps, starts)
        longest = self.nature.longest
        last = self._log_transition[classes[ends - 1], END]
        grammar += np.where(lengths < longest, last, np.where(lengths == longest, 0.0, -np.inf))
        topical = np.bincount(post[(classes >= TOPICAL) & ~strange], minlength=len(posts))
        # The grammar gives longer posts probability zero; the number must only be a valid index.
        topical = np.minimum(topical, longest)
        return _Parsed(np.where(strange, 0, words), post, starts, topical, grammar)

    def _numbers(self, users: Sequence[str]) -> Integers:
        try:
            return np.array([self._users[user] for user in users], dtype=np.int64)
        except KeyError as error:
            raise FirehoseError(
                f"There is no user {error.args[0]!r} in this nature: "
                "take the truth of the nature that the posts come from."
            ) from None


class _Parsed(NamedTuple):
    """Posts as numbers, the words of all posts one after another."""

    words: Integers  # 0 for an unknown word; the grammar then gives the post probability zero
    post: Integers  # [word]: the post it belongs to
    starts: Integers  # [post]: its first word
    topical: Integers  # [post]: how many topical words it has
    grammar: Floats  # [post]: log probability of its classes


def _prior(counts: Integers, weights: Weights) -> Floats:
    """The probabilities ``[era, user]`` of the users in each era."""
    posts = counts.sum(1, keepdims=True)
    share = counts / np.maximum(posts, 1) if weights == "balanced" else counts
    return np.asarray(share.T / np.maximum(share.T.sum(1, keepdims=True), 1e-300))


def _refuse_placeholder(*words: str) -> None:
    if MENTION in words:
        raise FirehoseError(
            f"Posts of a nature mention users by name: prepare the corpus without {MENTION}."
        )


def _same_length(*columns: NDArray[np.int64] | Sequence[str]) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"columns of different lengths: {[len(column) for column in columns]}")
