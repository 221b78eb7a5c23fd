"""Suggestions, against enumeration of all words on models that allow it."""

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from firehose.errors import FirehoseError
from firehose.generation import suggest as suggest_module
from firehose.generation.decoding import Decoder
from firehose.generation.lookahead import Beginning, Budget, WordSearch
from firehose.generation.prompt import ReadPrompt
from firehose.generation.suggest import Asked, Suggester, suggest
from firehose.models.store import Trained
from firehose.models.users import NOBODY
from small_writers import (
    BEGIN,
    CONTINUE,
    EOT,
    ID,
    NAMES,
    PROMPT,
    VOCABULARY,
    levels,
    trained,
)


def all_words(model: Trained, user: int) -> dict[str, float]:
    """The probability of every next word, by looking at every way to spell it."""
    begins = [number for piece, number in ID.items() if piece.startswith("▁")]
    found: dict[str, float] = defaultdict(float)
    for texts, scores, after in levels(model, user, list(BEGIN), list(CONTINUE), 1e-9):
        ends = (scores.exp() * (after[:, begins].exp().sum(1) + after[:, EOT].exp())).tolist()
        for text, end in zip(texts, ends, strict=True):
            if not text:
                found["<EOT>"] = float(after[0, EOT].exp())
            elif word := VOCABULARY.decode(text):
                found[word] += end
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 50), user=st.integers(NOBODY, 8), k=st.integers(1, 12))
def test_suggestions_are_the_most_probable_of_all_words(seed: int, user: int, k: int) -> None:
    model = trained(seed)
    found = suggest(model, PROMPT, None if user == NOBODY else NAMES[user], k)
    every = all_words(model, user)
    probabilities = [probability for _, probability in found]
    assert probabilities == pytest.approx([every[word] for word, _ in found], abs=1e-6)
    assert probabilities == pytest.approx(sorted(every.values(), reverse=True)[:k], abs=1e-6)
    assert len({word for word, _ in found}) == k


def test_among_the_suggestions_are_the_end_a_url_and_words_of_several_pieces() -> None:
    model = trained(6)
    words = [word for word, _ in suggest(model, PROMPT, "user1", k=12)]
    assert {"<EOT>", "<URL>", "me"} <= set(words)
    assert "" not in words  # though ▁ alone, with nothing before the next ▁, is probable


def test_spellings_that_only_together_are_probable_are_not_missed() -> None:
    model = trained(architecture="agnostic")
    shared = model.model.shared
    nn.init.zeros_(shared.embedding)  # so that a piece is as probable anywhere
    nn.init.constant_(shared.output_bias, -40)
    probabilities = {"▁": 0.5, "▁the": 0.22, "▁home": 0.08, "e": 0.1, "<0x65>": 0.1}
    for piece, probability in probabilities.items():
        nn.init.constant_(shared.output_bias[ID[piece]], math.log(probability))
    found = suggest(model, PROMPT, None, k=3)
    # Both spellings of “e” begin with 0.05, which is less than all of “home”.
    assert [word for word, _ in found] == ["the", "e", "home"]
    expected = [0.22 * 0.8, 0.5 * 0.2 * 0.8, 0.08 * 0.8]
    assert [probability for _, probability in found] == pytest.approx(expected, abs=1e-6)
    assert [word for word, _ in suggest(model, PROMPT, None, k=2)] == ["the", "e"]


def test_what_can_still_become_a_better_word_is_looked_into() -> None:
    """“me” may gain what begins with “m” and what is “me” already: more than “home” has."""
    search = WordSearch(ReadPrompt(trained(), PROMPT, None), k=2)
    opened = [
        Beginning(0.05, (1, 2), b" m"),
        Beginning(0.05, (1, 3), b" me"),
        Beginning(0.05, (1, 4), b" a"),
        Beginning(0.01, (1, 5), b" t"),
    ]
    search.opened = {each.spelling: [each] for each in opened}
    search.words = defaultdict(float, {b" the": 0.2, b" home": 0.08})
    wanted = {beginning.spelling for beginning in search.wanted()}
    assert wanted == {b" m", b" me", b" t"}  # the last may be another way to “the”
    search.k = 3
    assert set(search.wanted()) == set(opened)  # there may be a third word


def test_many_small_shares_of_one_word_are_not_overlooked() -> None:
    """Each is negligible, and together they are more than the last word that is wanted."""
    search = WordSearch(ReadPrompt(trained(), PROMPT, None), k=1)
    word = b" " + b"a" * 90
    opened = [Beginning(0.0012, (1, n), word[:n]) for n in range(2, 91)]
    search.opened = {each.spelling: [each] for each in opened}
    search.words = defaultdict(float, {b" the": 0.1})
    assert set(search.wanted()) == set(opened)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 50),
    most=st.integers(1, 40),
    width=st.integers(2, 12),
    begun=st.sampled_from(["", "a", "m", "ho"]),
)
def test_what_time_does_not_allow_is_between_bounds(
    seed: int, most: int, width: int, begun: str
) -> None:
    model = trained(seed)
    every = all_words(model, 3)
    budget = Budget(most, tolerance=0.1, width=width, share=0.01, rows=8)
    found = Suggester(model).suggest(PROMPT, NAMES[3], 5, begun, budget)
    assert found or begun  # a begun word may need more
    for word, probability, at_most in found:
        assert word.startswith(begun) or word == "<EOT>"
        assert probability - 1e-6 <= every[word] <= at_most + 1e-6


