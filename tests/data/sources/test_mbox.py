"""Mailing lists: who wrote, when, about what, and what they said first."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from firehose.data.plan import make_plan
from firehose.data.post import Post, Skip
from firehose.data.sources.mbox import Mbox, first_paragraph

MAILS = """From ann@example.org  Mon Sep  1 10:00:00 2014
From: Ann <Ann@Example.org>
Date: Mon, 1 Sep 2014 10:00:00 +0200
Subject: [users] =?utf-8?q?R=C3=A4der?= turn
Message-ID: <1@example.org>

They turn, and
nobody knows why.

Nor do I.
From here on it is still the same paragraph of the same mail.

From bob at example.org  Mon Sep  1 11:00:00 2014
From: bob at example.org (Bob B.)
Date: Mon, 1 Sep 2014 11:00:00 +0000
Subject: Re: [users] Wheels turn

On Mon, 1 Sep 2014, Ann
wrote:
> They turn, and
> nobody knows why.

I know.
--
Bob

From x@y  Mon Sep  1 12:00:00 2014
From: x@y
Date: no date
Subject: late

text
"""


def records(path: Path, **settings: Any) -> list[Post | Skip]:
    source = make_plan(path, source={"kind": "mbox", **settings}).source
    return [record for shard in source.shards() for record in source.records(shard)]


@pytest.mark.parametrize("name", ["2014-September.txt", "list.mbox", "list.mbox.gz"])
def test_sender_date_subject_and_first_own_paragraph(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(MAILS.encode()) if name.endswith("gz") else MAILS.encode())
    first, second, third = records(path, authors="plain")
    assert first == Post(
        "ann@example.org",
        "Räder turn They turn, and nobody knows why.",
        1_409_558_400_000,
        "<1@example.org>",
    )
    assert isinstance(second, Post)
    assert second[:3] == ("bob at example.org", "I know.", 1_409_569_200_000)
    assert third == Skip("no time", f"{path}:27")


def test_addresses_are_hashed_with_a_key(tmp_path: Path) -> None:
    path = tmp_path / "list.mbox"
    path.write_text(MAILS)
    (one, *_), (other, *_) = records(path), records(path, key="secret")
    assert isinstance(one, Post) and isinstance(other, Post)
    assert "@" not in one.user and one.user != other.user and one[1:] == other[1:]
    assert make_plan(path).source.kind == "mbox" and Mbox.recognises(tmp_path)


def test_a_message_that_is_too_long_is_counted_and_the_next_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.mbox"
    path.write_text(MAILS.replace("Nor do I.", "Nor do I. " * 200))
    first, second, _ = records(path, max_record_bytes=1_000)
    assert first == Skip("too long", f"{path}:1") and isinstance(second, Post)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("> quoted\n\nmine\ngoes on\n\nnot this", "mine goes on"),
        ("Ann wrote:\n> quoted\nmine\n> more", "mine"),
        ("On Monday,\nAnn wrote:\n> quoted\n\nmine", "mine"),
        ("AB> quoted\nmine", "mine"),
        ("> all\n> quoted\n-- \nAnn", ""),
        ("diff --git a b\n+x", ""),
        ("", ""),
    ],
)
def test_what_is_quoted_is_not_the_senders(text: str, own: str) -> None:
    assert first_paragraph(text) == own
