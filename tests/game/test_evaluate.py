"""Scores: perplexities counted by hand, and users taken for others."""

import math
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game import scoring
from firehose.game.evaluate import choose_others, evaluate, write
from firehose.game.scoring import costs, past_sample, score_past
from firehose.models.store import Trained, save
from small_models import trained_on


def alone(trained: Trained, corpus: Corpus, post: int, user: int) -> float:
    """The nats of one test post, as if ``user`` had written it."""
    batch = corpus.splits["test"].batch([post])
    batch.user[0] = user
    return float(trained.model.pay(batch).nats[0])


def test_perplexities_are_those_counted_by_hand(tmp_path: Path, small_corpus: Corpus) -> None:
    trained = trained_on(small_corpus)
    found = evaluate(trained, small_corpus, others=1)
    test = small_corpus.splits["test"]
    nats: dict[int, float] = defaultdict(float)
    words: dict[int, int] = defaultdict(int)
    tokens = 0
    for post in range(len(test)):
        user = int(test.user[post])
        nats[user] += alone(trained, small_corpus, post, user)
        text = test.batch([post])
        words[user] += len(small_corpus.vocabulary.decode(text.tokens).split()) + 1  # and <EOT>
        tokens += len(text.tokens) - 1  # but not <SOT>
    total = sum(nats.values())
    assert found.own.per_word() == pytest.approx(math.exp(total / sum(words.values())), rel=1e-5)
    assert found.own.per_token() == pytest.approx(math.exp(total / tokens), rel=1e-5)
    mean = np.mean([nats[user] / words[user] for user in nats])
    assert found.balanced() == pytest.approx(math.exp(mean), rel=1e-5)
    write(found, tmp_path / "users.parquet")
    rows = pq.read_table(tmp_path / "users.parquet").to_pylist()
    assert [row["user"] for row in rows] == small_corpus.users
    for number, row in enumerate(rows):
        assert row["word_perplexity"] == pytest.approx(math.exp(nats[number] / words[number]))
        assert (row["posts"], row["words"]) == (3, words[number])


def test_as_others_each_post_is_scored_with_vectors_that_are_not_its_user_s(
    small_corpus: Corpus,
) -> None:
    trained = trained_on(small_corpus)  # knows users 0 and 2, not 1
    found = evaluate(trained, small_corpus, others=5)
    assert found.unknown == 1
    assert found.crossed is not None
    test = small_corpus.splits["test"]
    # Only one other is left for 0 and for 2, so everybody gets one.
    for post, paid in enumerate(found.crossed.nats):
        own = int(test.user[post])
        candidates = [alone(trained, small_corpus, post, user) for user in {0, 2} - {own}]
        assert any(paid == pytest.approx(candidate, rel=1e-5) for candidate in candidates)
    assert len(found.crossed.nats) == len(test)


def test_a_user_agnostic_model_takes_nobody_for_another(small_corpus: Corpus) -> None:
    found = evaluate(trained_on(small_corpus, "agnostic"), small_corpus)
    assert found.crossed is None
    assert found.unknown == 0
    assert "cross_word_perplexity" not in found.per_user().column_names


def test_it_opens_what_is_on_disk(tmp_path: Path, small_corpus: Corpus) -> None:
    trained = trained_on(small_corpus)
    save(trained, tmp_path / "model")
    found = evaluate(tmp_path / "model", small_corpus.path, "validation")
    expected = costs(trained.model, small_corpus.splits["validation"])
    assert found.own.per_word() == pytest.approx(expected.per_word())
    with pytest.raises(FirehoseError, match="no posts in 'tset'; there are train, val"):
        evaluate(tmp_path / "model", small_corpus.path, "tset")


def test_a_sample_of_the_past_weighs_every_post_it_stands_for(
    small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two posts of each third of the time; the thirds have different numbers of posts."""
    monkeypatch.setattr(scoring, "past_sample", partial(past_sample, each=2, buckets=3))
    stream, model = small_corpus.splits["train"], trained_on(small_corpus).model
    posts = len(stream) - 7
    time = stream.time[:posts].tolist()
    third = [3 * (t - time[0]) // (time[-1] + 1 - time[0]) for t in time]
    chosen, _ = scoring.past_sample(stream.time[:posts])
    nats, words = 0.0, 0.0
    for post in chosen.tolist():
        weight = third.count(third[post]) / [third[p] for p in chosen].count(third[post])
        batch = stream.batch([post])
        nats += weight * float(model.pay(batch).nats[0])
        words += weight * int(batch.words[0])
    assert len({third.count(number) for number in range(3)}) > 1
    assert score_past(model, stream, posts).per_word() == pytest.approx(math.exp(nats / words))


@given(
    posts=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    known=st.sets(st.integers(0, 12), min_size=1),
    others=st.integers(0, 6),
    seed=st.integers(0, 99),
)
def test_others_are_others_and_known(
    posts: list[int], known: set[int], others: int, seed: int
) -> None:
    users = np.array(posts)
    chosen = choose_others(users, np.array(sorted(known)), others, seed)
    assert chosen.shape == (len(users), min(others, len(known) - bool(known & set(posts))))
    for user, row in zip(posts, chosen.tolist(), strict=True):
        assert user not in row
        assert len(set(row)) == len(row)
        assert set(row) <= known
    for user in set(posts):
        assert len({tuple(row) for row in chosen[users == user].tolist()}) == 1