def test_at_once_is_an_answer_too() -> None:
    hurried = Suggester(trained(6)).suggest(PROMPT, "user1", 3, "", Budget(seconds=0.0))
    assert len(hurried) == 3 and hurried[2].probability < hurried[2].at_most


def test_a_prompt_that_goes_on_is_read_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = trained(4), []
    advance = Decoder.advance

    def counted(decoder: Decoder, tokens: Tensor) -> Tensor:
        rows.append(tokens.shape[1])
        return advance(decoder, tokens)

    monkeypatch.setattr(Decoder, "advance", counted)
    suggester = Suggester(model, remembered=2)
    exact = Budget()
    texts = ["", "the", "the home", "the home the home", "the home me", "home", "home"]
    for text in texts:
        for user in (NAMES[3], None):
            found = suggester.suggest(text, user, 4, "", exact)
            expected = suggest(model, text, user, 4, "")
            assert [each.word for each in found] == [each.word for each in expected]
            likely = [each.probability for each in expected]
            assert [each.probability for each in found] == pytest.approx(likely, rel=1e-4)
    rows.clear()
    suggester.suggest("home", None, 4, "", exact._replace(most=1))
    assert not rows  # nothing of the prompt was read
    suggester.suggest("home the", None, 4, "", exact._replace(most=1))
    assert rows == [VOCABULARY.encode(["the"])[1][0] - 2]  # of one word, not of both
    suggester.suggest("the", "user0", 1, "", exact)
    assert len(suggester._read) == 2


def test_several_who_ask_together_are_told_what_each_is_told_alone() -> None:
    model, budget = trained(4), Budget(tolerance=0.1, width=12, rows=8)
    questions = [
        Asked("the home", NAMES[3], 4),
        Asked("", None, 3, "m"),
        Asked("me the home the home", NAMES[1], 2, "h"),
        Asked("home", NAMES[3], 4),  # the same user, somewhere else
        Asked("me " * 5_000, NAMES[2], 3),
    ]
    suggester = Suggester(model)
    for _ in range(2):  # the second time prompts were read before
        *together, refused = suggester.suggest_all(questions, budget)
        assert isinstance(refused, FirehoseError) and "characters" in str(refused)
        for asked, found in zip(questions, together, strict=False):
            alone = Suggester(model).suggest(*asked, budget)
            assert not isinstance(found, FirehoseError)
            assert [each.word for each in found] == [each.word for each in alone]
            likely = [each.probability for each in alone]
            assert [each.probability for each in found] == pytest.approx(likely, rel=1e-4)


def test_searches_share_the_time_there_is() -> None:
    read = ReadPrompt(trained(), PROMPT, None)
    read.seconds = 1.0
    search = WordSearch(read, 3, budget=Budget(rows=64))
    assert len(search.choose(-1.0)) == 4  # all there are: the first expansion is made in any case
    assert len(search.choose(-1.0, sharing=100)) == 1
    search.expanded = 1
    assert len(search.choose(1.4)) == 3  # 8 more take as long as one
    assert len(search.choose(1.4, sharing=2)) == 1
    assert not search.choose(0.9)  # there is no time for another


def test_a_flat_model_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained()
    for parameter in (model.model.shared.embedding, model.model.shared.output_bias):
        nn.init.zeros_(parameter)
    monkeypatch.setattr(suggest_module, "EXACT", Budget(most=20))
    rows, expand = [], WordSearch.expand

    def counted(search: WordSearch, chosen: list[Beginning], after: Tensor) -> None:
        rows.append(len(chosen))
        expand(search, chosen, after)

    monkeypatch.setattr(WordSearch, "expand", counted)
    found = suggest(model, PROMPT, "user1", k=7)
    assert len(found) == 7
    assert sum(rows) == 20
    flat = 1 / VOCABULARY.size
    assert found[0].word == "<EOT>" and found[0].probability == pytest.approx(flat)
    assert all(probability < flat for _, probability in found[1:])


def test_no_suggestions_are_not_asked_for() -> None:
    with pytest.raises(FirehoseError, match="k = 0 words cannot be suggested"):
        suggest(trained(), PROMPT, None, k=0)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 50), begun=st.sampled_from(["a", "m", "me", "h", "ho", "the", "q"]))
def test_a_begun_word_is_completed_by_the_most_probable_that_begin_so(
    seed: int, begun: str
) -> None:
    model = trained(seed)
    every = {word: p for word, p in all_words(model, 3).items() if word.startswith(begun)}
    found = suggest(model, PROMPT, NAMES[3], 3, begun)
    assert all(word.startswith(begun) for word, _ in found)
    expected = sorted((p for p in every.values() if p > 1e-5), reverse=True)[:3]
    likely = [probability for _, probability in found if probability > 1e-5]
    assert likely == pytest.approx(expected, abs=1e-6)


def test_a_post_can_be_begun() -> None:
    model = trained(1)
    assert len(suggest(model, "", "user1", 3, begun="")) == 3
    with pytest.raises(FirehoseError, match="no words"):
        suggest(model, "", "user1", 3)
