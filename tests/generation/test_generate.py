"""Writing whole texts: what each promises, and which counts can be."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from firehose.errors import FirehoseError
from firehose.generation import sampling as sampling_module
from firehose.generation.generate import generate
from firehose.generation.sampling import Sampling
from firehose.generation.suggest import suggest
from firehose.models.users import NOBODY
from small_models import batch_of
from small_writers import (
    EOT,
    FORBIDDEN,
    ID,
    NAMES,
    PROMPT,
    VOCABULARY,
    ahead,
    prompt_tokens,
    trained,
)

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
    monkeypatch.setattr(sampling_module, "ROWS", 2)
    few = generate(model, PROMPT, "user1", count=5)
    assert [text.tokens for text in few] == [text.tokens for text in texts[:5]]


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers() -> None:
    model = trained()
    for count in (8, 11):  # with its <SOT> the shorter one just leaves no room
        sentence = rf"The prompt has {count + 1} tokens .* no more than 9; shorten the prompt"
        with pytest.raises(FirehoseError, match=sentence):
            generate(model, "the " * count, None)
    (text,) = generate(model, "the " * 7, None)
    assert len(text.tokens) == 9
    with pytest.raises(FirehoseError, match="has 5,000 characters, but a post has at most 4,096"):
        suggest(model, "a" * 5_000, None)


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
