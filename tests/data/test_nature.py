"""Nature: its posts follow the model that its truth computes with, to the last digit."""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from nltk.tokenize import TweetTokenizer
from numpy.typing import NDArray

from firehose.data import truth as truth_module
from firehose.data.clean import URL
from firehose.data.nature import YEAR, Nature, Table, population
from firehose.data.nature_language import CLASSES, TOPICAL, grammar
from firehose.data.post import Post
from firehose.data.truth import EOT
from firehose.errors import FirehoseError

SMALL = Nature(users=60, posts=6_000)
# All texts of up to two words can be listed; two eras, in which users and topics differ.
TINY = Nature(
    users=2, posts=100_000, topics=2, vocabulary=60, longest=2, years=0.5, drift=1.0, seed=7
)


@cache
def posts_of(nature: Nature) -> list[Post]:
    return [post for shard in nature.shards() for post in nature.read(shard)]


def is_ordinary(post: Post) -> bool:
    return post.language == "en" and not post.is_retweet and not post.is_reply


class Columns:
    """The ordinary posts as cleaning leaves them."""

    def __init__(self, posts: Sequence[Post]) -> None:
        kept = [post for post in posts if is_ordinary(post)]
        self.users = [post.user for post in kept]
        self.times = np.array([post.time for post in kept])
        self.texts = [re.sub(r"https://t\.co/\w{10}\b", URL, post.text) for post in kept]
        self.words = np.array([len(text.split()) + 1 for text in self.texts])


def every_text(nature: Nature) -> list[str]:
    words = population(nature).language.words
    lengths = range(1, nature.longest + 1)
    return [" ".join(text) for n in lengths for text in itertools.product(words, repeat=n)]


