"""How long posts are, in a sentence."""

import pytest
from test_corpus import ragged

from firehose.data.lengths import Lengths


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([10] * 8, "10 tokens; a model with max_tokens = 50 cuts none of them."),
        ([50] * 55 + [163] * 45, "163 tokens; a model with max_tokens = 50 cuts 45 % of them."),
        ([50] * 999 + [51], "50 tokens; a model with max_tokens = 50 cuts 0.1 % of them."),
        ([60] * 999 + [50], "60 tokens; a model with max_tokens = 50 cuts 99.9 % of them."),
    ],
)
def test_the_lengths_in_a_sentence(lengths: list[int], sentence: str) -> None:
    found = Lengths.of(ragged(lengths)).sentence().replace("\N{NO-BREAK SPACE}", " ")
    assert found == f"99 % of the posts have at most {sentence}"
