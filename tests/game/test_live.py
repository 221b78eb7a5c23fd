"""A trained model that learns from texts, and forgets who wrote them."""

from pathlib import Path

import numpy as np
import pytest
import torch

import firehose
from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.game.live import Trained, load
from firehose.game.settings import make_settings
from firehose.models.store import save
from small_models import trained_on

POSTS = [Post("zoe", "the quick brown fox"), Post("user0", "a lazy dog in the house")]


@pytest.fixture
def model(tmp_path: Path, small_corpus: Corpus) -> Trained:
    save(trained_on(small_corpus), tmp_path / "model")
    return load(tmp_path / "model")


def test_three_lines(model: Trained) -> None:
    before = model.pay(POSTS)
    paid = model.learn(POSTS)
    assert paid.nats.tolist() == before.nats.tolist()  # paid before it was learned from
    for _ in range(30):
        model.learn(POSTS)
    assert model.pay(POSTS).nats.sum() < 0.9 * before.nats.sum()
    assert model.knows("zoe")
    assert len(model.game.memory) > 0
    assert firehose.load is load and firehose.Trained is Trained


def test_it_is_the_game(model: Trained, tmp_path: Path) -> None:
    other = load(tmp_path / "model")
    batches = [model.encoder.encode(POSTS, model.users, grow=True) for _ in range(3)]
    rounds = [played.paid.nats.tolist() for played in model.game.rounds(batches)]
    assert [other.learn(POSTS).nats.tolist() for _ in range(3)] == rounds


def test_how_it_learns_can_be_chosen(tmp_path: Path, small_corpus: Corpus) -> None:
    save(trained_on(small_corpus), tmp_path / "model")
    playing = make_settings("laptop", play={"learner": "online-only"}).play
    model = load(tmp_path / "model", playing=playing)
    model.learn(POSTS)
    assert model.game.learner.settings.kind == "online-only"
    assert load(tmp_path / "model").playing.learner.kind == "mixed-replay"


def test_whom_it_forgets_leaves_nothing(model: Trained) -> None:
    for _ in range(3):
        model.learn(POSTS)
    number = model.users.number("zoe")
    assert number is not None
    rows = [state.state().clone() for state in model.game.rule.row_states()]
    kept = [
        int(row)
        for row in range(len(model.model.users))
        if model.model.users.user_of[row] != number
    ]
    erased = model.forget("zoe")
    nothing = {"held-back posts": 0, "things a learner kept": 0, "things a predictor kept": 0}
    assert erased == {"remembered posts": 3, **nothing, "vectors": 1, "names": 1}
    assert model.users.number("zoe") is None and not model.knows("zoe")
    assert number not in model.model.users.numbers()
    for before, state in zip(rows, model.game.rule.row_states(), strict=True):
        now = state.state()
        assert sorted(map(str, now.tolist())) == sorted(map(str, before[kept].tolist()))
    assert "zoe" not in model.known()
    with pytest.raises(FirehoseError, match="no user 'zoe'"):
        model.forget("zoe")
    model.learn([Post("zoe", "a lazy dog")])  # somebody new now
    assert model.users.number("zoe") != number


def test_a_stream_of_texts_is_a_stream_of_batches(small_corpus: Corpus) -> None:
    """What is paid for texts is what is paid for the same posts of a corpus."""
    model = trained_on(small_corpus)
    batch = small_corpus.splits["train"].between(0, 5)
    texts = [
        small_corpus.vocabulary.decode(post) for post in np.split(batch.tokens, batch.offsets[1:-1])
    ]
    names = [small_corpus.users[user] for user in batch.user]
    paid = model.pay([Post(name, text) for name, text in zip(names, texts, strict=True)])
    assert paid.nats.tolist() == model.model.pay(batch).nats.tolist()
    assert paid.words.tolist() == batch.words.tolist()
    assert torch.is_tensor(model.model.users.vectors)
