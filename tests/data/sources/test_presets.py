"""Files as they come from Reddit, Hacker News and Stack Exchange, or by any name and format."""

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from firehose.data.plan import make_plan
from firehose.data.post import Post, Skip
from firehose.errors import FirehoseError


def records(path: Path | list[Path], **settings: Any) -> list[Post | Skip]:
    source = make_plan(path, **settings).source
    return [record for shard in source.shards() for record in source.records(shard)]


def jsonl(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


COMMENTS = jsonl(
    {"author": "ann", "created_utc": 1_538_000_000, "body": "a comment", "id": "x1"},
    {"author": "[deleted]", "created_utc": 1_538_000_001, "body": "of nobody", "id": "x2"},
    {"author": "bob", "created_utc": "1538000002", "body": "[removed]", "id": "x3"},
    {"author": "bob", "created_utc": 1_538_000_003, "title": "a submission", "id": "x4"},
)


@pytest.mark.parametrize("name", ["RC_2019-04.zst", "RC_2019-04", "comments.jsonl.zst"])
def test_a_dump_of_reddit_is_read_whatever_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(zstandard.ZstdCompressor().compress(COMMENTS))
    assert records(path, preset="reddit") == [
        Post("ann", "a comment", 1_538_000_000_000, "x1"),
        Skip("a user to leave out", "", expected=True),
        Skip("a text to leave out", "x3", expected=True),
        Post("bob", "a submission", 1_538_000_003_000, "x4"),
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_compression_is_seen_in_the_first_bytes(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "dump"
    path.write_bytes(pack(COMMENTS))
    assert [type(record) for record in records(path, preset="reddit")] == [Post, Skip, Skip, Post]


def test_items_of_hacker_news_lose_their_tags(tmp_path: Path) -> None:
    link = '<a href="https:&#x2F;&#x2F;a.io&#x2F;b" rel="nofollow">https:&#x2F;&#x2F;a.io…</a>'
    text = f"It&#x27;s <i>here</i>:<p>{link}"
    path = tmp_path / "items.jsonl"
    path.write_bytes(jsonl({"by": "pg", "time": 1_160_418_111, "text": text, "id": 15}))
    assert records(path, preset="hackernews") == [
        Post("pg", "It's here: https://a.io/b", 1_160_418_111_000, "15")
    ]


POSTS = """\ufeff<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" PostTypeId="1" CreationDate="2010-07-19T19:12:12.510" OwnerUserId="8" \
Body="&lt;p&gt;How do I &lt;b&gt;sort&lt;/b&gt;?&lt;/p&gt;&#xA;&lt;pre&gt;x&lt;/pre&gt;" />
  <row Id="2" CreationDate="2010-07-19T19:12:13.000" Body="&lt;p&gt;nobody's&lt;/p&gt;" />
  <row Id="3" cut
</posts>
"""
REPLIES = '<comments>\n  <row Id="1" UserId="8" Text="x &lt; y?" CreationDate="2010-07-20" />\n'


def test_dumps_of_stack_exchange(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").write_text(POSTS, encoding="utf-8")
    (tmp_path / "Comments.xml").write_text(REPLIES, encoding="utf-8")
    post, nobody, broken, comment = records(
        [tmp_path / "Posts.xml", tmp_path / "Comments.xml"], preset="stackexchange"
    )
    assert isinstance(post, Post) and isinstance(comment, Post)
    assert post[:3] == ("8", "How do I sort?", 1_279_566_732_510)
    assert comment[:2] == ("8", "x < y?") and comment.id != post.id
    assert nobody == Skip("no user", f"{tmp_path}/Posts.xml:4")
    assert broken == Skip("broken XML", f"{tmp_path}/Posts.xml:5")


def test_delimiter_and_format_are_settings(tmp_path: Path) -> None:
    path = tmp_path / "export.dat"
    path.write_text("user;time;text\nann;0;one, two\n")
    source = {"kind": "tabular", "format": "csv", "delimiter": ";"}
    (post,) = records(path, source=source)
    assert isinstance(post, Post) and post[:3] == ("ann", "one, two", 0)
    with pytest.raises(FirehoseError, match=r"Cannot tell what .*export\.dat is"):
        make_plan(path)


def test_users_to_leave_out_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,time,text\nann,0,one\nbot,0,two\n")
    first, second = records(path, source={"drop_users": ["bot"]})
    assert isinstance(first, Post) and first.user == "ann"
    assert second == Skip("a user to leave out", "", expected=True)


def test_settings_win_over_a_preset_and_unknown_ones_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(COMMENTS)
    plan = make_plan(path, preset="reddit", assignments=["source.columns.text=title"])
    assert plan.public()["source"]["columns"]["text"] == "title"
    assert plan.public()["source"]["columns"]["user"] == "author"
    with pytest.raises(FirehoseError, match="no preset 'redit': did you mean 'reddit'"):
        make_plan(path, preset="redit")
