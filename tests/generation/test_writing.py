"""Writing for a user: against enumeration of all texts and all words, on models that allow it."""

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from firehose.data.encoder import Encoder
from firehose.data.registry import UserRegistry
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError
from firehose.generation import writing
from firehose.generation.decoding import Decoder
from firehose.generation.writing import (
    Sampling,
    _Beginning,
    _wanted,
    choose,
    generate,
    knows,
    suggest,
)
from firehose.models.personal import Architecture, ModelPlan, Personal
from firehose.models.store import Trained
from firehose.models.users import NOBODY
from small_models import TINY, awake, batch_of

WORDS = "the a of to and house home mouse water walking talking runs running 😀 #tag @me"
VOCABULARY = Vocabulary.train([(word, 100 - n) for n, word in enumerate(WORDS.split())])
EOT = VOCABULARY.eot
ID = {VOCABULARY._processor.id_to_piece(n): n for n in range(VOCABULARY.size)}
BEGIN, CONTINUE = ("▁", "▁the", "▁a", "▁home"), ("a", "me", "m", "e", "<URL>", "<0x61>")
FORBIDDEN = ("<unk>", "<SOT>", "<0x1B>")
NAMES = [f"user{number}" for number in range(9)]
PROMPT = "the house"


def trained(
    seed: int = 0, architecture: Architecture = "adapters", ends: float = 0.0, loud: float = 0.2
) -> Trained:
    """A random model of few pieces, so that all it can say can be enumerated."""
    plan = ModelPlan(architecture=architecture, shape=TINY, d_user=4, mlp=8, max_tokens=9)
    torch.manual_seed(seed)
    model = awake(Personal(plan, VOCABULARY.size))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=loud)
    nn.init.constant_(model.shared.output_bias, -40)
    for piece in BEGIN + FORBIDDEN:
        nn.init.zeros_(model.shared.output_bias[ID[piece]])
    for piece in CONTINUE:
        nn.init.constant_(model.shared.output_bias[ID[piece]], -4)
    nn.init.constant_(model.shared.output_bias[EOT], ends)
    return Trained(model.eval(), Encoder(VOCABULARY), UserRegistry(NAMES))


def prompt_tokens(prompt: str) -> tuple[int, ...]:
    return tuple(VOCABULARY.encode([prompt])[0][:-1].tolist())


def ahead(model: Trained, texts: list[tuple[int, ...]], user: int) -> Tensor:
    """The log-probabilities after texts of one length, ``[texts, pieces]``, read at once."""
    return Decoder(model.model, user, len(texts)).advance(torch.tensor(texts)).double()


def levels(
    model: Trained, user: int, first: list[str], later: list[str], least: float
) -> Iterator[tuple[list[tuple[int, ...]], Tensor, Tensor]]:
    """All that can be written after the prompt, one piece longer each time.

    The texts, their log-probabilities, and the log-probabilities of what comes after each; what is
    less probable than ``least`` is left out.
    """
    start = prompt_tokens(PROMPT)
    texts, scores = [start], torch.zeros(1, dtype=torch.float64)
    pieces = torch.tensor([ID[piece] for piece in first])
    while texts:
        after = ahead(model, texts, user)
        yield [text[len(start) :] for text in texts], scores, after
        longer = (scores[:, None] + after[:, pieces]).exp()
        kept = (longer >= least).nonzero().tolist()
        texts = [(*texts[row], int(pieces[place])) for row, place in kept]
        scores = torch.tensor([longer[row, place] for row, place in kept]).log()
        pieces = torch.tensor([ID[piece] for piece in later])


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
    opened = {
        _Beginning(0.05, (1, 2), b" m"),
        _Beginning(0.05, (1, 3), b" me"),
        _Beginning(0.05, (1, 4), b" a"),
        _Beginning(0.01, (1, 5), b" t"),
    }
    found = {b" the": 0.2, b" home": 0.08}
    wanted = {beginning.spelling for beginning in _wanted(opened, found, k=2)}
    assert wanted == {b" m", b" me", b" t"}  # the last may be another way to “the”
    assert set(_wanted(opened, found, k=3)) == opened  # there may be a third word


