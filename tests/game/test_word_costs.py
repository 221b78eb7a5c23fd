"""What each word of a post costs."""

import numpy as np
import pytest

from firehose.data.corpus import Corpus
from firehose.game.words import word_costs
from small_models import trained_on


def test_the_words_of_a_post_cost_what_the_post_costs(small_corpus: Corpus) -> None:
    trained, posts = trained_on(small_corpus), small_corpus.splits["test"]
    for place in range(3):
        post = posts.batch([place])
        found = word_costs(trained.model, post, small_corpus.vocabulary)
        text = small_corpus.vocabulary.decode(post.tokens)
        assert [word.text for word in found] == [*text.split(), "<EOT>"]
        assert sum(word.nats for word in found) == pytest.approx(
            trained.model.pay(post).nats[0], rel=1e-5
        )


def test_each_word_costs_what_it_adds(small_corpus: Corpus) -> None:
    trained, post = trained_on(small_corpus), small_corpus.splits["test"].batch([0])
    found = word_costs(trained.model, post, small_corpus.vocabulary)
    log_prob = trained.model.outlook(post).log_prob
    words = small_corpus.vocabulary.words(post.tokens.tolist())
    assert words[0][1].start == 1 and words[-1][1].stop == len(post.tokens)
    for word, (_, place) in zip(found, words, strict=True):
        own = -log_prob[np.arange(place.start, place.stop) - 1].sum()
        assert word.nats == pytest.approx(own, abs=1e-4)
