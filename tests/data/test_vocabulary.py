"""The vocabulary: special pieces, no unknown word, sizes that fit or are said to."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firehose.data.vocabulary import Vocabulary, fitting_size
from firehose.errors import FirehoseError

WORDS = "the a of to and house home mouse water walking talking runs running 😀 #tag @me"
COUNTS = [(word, 100 - number) for number, word in enumerate(WORDS.split())]
VOCABULARY = Vocabulary.train(COUNTS)


def test_the_text_decides_the_size_where_none_is_asked() -> None:
    assert 260 < VOCABULARY.size < 32_000


def test_the_size_follows_the_amount_of_text() -> None:
    sizes = [fitting_size(words) for words in (10, 80_000, 300_000, 3_000_000, 10**9)]
    assert sizes == [500, 900, 2_000, 8_000, 32_000]
    letters = np.random.default_rng(0).choice(list("abcdefghij"), (3_000, 5))
    plenty = [("".join(word), 30) for word in np.unique(letters, axis=0)]
    assert Vocabulary.train(plenty).size == fitting_size(30 * len(plenty))  # more would fit
    assert Vocabulary.train(plenty, 3_000).size == 3_000


def test_a_size_that_does_not_fit_is_told_with_one_that_does() -> None:
    with pytest.raises(FirehoseError, match=rf"at most {VOCABULARY.size:,} "):
        Vocabulary.train(COUNTS, VOCABULARY.size + 1)
    assert Vocabulary.train(COUNTS, VOCABULARY.size).size == VOCABULARY.size
    with pytest.raises(FirehoseError, match=r"at least (\d+) ") as error:
        Vocabulary.train(COUNTS, 10)
    least = int(str(error.value).rsplit("--vocab-size ", 1)[1].rstrip(")."))
    assert Vocabulary.train(COUNTS, least).size == least


def test_order_of_the_counts_does_not_matter() -> None:
    assert Vocabulary.train(COUNTS[::-1]).model == VOCABULARY.model


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=6))
def test_every_text_can_be_spelled(texts: list[str]) -> None:
    tokens, lengths = VOCABULARY.encode(texts)
    assert len(lengths) == len(texts)
    assert lengths.sum() == len(tokens)
    assert VOCABULARY.unknown not in tokens


def test_a_text_comes_back() -> None:
    text = "the house 😀 of <URL> naïve 東京 @me"
    tokens, lengths = VOCABULARY.encode([text, ""])
    assert tokens[0] == VOCABULARY.sot
    assert tokens[lengths[0] - 1] == VOCABULARY.eot
    assert VOCABULARY.decode(tokens[: lengths[0]]) == text
    assert tokens[lengths[0] :].tolist() == [VOCABULARY.sot, VOCABULARY.eot]


@given(st.lists(st.lists(st.sampled_from([*WORDS.split(), "<URL>", "x_y", "東京"])), max_size=5))
def test_posts_side_by_side_come_back(posts: list[list[str]]) -> None:
    texts = [" ".join(post) for post in posts]
    tokens, lengths = VOCABULARY.encode(texts)
    offsets = np.append(0, np.cumsum(lengths))
    assert VOCABULARY.decode_posts(tokens, offsets) == texts


def test_placeholders_are_one_piece() -> None:
    with_url, _ = VOCABULARY.encode(["<URL>"])
    with_word, _ = VOCABULARY.encode(["<MENTION>"])
    assert len(set(with_url.tolist()) - set(with_word.tolist())) == 1


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.model").write_bytes(b"not a model")
    with pytest.raises(FirehoseError, match="is not a SentencePiece model"):
        Vocabulary.load(tmp_path / "x.model")
    with pytest.raises(FirehoseError, match="Cannot read the vocabulary"):
        Vocabulary.load(tmp_path / "missing.model")


def test_lower_case_specials_of_a_given_model_are_found(tmp_path: Path) -> None:
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["some words and other words to spell with"] * 9),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        user_defined_symbols=["<mention>", "<url>", "<eot>"],
        minloglevel=2,
    )
    (tmp_path / "given.model").write_bytes(model.getvalue())
    given_model = Vocabulary.load(tmp_path / "given.model")
    tokens, _ = given_model.encode(["words <URL>"])
    pieces = [given_model._processor.id_to_piece(int(token)) for token in tokens]
    assert pieces[0] == "<s>"
    assert pieces[-2:] == ["<url>", "<eot>"]
    tokens, _ = given_model.encode(["words <eot> words"])
    assert tokens.tolist().count(given_model.eot) == 1