def test_a_flat_model_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained()
    for parameter in (model.model.shared.embedding, model.model.shared.output_bias):
        nn.init.zeros_(parameter)
    monkeypatch.setattr(writing, "MOST", 20)
    rows = []
    advance = Decoder.advance

    def counted(decoder: Decoder, tokens: Tensor) -> Tensor:
        rows.append(len(tokens))
        return advance(decoder, tokens)

    monkeypatch.setattr(Decoder, "advance", counted)
    found = suggest(model, PROMPT, "user1", k=7)
    assert len(found) == 7
    assert sum(rows) == 1 + 20
    flat = 1 / VOCABULARY.size
    assert found[0].word == "<EOT>" and found[0].probability == pytest.approx(flat)
    assert all(probability < flat for _, probability in found[1:])


samplings = st.one_of(
    st.builds(
        Sampling,
        temperature=st.sampled_from([0, 0.5, 1, 3]),
        top_k=st.sampled_from([0, 1, 5]),
        top_p=st.sampled_from([0.3, 0.9, 1]),
        seed=st.integers(0, 9),
        max_tokens=st.integers(4, 20),
    ),
    st.builds(Sampling, beam=st.integers(2, 6), max_tokens=st.integers(4, 20)),
)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 50), user=st.integers(NOBODY, 8), sampling=samplings)
def test_what_a_text_promises(seed: int, user: int, sampling: Sampling) -> None:
    model = trained(seed)
    count = 1 if not sampling.temperature else 2
    texts = generate(model, PROMPT, None if user == NOBODY else NAMES[user], sampling, count)
    assert len(texts) == count
    start = prompt_tokens(PROMPT)
    for text, nats, finished, tokens in texts:
        assert text.startswith(PROMPT)
        assert text == VOCABULARY.decode(tokens)
        assert tokens[: len(start)] == start
        assert len(start) < len(tokens) <= (sampling.max_tokens or 0)
        assert finished == (tokens[-1] == EOT)
        assert finished or len(tokens) == sampling.max_tokens
        assert EOT not in tokens[:-1]
        assert not {ID[piece] for piece in FORBIDDEN} & set(tokens[1:])
        whole, before = model.model.pay(batch_of([list(tokens), list(start)], [user] * 2)).nats
        assert nats == pytest.approx(whole - before, abs=1e-4)


def test_the_longest_is_the_model_s_unless_another_is_asked_for() -> None:
    model = trained(ends=-40)
    assert len(generate(model, PROMPT, None)[0].tokens) == 9
    assert len(generate(model, PROMPT, None, Sampling(max_tokens=14))[0].tokens) == 14


def test_greedy_takes_the_most_probable_piece_each_time() -> None:
    model = trained(1, ends=-2)
    (text,) = generate(model, PROMPT, "user2", Sampling(temperature=0))
    for length in range(len(prompt_tokens(PROMPT)), len(text.tokens)):
        after = ahead(model, [text.tokens[:length]], 2)[0]
        after[[ID[piece] for piece in FORBIDDEN]] = -torch.inf
        assert text.tokens[length] == int(after.argmax())


@settings(max_examples=60, deadline=None)
@given(
    tenths=st.lists(st.integers(-40, 40), min_size=2, max_size=7, unique=True),
    temperature=st.floats(0.2, 4),
    top_k=st.integers(0, 9),
    top_p=st.floats(0.05, 1),
)
def test_pieces_are_drawn_as_often_as_they_should_be(
    tenths: list[int], temperature: float, top_k: int, top_p: float
) -> None:
    logits = np.array(tenths) / 10
    weights = np.exp(logits / temperature)
    order = np.argsort(-weights)[: top_k or None]
    shares = weights[order] / weights[order].sum()
    few = next(
        n for n in range(1, len(shares) + 1) if n == len(shares) or shares[:n].sum() >= top_p
    )
    expected = np.zeros(len(logits))
    expected[order[:few]] = shares[:few] / shares[:few].sum()
    draws = 2_000
    rows = torch.from_numpy(logits).log_softmax(0).expand(draws, -1)
    uniform = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    found = np.bincount(choose(rows, sampling, uniform).numpy(), minlength=len(logits)) / draws
    if abs(shares[:few].sum() - top_p) > 1e-6:  # else it is rounding that decides
        np.testing.assert_allclose(found, expected, atol=1.5 / draws)


