"""Prompts: whose model reads them, and how they are cleaned."""

import pytest

from firehose.errors import FirehoseError
from firehose.generation.generate import generate
from firehose.generation.prompt import classify
from firehose.generation.sampling import Sampling
from firehose.generation.suggest import suggest
from small_writers import NAMES, PROMPT, VOCABULARY, prompt_tokens, trained


def test_who_is_unknown_gets_the_text_of_the_population() -> None:
    model = trained()
    assert model.knows("user1") and not model.knows("stranger") and not model.knows(None)
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


def test_pieces_that_fit_some_letters_are_found_in_their_order() -> None:
    pieces = classify(VOCABULARY)
    for letters in (b"a", b" ", b" the", b" hom", b"e", b" m", b"\xc3", b" them and us", b"zq"):
        plain = [each.startswith(letters) or letters.startswith(each) for each in pieces.spelling]
        expected = [one and bool(each) for one, each in zip(plain, pieces.spelling, strict=True)]
        assert pieces.fitting(letters).tolist() == expected
