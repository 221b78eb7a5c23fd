"""Drawing pieces: how often each comes, and which settings have a meaning."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from firehose.errors import FirehoseError
from firehose.generation.sampling import Sampling, choose


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