def test_the_lowest_temperature_is_greedy() -> None:
    rows = torch.tensor([[-3.0, -1.0, -2.0, -torch.inf]])
    for temperature in (5e-324, 1e-30, 0.0):
        (piece,) = choose(rows, Sampling(temperature=temperature), torch.tensor([0.999]).double())
        assert int(piece) == 1
    (piece,) = choose(rows, Sampling(temperature=1e308), torch.tensor([0.999]).double())
    assert int(piece) == 0


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    beam=st.integers(2, 5),
    ends=st.floats(-20, 0),
    loud=st.sampled_from([0.2, 1.2]),
)
@example(seed=110, beam=2, ends=-20, loud=1.2)  # here the beam itself loses the greedy text
@example(seed=14, beam=2, ends=-20, loud=1.2)
def test_a_beam_is_at_least_as_probable_as_greedy(
    seed: int, beam: int, ends: float, loud: float
) -> None:
    model = trained(seed, ends=ends, loud=loud)
    (greedy,) = generate(model, PROMPT, "user3", Sampling(temperature=0))
    (best,) = generate(model, PROMPT, "user3", Sampling(beam=beam))
    assert best.nats <= greedy.nats


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 50), ends=st.floats(-3, 4), count=st.integers(1, 6))
@example(seed=0, ends=2, count=6)  # the best one is found at once, the sixth is not
def test_a_wide_beam_finds_the_most_probable_texts_of_all(
    seed: int, ends: float, count: int
) -> None:
    model = trained(seed, ends=ends)
    max_tokens = len(prompt_tokens(PROMPT)) + 3
    every = [*BEGIN, *CONTINUE]
    expected: dict[tuple[int, ...], float] = {}
    for texts, scores, after in levels(model, 4, every, every, 0):
        if len(texts[0]) == 3:
            expected |= dict(zip(texts, scores.tolist(), strict=True))
            break
        ends_at = (scores + after[:, EOT]).tolist()
        expected |= {(*text, EOT): end for text, end in zip(texts, ends_at, strict=True)}
    best = sorted(expected, key=lambda text: -expected[text])[:count]
    found = generate(model, PROMPT, "user4", Sampling(beam=200, max_tokens=max_tokens), count)
    assert [text.tokens[-len(tokens) :] for text, tokens in zip(found, best, strict=True)] == best
    nats = [text.nats for text in found]
    np.testing.assert_allclose(nats, [-expected[text] for text in best], atol=1e-4)


def test_a_seed_decides_and_nothing_else_does() -> None:
    model = trained(ends=-3)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    texts = generate(model, PROMPT, "user1", Sampling(seed=5), count=6)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert generate(model, PROMPT, "user1", Sampling(seed=5), count=6) == texts
    assert len({text.tokens for text in texts}) > 3
    others = generate(model, PROMPT, "user1", Sampling(seed=6), count=6)
    assert not {text.tokens for text in others} & {text.tokens for text in texts}


def test_more_texts_begin_with_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(ends=-3)
    texts = generate(model, PROMPT, "user1", count=7)
    monkeypatch.setattr(writing, "ROWS", 2)
    few = generate(model, PROMPT, "user1", count=5)
    assert [text.tokens for text in few] == [text.tokens for text in texts[:5]]