def misfit(observed: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Pearson's chi-square, in standard deviations over what it would be by chance."""
    common = expected >= 5
    observed = np.append(observed[common], observed[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    freedom = len(expected) - 1
    statistic = ((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return float((statistic - freedom) / np.sqrt(2 * freedom))


# --- the posts ---


def test_the_posts_are_the_same_today_and_on_every_machine() -> None:
    posts = posts_of(Nature(users=20, posts=500))
    rows = [(post.id, post.user, post.time, post.text, post.language) for post in posts]
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    # Changes only when the model is meant to change: floors published before are then void.
    assert digest[:16] == "51089a0453e264b3"


def test_the_posts_do_not_depend_on_the_cut() -> None:
    whole = posts_of(SMALL)
    one_by_one = [
        post
        for user in reversed(range(SMALL.users))
        for post in SMALL.read({"first": user, "last": user + 1})
    ]
    assert sorted(one_by_one) == sorted(whole)
    population.cache_clear()
    assert list(SMALL.read({"first": 7, "last": 9})) == [
        post for post in whole if post.id.startswith(("n7-", "n8-"))
    ]


def test_no_two_users_share_their_random_numbers() -> None:
    lengths: dict[str, list[int]] = {}
    for post in posts_of(SMALL):
        lengths.setdefault(post.user, []).append(len(post.text.split()) if is_ordinary(post) else 0)
    first = {tuple(found[:8]) for found in lengths.values()}
    assert len(first) == SMALL.users


def test_another_seed_gives_other_posts() -> None:
    other = posts_of(SMALL.model_copy(update={"seed": 1}))
    one, two = ({p.text for p in part if is_ordinary(p)} for part in (other, posts_of(SMALL)))
    assert len(one & two) < 0.02 * len(one)  # posts of a word or two
    assert {post.user for post in other} != {post.user for post in posts_of(SMALL)}


@pytest.mark.parametrize(("users", "posts"), [(2, 2), (7, 100), (300, 30_000), (3, 40_000)])
def test_there_are_exactly_as_many_posts_as_asked(users: int, posts: int) -> None:
    nature = Nature(users=users, posts=posts)
    shards = nature.shards()
    assert [shard["first"] for shard in shards[1:]] == [shard["last"] for shard in shards[:-1]]
    sizes = [Counter(post.user for post in nature.read(shard)) for shard in shards]
    assert sum(size.total() for size in sizes) == posts
    assert sum(len(size) for size in sizes) == users
    assert all(size.total() <= 16_384 or len(size) == 1 for size in sizes)


def test_ids_are_unique_and_times_ascend_within_the_span() -> None:
    posts = posts_of(SMALL)
    assert len({post.id for post in posts}) == len(posts)
    begin = 1_356_998_400_000  # 2013-01-01T00:00:00Z
    for _, group in itertools.groupby(posts, key=lambda post: post.user):
        times = [post.time for post in group]
        assert times == sorted(times)
        assert begin <= times[0] and times[-1] < begin + 5 * YEAR


def test_users_join_post_in_bursts_fall_silent_and_leave() -> None:
    nature = Nature()
    lines = [population(nature).timeline(user).times for user in range(nature.users)]
    begin, span = nature.first_moment, 5 * YEAR
    joined = np.array([line[0] - begin for line in lines]) / span
    left = np.array([line[-1] - begin for line in lines]) / span
    assert (joined < 0.5).mean() > 0.6 and (joined > 0.5).mean() > 0.1
    assert 0.1 < (left < 0.6).mean() < 0.6
    gaps = [np.diff(line) for line in lines]
    silent = [gap.max() > YEAR for gap in gaps]
    assert 0.1 < np.mean(silent) < 0.9
    returned = [bool((gap[:-1] > YEAR).any()) for gap in gaps]
    assert sum(returned) > 20
    assert 0.5 < (np.concatenate(gaps) < 3_600_000).mean() < 0.8


def test_activity_has_a_heavy_tail_and_some_users_stay_below_twenty() -> None:
    posts = np.array(list(Counter(Columns(posts_of(Nature())).users).values()))
    assert np.median(posts) > 35
    assert 0.03 < (posts < 20).mean() < 0.25
    assert posts.max() > 10 * np.median(posts)


def test_the_kinds_of_posts_have_their_shares() -> None:
    posts = posts_of(Nature())
    shares = [
        (0.10, [post.is_retweet for post in posts]),
        (0.10, [post.is_reply for post in posts]),
        (0.08, [post.language != "en" for post in posts]),
    ]
    for share, found in shares:
        assert abs(np.mean(found) - share) < 4 * np.sqrt(share * (1 - share) / len(posts))
    assert {post.language for post in posts} == {"en", "es", "de", "pt", "fr", "ja"}
    names = {post.user for post in posts}
    for post in posts:
        mention = re.match(r"(RT )?@(\w+) ", post.text)
        assert (mention is not None) == (post.is_retweet or post.is_reply)
        if mention:
            assert (mention[1] is not None) == post.is_retweet
            assert mention[2] in names - {post.user}


def test_words_are_those_of_the_tokenizer() -> None:
    tokenize = TweetTokenizer().tokenize
    words = population(Nature()).language.words
    assert len(set(words)) == len(words) == 2_000
    seen = set()
    for post in posts_of(SMALL):
        if is_ordinary(post):
            assert tokenize(post.text) == post.text.split(" ")
            seen.update(tokenize(post.text))
    assert len(seen & set(words)) > 1_200
    # … and of every two neighbours that the grammar allows, one of each class
    language, after = population(Nature()).language, grammar()
    for one, two in itertools.product(range(2_000), language.start[:-1]):
        if one % 5 == 0 and after[language.class_of[one], language.class_of[two]]:
            text = f"{words[one]} {words[two]}"
            assert tokenize(text) == text.split(" ")


def test_vocabularies_of_all_sizes_are_full_and_have_no_word_twice() -> None:
    for size, users in itertools.product((60, 61, 500, 5_000), (2, 50, 3_000)):
        nature = Nature(vocabulary=size, users=users, topics=3, years=1)
        language = population(nature).language
        assert len(set(language.words)) == size
        assert (np.diff(language.start) > 0).all()


# --- the truth ---


def test_the_probabilities_of_all_posts_add_up_to_one() -> None:
    nature = TINY.model_copy(update={"longest": 3, "posts": 100})
    truth, texts = nature.truth(), every_text(nature)
    for user, era in ((0, 0), (1, 1)):
        users = [population(nature).handles[user]] * len(texts)
        times = np.full(len(texts), nature.first_moment + era * YEAR // 4)
        assert np.exp(-truth.nats(users, times, texts)).sum() == pytest.approx(1, abs=1e-12)
        agnostic = truth.agnostic_nats(times, texts, truth.tally(users, times), "train")
        assert np.exp(-agnostic).sum() == pytest.approx(1, abs=1e-12)


def test_the_posts_of_each_user_and_era_are_as_frequent_as_the_truth_says() -> None:
    texts = every_text(TINY)
    number = {text: i for i, text in enumerate(texts)}
    drawn = Columns(posts_of(TINY))
    found = np.array([number[text] for text in drawn.texts])
    groups = list(itertools.product(population(TINY).handles, (0, 1)))
    nats = {
        (name, era): TINY.truth().nats(
            [name] * len(texts), np.full(len(texts), TINY.first_moment + era * YEAR // 4), texts
        )
        for name, era in groups
    }
    for name, era in groups:
        mine = found[(np.array(drawn.users) == name) & (TINY.era(drawn.times) == era)]
        assert len(mine) > 3_000
        observed = np.bincount(mine, minlength=len(texts)).astype(float)
        for group in groups:
            apart = misfit(observed, len(mine) * np.exp(-nats[group]))
            assert abs(apart) < 4 if group == (name, era) else apart > 50  # it can tell
        # The average loss is the entropy.
        own = nats[name, era]
        chance = np.exp(-own)
        entropy = (chance[chance > 0] * own[chance > 0]).sum()
        spread = np.sqrt((chance[chance > 0] * (own[chance > 0] - entropy) ** 2).sum())
        assert abs(own[mine].mean() - entropy) < 4 * spread / np.sqrt(len(mine))


def test_every_next_word_adds_up_and_the_chain_of_them_is_the_post() -> None:
    truth, drawn = SMALL.truth(), Columns(posts_of(SMALL))
    picks = range(0, len(drawn.texts), 40)
    assert any(drawn.words[pick] == SMALL.longest + 1 for pick in picks)
    nats = truth.nats(drawn.users, drawn.times, drawn.texts)
    for pick in picks:
        words = drawn.texts[pick].split()
        total = 0.0
        for place, word in enumerate([*words, EOT]):
            following = truth.next_word(drawn.users[pick], drawn.times[pick], words[:place])
            assert sum(following.values()) == pytest.approx(1, abs=1e-12)
            assert min(following.values()) >= 0
            total -= np.log(following[word])
        assert total == pytest.approx(nats[pick], abs=1e-9)


def test_the_words_follow_their_predicted_distribution() -> None:
    """Each word's place in its predicted distribution function is uniform, if that is right.

    Words stand in the order of their probability, so that too sharp and too flat predictions
    show; the predictions for another user show that the test would notice.
    """
    truth, drawn = SMALL.truth(), Columns(posts_of(SMALL))
    generator = np.random.Generator(np.random.PCG64(5))
    names = population(SMALL).handles
    places: dict[bool, list[float]] = {True: [], False: []}
    surprise, variance = 0.0, 0.0
    for pick in range(0, len(drawn.texts), 11):
        words = [*drawn.texts[pick].split(), EOT]
        place = int(generator.integers(0, len(words)))
        own = drawn.users[pick]
        for right, user in ((True, own), (False, names[names.index(own) - 1])):
            following = truth.next_word(user, drawn.times[pick], words[:place])
            chance = np.array(list(following.values()))
            mine = following[words[place]]
            below = chance[chance < mine].sum()
            ties = chance[chance == mine].sum()
            places[right].append(below + generator.random() * ties)
            if right:
                logs = -np.log(np.maximum(chance, 1e-300))
                entropy = (chance * logs).sum()
                surprise += -np.log(mine) - entropy
                variance += (chance * (logs - entropy) ** 2).sum()
    fits = {
        right: misfit(
            np.histogram(found, 20, (0, 1))[0].astype(float), np.full(20, len(found) / 20)
        )
        for right, found in places.items()
    }
    assert abs(fits[True]) < 4
    assert fits[False] > 20
    assert abs(surprise) < 4 * np.sqrt(variance)


def test_who_knows_the_user_predicts_better() -> None:
    drawn, truth = Columns(posts_of(Nature())), Nature().truth()
    active = Counter(drawn.users)
    kept = np.array([active[user] >= 20 for user in drawn.users])

    def perplexity(nats: NDArray[np.float64]) -> float:
        return float(np.exp(nats[kept].sum() / drawn.words[kept].sum()))

    personalized = perplexity(truth.nats(drawn.users, drawn.times, drawn.texts))
    counts = truth.tally(drawn.users, drawn.times)
    train = perplexity(truth.agnostic_nats(drawn.times, drawn.texts, counts, "train"))
    balanced = perplexity(truth.agnostic_nats(drawn.times, drawn.texts, counts, "balanced"))
    assert 20 < personalized < 40
    # By the posts of all, the prior by the number of posts is the better one.
    assert 1.3 * personalized < train < balanced < 2 * personalized
    assert balanced < len(truth.words) / 10


@pytest.mark.parametrize("weights", ["train", "balanced"])
@pytest.mark.parametrize("chunks", [(7, 50), (4_096, 200_000)])
def test_the_agnostic_truth_is_the_mixture_over_users(
    weights: truth_module.Weights, chunks: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth_module, "CHUNK_POSTS", chunks[0])
    monkeypatch.setattr(truth_module, "CHUNK_OWNERS", chunks[1])
    nature = Nature(users=40, posts=2_000, years=1.5)
    truth, drawn = nature.truth(), Columns(posts_of(nature))
    eras = (drawn.times - nature.first_moment) // (YEAR // 4)
    total = Counter(drawn.users)
    here = Counter(zip(drawn.users, eras.tolist(), strict=True))
    kept = [user for user in total if total[user] >= 25]
    assert 10 < len(kept) < len(total)
    prior = np.array(
        [
            [here[user, era] / (total[user] if weights == "balanced" else 1) for user in kept]
            for era in range(6)
        ]
    )
    prior /= prior.sum(1, keepdims=True)
    chance = np.exp(
        [-truth.nats([user] * len(eras), drawn.times, drawn.texts) for user in kept]
    )  # [user, post]
    expected = -np.log((prior[eras].T * chance).sum(0))
    counts = truth.tally(drawn.users, drawn.times)
    counts[counts.sum(1) < 25] = 0
    nats = truth.agnostic_nats(drawn.times, drawn.texts, counts, weights)
    np.testing.assert_allclose(nats, expected, rtol=0, atol=1e-9)


def test_the_truth_tallies_posts_by_user_and_era() -> None:
    drawn = Columns(posts_of(SMALL))
    eras = SMALL.era(drawn.times).tolist()
    here = Counter(zip(drawn.users, eras, strict=True))
    names = population(SMALL).handles
    counts = [[here[name, era] for era in range(SMALL.eras)] for name in names]
    assert SMALL.truth().tally(drawn.users, drawn.times).tolist() == counts


def test_what_cannot_be_said_has_probability_zero() -> None:
    truth, drawn = SMALL.truth(), Columns(posts_of(SMALL))
    user, time = drawn.users[0], drawn.times[0]
    texts = ["the game .", "the unheardof .", "", "the game", "the the .", " ".join(["song"] * 24)]
    texts += [" ".join(["song"] * 25), " ".join(["song"] * 500), "the  game ."]
    possible = [True, False, False, True, False, True, False, False, False]
    times = np.full(len(texts), time)
    counts = truth.tally(drawn.users, drawn.times)
    for nats in (
        truth.nats([user] * len(texts), times, texts),
        truth.agnostic_nats(times, texts, counts, "train"),
    ):
        assert np.isfinite(nats).tolist() == possible
        assert (nats[~np.array(possible)] == np.inf).all()
    # In an era in which nobody who counts has posted, nothing is probable.
    assert truth.agnostic_nats(times[:1], texts[:1], 0 * counts, "train")[0] == np.inf
    assert len(truth.nats([], times[:0], [])) == 0


def test_the_truth_of_a_configuration_is_computed_once() -> None:
    assert SMALL.truth() is Nature(**SMALL.model_dump()).truth()


def test_products_of_probabilities_stay_within_floating_point() -> None:
    for topics in (1, 20):
        nature = Nature(vocabulary=20_000, topics=topics, drift=1.0, years=1)
        assert population(nature).language.topical.min() > 1e-9


def test_topics_and_users_drift() -> None:
    still = population(Nature(drift=0))
    moving = population(Nature())
    for people, least, most in ((still, 0.0, 1e-12), (moving, 0.1, 0.9)):
        topical = people.language.topical
        classes = len(CLASSES) - TOPICAL
        apart = 0.5 * np.abs(topical[0] - topical[-1]).sum(1) / classes
        assert (apart >= least).all() and (apart <= most).all()
        next_era = 0.5 * np.abs(topical[0] - topical[1]).sum(1) / classes
        assert (next_era <= 0.4 * apart + 1e-12).all()  # smoothly
        user = np.array([3, 3])
        first, last = people.theta(user, np.array([0, 19]))
        assert least <= 0.5 * np.abs(first - last).sum() <= most


def test_nobody_is_a_friend_of_oneself() -> None:
    for users in (2, 300, 3_000):
        everyone = population(Nature(users=users))
        owner, word = np.divmod(everyone.own_keys, 2_000)
        words = everyone.language.words
        pairs = [(everyone.handles[u], words[w]) for u, w in zip(owner, word, strict=True)]
        assert not [pair for pair in pairs if f"@{pair[0]}" == pair[1]]
        mentions = Counter(user for user, word in pairs if word[0] == "@")
        assert len(mentions) == users


def test_a_table_draws_what_is_possible_and_nothing_else() -> None:
    table = Table(np.array([0.0, 0.5, 0.5, 0.0, 0.0, 1.0]), np.array([0, 4]))
    almost = np.nextafter(1.0, 0.0)
    rows = np.array([0, 0, 0, 0, 1, 1])
    uniforms = np.array([0.0, np.nextafter(0.5, 0), 0.5, almost, 0.0, almost])
    assert table.draw(rows, uniforms).tolist() == [1, 1, 2, 2, 5, 5]


# --- its errors ---


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"users": 10, "posts": 9}, "posts must be at least as many as users"),
        ({"retweets": 0.6, "replies": 0.6}, "must not add up to more than 1"),
        ({"vocabulary": 10}, "vocabulary = 10"),
        ({"seed": -1}, "seed = -1"),
        ({"start": "yesterday"}, "start = 'yesterday'"),
        ({"user": 3}, "did you mean 'users'"),
    ],
)
def test_a_wrong_value_is_told_in_one_sentence(values: dict[str, object], message: str) -> None:
    with pytest.raises(FirehoseError, match=re.escape(message)):
        Nature.of(values)


def test_it_travels_through_toml() -> None:
    import tomllib

    assert Nature.of(tomllib.loads(SMALL.to_toml())) == SMALL


def test_the_truth_refuses_what_it_cannot_know() -> None:
    truth, drawn = SMALL.truth(), Columns(posts_of(SMALL)[:1])
    user, times = drawn.users, drawn.times
    with pytest.raises(FirehoseError, match="no user 'nobody'"):
        truth.nats(["nobody"], times, drawn.texts)
    with pytest.raises(FirehoseError, match=r"outside the 5\.0 years"):
        truth.nats(user, times + 6 * YEAR, drawn.texts)
    with pytest.raises(FirehoseError, match="without <MENTION>"):
        truth.nats(user, times, ["hear <MENTION> ."])
    with pytest.raises(FirehoseError, match="without <MENTION>"):
        truth.agnostic_nats(times, ["hear <MENTION> ."], truth.tally(user, times), "train")
    with pytest.raises(FirehoseError, match="begins with 'the the'"):
        truth.next_word(user[0], times[0], ["the", "the"])
    with pytest.raises(ValueError, match="different lengths"):
        truth.nats(user, times, ["the game .", "the game ."])
