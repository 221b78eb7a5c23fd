"""What is in the way of a good first number."""

from pathlib import Path

import pytest

from conftest import prepared, simple_posts
from firehose.data import advice as module
from firehose.data.advice import advice, unpretrained
from firehose.data.corpus import Corpus


def test_what_is_missing_is_said_with_a_remedy(tmp_path: Path) -> None:
    posts = [
        post._replace(time=post.time + 9 * 86_400_000 * n) for n, post in enumerate(simple_posts())
    ]
    nothing, few = advice(prepared(tmp_path, posts))
    assert "nothing to pretrain on" in nothing and "54 posts to learn from are few" in few
    date = nothing.split("--pretrain-before ")[1].split()[0]
    (tmp_path / "again").mkdir()
    again = prepared(
        tmp_path / "again", posts, split={"pretrain_before": date}, clean={"min_posts": 8}
    )
    share = again.manifest.posts["pretrain"] / len(posts)
    assert 0.1 < share < 0.3
    assert not any("pretrain" in sentence for sentence in advice(again))
    assert f"`firehose pretrain {again.path} --out pretrained`" in unpretrained(again)


def test_posts_that_are_cut_come_with_a_length_that_covers_them(
    small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any("tokens" in sentence for sentence in advice(small_corpus))
    train = small_corpus.splits["train"]
    limit = train.tokens_covering(0.5) - 1
    monkeypatch.setattr(module, "MAX_TOKENS", limit)
    (told,) = [sentence for sentence in advice(small_corpus) if "tokens" in sentence]
    assert f"first {limit} tokens" in told and f"max_tokens={train.tokens_covering()}," in told