def test_who_is_unknown_gets_the_text_of_the_population() -> None:
    model = trained()
    assert knows(model, "user1") and not knows(model, "stranger") and not knows(model, None)
    stranger, nobody, known = (suggest(model, PROMPT, user) for user in ("stranger", None, "user1"))
    assert stranger == nobody
    assert stranger != known
    greedy = Sampling(temperature=0)
    assert generate(model, PROMPT, "stranger", greedy) == generate(model, PROMPT, None, greedy)
    nats = {generate(model, PROMPT, user, greedy)[0].nats for user in (None, *NAMES)}
    assert len(nats) == 1 + len(NAMES)


def test_without_users_everybody_gets_the_same() -> None:
    model = trained(architecture="agnostic")
    texts = [generate(model, PROMPT, user, Sampling(seed=3)) for user in (None, "user1", "x")]
    assert texts[0] == texts[1] == texts[2]


def test_a_prompt_is_cleaned_as_a_post_is() -> None:
    text = generate(
        trained(), "  the house&amp;home\nof https://x.y/z ", None, Sampling(max_tokens=20)
    )
    cleaned = "the house & home of <URL>"
    assert text[0].text.startswith(cleaned)
    assert text[0].tokens[: len(prompt_tokens(cleaned))] == prompt_tokens(cleaned)


@pytest.mark.parametrize("prompt", ["", "  \n\t "])
def test_a_prompt_without_words_is_refused(prompt: str) -> None:
    for write in (generate, suggest):
        with pytest.raises(FirehoseError, match="The prompt has no words; give it one"):
            write(trained(), prompt, None)


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers() -> None:
    model = trained()
    for count in (8, 11):  # with its <SOT> the shorter one just leaves no room
        sentence = rf"The prompt has {count + 1} tokens .* no more than 9; shorten the prompt"
        with pytest.raises(FirehoseError, match=sentence):
            generate(model, "the " * count, None)
    (text,) = generate(model, "the " * 7, None)
    assert len(text.tokens) == 9
    with pytest.raises(FirehoseError, match="has 5,000 characters, and a post no more than 4,096"):
        suggest(model, "a" * 5_000, None)


@pytest.mark.parametrize(
    ("settings_", "sentence"),
    [
        ({"beam": 2, "temperature": 0.5}, "a beam search draws nothing, so temperature, top_k and"),
        ({"beam": 2, "top_k": 3}, "leave them out, or the beam"),
        ({"beam": 2, "top_p": 0.5}, "a beam search draws nothing"),
        ({"temperature": -1}, "temperature = -1 .* greater than or equal to 0"),
        ({"temperature": float("inf")}, "finite number"),
        ({"top_p": 0}, "top_p = 0 .* greater than 0"),
        ({"top_p": 1.5}, "top_p = 1.5 .* less than or equal to 1"),
        ({"top_k": -1}, "top_k = -1 "),
        ({"beam": 0}, "beam = 0 "),
        ({"max_tokens": 1}, "max_tokens = 1 "),
        ({"seed": -1}, "seed = -1 "),
        ({"topk": 1}, "did you mean 'top_k'"),
    ],
)
def test_settings_without_meaning_are_refused(settings_: dict[str, object], sentence: str) -> None:
    with pytest.raises(FirehoseError, match=sentence):
        Sampling.of(settings_)


@pytest.mark.parametrize(
    ("sampling", "count", "sentence"),
    [
        (Sampling(), 0, "0 texts cannot be written"),
        (Sampling(beam=3), 4, "A beam of 3 does not give 4 texts; widen it"),
        (Sampling(temperature=0), 2, "At temperature 0 there is one text, not 2"),
    ],
)
def test_a_count_that_cannot_be_is_refused(sampling: Sampling, count: int, sentence: str) -> None:
    with pytest.raises(FirehoseError, match=sentence):
        generate(trained(), PROMPT, None, sampling, count)


def test_no_suggestions_are_not_asked_for() -> None:
    with pytest.raises(FirehoseError, match="k = 0 words cannot be suggested"):
        suggest(trained(), PROMPT, None, k=0)
