"""Beam search, against greedy writing and enumeration of all texts."""

import numpy as np
from hypothesis import example, given, settings, strategies as st

from firehose.generation.generate import generate
from firehose.generation.sampling import Sampling
from small_writers import BEGIN, CONTINUE, EOT, PROMPT, levels, prompt_tokens, trained


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
    written = [text.tokens[len(prompt_tokens(PROMPT)) :] for text in found]
    assert len(set(written)) == count
    nats = [text.nats for text in found]
    np.testing.assert_allclose(nats, [-expected[text] for text in best], atol=1e-4)
    np.testing.assert_allclose(nats, [-expected[text] for text in written], atol=1e-4)  # or a tie
