"""Text outside of prepare becomes what prepare makes of it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from conftest import prepared, simple_posts
from firehose.data.corpus import Corpus
from firehose.data.encoder import Encoder, Mentions
from firehose.data.post import Post
from firehose.data.registry import UserRegistry
from firehose.data.settling import _words
from firehose.errors import FirehoseError

TEXTS = [
    "Hello @ann see http://t.co/x and www.example.org/y it's #late :-)",
    "@ann @bob_2: &lt;SOT&gt; &amp; <EOT> <URL> <MENTION> ▁ under_score",
    "call 555 123 4567 . . . or a@b.co !!!!!!! sooooo 😀👍🏽 日本語",
    "half a smile \ud83d and a whole one \ud83d\ude00",
    "tabs\tand\nlines\x1c   spaces  ",
]


@pytest.mark.parametrize("mentions", ["keep", "replace"])
def test_a_text_gets_the_tokens_and_words_that_prepare_gives_it(
    tmp_path: Path, mentions: Mentions
) -> None:
    posts = [
        post._replace(text=f"{TEXTS[n % 3]} {post.text} n{n}")
        for n, post in enumerate(simple_posts(3, 20))
    ]
    corpus = prepared(tmp_path, posts, clean={"mentions": mentions, "max_characters": 300})
    encoder = Encoder.of_corpus(corpus)
    assert encoder.plan.mentions == mentions
    assert encoder.plan.max_characters == 300
    by_moment = {post.time: post for post in posts}
    for split in corpus.splits.values():
        expected = split.between(0, len(split))
        found = encoder.encode(
            [by_moment[time] for time in expected.time.tolist()],
            UserRegistry(corpus.users),
            grow=False,
        )
        for name in ("tokens", "offsets", "user", "time", "words"):
            theirs, ours = getattr(expected, name), getattr(found, name)
            assert theirs.dtype == ours.dtype
            assert theirs.tolist() == ours.tolist(), name
    decoded = corpus.vocabulary.decode(encoder.prompt("hi @ann"))
    assert decoded == ("hi @ann" if mentions == "keep" else "hi <MENTION>")


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1) | st.sampled_from(TEXTS), st.sampled_from(["keep", "replace"]))
def test_any_text_is_cleaned_and_counted_as_a_post_is(
    small_corpus: Corpus, text: str, mentions: Mentions
) -> None:
    encoder = Encoder(small_corpus.vocabulary, mentions)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    train, large = np.zeros(1, np.uint8), np.zeros(1, bool)
    texts = pa.chunked_array([[whole]], pa.large_string())
    lines, counts, _ = _words(texts, train, large, mentions == "replace")
    if counts[0] == 1:
        with pytest.raises(FirehoseError, match="has no words"):
            encoder.prompt(text)
        return
    tokens, _ = small_corpus.vocabulary.encode(lines.to_pylist())
    batch = encoder.encode([Post("ann", text)], UserRegistry(), grow=False)
    assert batch.tokens.tolist() == tokens.tolist()
    assert batch.words.tolist() == counts.tolist()
    assert encoder.prompt(text) == tuple(tokens[:-1].tolist())


def test_who_is_unknown_is_added_or_nobody(small_corpus: Corpus) -> None:
    encoder = Encoder.of_corpus(small_corpus)
    users = UserRegistry(small_corpus.users)
    posts = [Post(name, "the fox", 5) for name in ("user1", "ann", "user0", "ann", "bob")]
    assert encoder.encode(posts, users, grow=False).user.tolist() == [1, -1, 0, -1, -1]
    assert len(users) == 3
    assert encoder.encode(posts, users, grow=True).user.tolist() == [1, 3, 0, 3, 4]
    assert list(users) == ["user0", "user1", "user2", "ann", "bob"]
    assert encoder.encode(posts, users, grow=True).time.tolist() == [5] * 5
    empty = encoder.encode([], users, grow=True)
    assert len(empty) == 0 and empty.offsets.tolist() == [0]


def test_texts_that_are_no_posts_are_refused(small_corpus: Corpus) -> None:
    encoder = Encoder(small_corpus.vocabulary, max_characters=20)
    users = UserRegistry()
    with pytest.raises(FirehoseError, match="A post of 'bob' has 21 characters, but a post has"):
        encoder.encode([Post("ann", "fox"), Post("bob", "x" * 21)], users, grow=True)
    with pytest.raises(FirehoseError, match="A post of 'ann' has no words; give it one"):
        encoder.encode([Post("ann", " \n")], users, grow=True)
    assert len(users) == 0
    with pytest.raises(FirehoseError, match="The prompt has 21 characters, but a post has at most"):
        encoder.prompt("x" * 21)
    with pytest.raises(FirehoseError, match="mentions = 'drop' in the encoder is not a choice"):
        Encoder(small_corpus.vocabulary, "drop")  # type: ignore[arg-type]
