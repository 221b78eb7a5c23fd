"""The inbox: durable, each post once, bounded, and without a trace of who was forgotten."""

import re
import sqlite3
from pathlib import Path

import pytest

from conftest import INLINE
from firehose.data.plan import make_plan
from firehose.data.post import Post
from firehose.data.prepare import prepare
from firehose.errors import FirehoseError
from firehose.serving.inbox import FullError, Inbox, Played, Round
from firehose.serving.people import Book

POSTS = [Post(f"user{n % 3}", f"the house of number {n}", 1_000 + n, str(n)) for n in range(12)]


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox.sqlite", limit=20)


def played(inbox: Inbox, closed: Round, cost: float = 2.0) -> Played:
    rows = inbox.posts_of(closed)
    ones = [1] * len(rows)
    costs = [cost] * len(rows)
    texts = [post.text.split() for _, post in rows]
    users = [post.user for _, post in rows]
    return Played([seq for seq, _ in rows], costs, [3.0] * len(rows), ones, texts, users)


def test_the_same_id_counts_once_for_each_user(inbox: Inbox) -> None:
    first = inbox.accept([POSTS[0], POSTS[0], Post("other", "a text", 5, "0")])
    assert first.is_new == [True, False, True]
    assert inbox.accept([POSTS[0]._replace(text="another text")]).is_new == [False]
    closed = inbox.close_round(10, 0)
    assert closed is not None
    assert [post.text for _, post in inbox.posts_of(closed)] == [POSTS[0].text, "a text"]


def test_who_gives_no_id_is_told_one_to_try_again_with(inbox: Inbox) -> None:
    (name,) = inbox.accept([Post("a", "b")]).ids
    assert inbox.accept([Post("a", "b", id=name)]).is_new == [False]
    assert inbox.accept([Post("a", "b")]).is_new == [True]


def test_a_full_inbox_takes_all_posts_or_none(inbox: Inbox) -> None:
    inbox.accept(POSTS)
    with pytest.raises(FullError, match="no room for 9 more"):
        inbox.accept([Post("a", str(n)) for n in range(9)])
    assert inbox.waiting() == 12
    closed = inbox.close_round(5, 0)
    assert closed is not None
    assert inbox.waiting() == 12  # until it was played
    inbox.record(1, played(inbox, closed))
    assert inbox.waiting() == 7
    inbox.accept([Post("a", str(n)) for n in range(9)])


def test_a_round_closes_when_it_is_full_or_a_post_is_old(inbox: Inbox) -> None:
    inbox.accept(POSTS[:7])
    assert inbox.close_round(5, 1_000) == Round(1, 0, 5)
    assert inbox.close_round(5, 1_000) is None
    assert inbox.close_round(5, 0) == Round(2, 5, 7)
    assert inbox.close_round(5, 0) is None
    assert inbox.round(1) == Round(1, 0, 5) and inbox.round(2) == Round(2, 5, 7)
    assert inbox.round(3) is None


def test_what_is_committed_is_there_for_another_connection(inbox: Inbox) -> None:
    inbox.accept(POSTS)
    inbox.close_round(5, 0)
    other = Inbox(inbox.database.path)
    assert other.waiting() == 12 and other.round(1) == Round(1, 0, 5)
    assert inbox.database.value("PRAGMA synchronous") == 2  # FULL
    assert inbox.database.value("PRAGMA journal_mode") == "wal"


def test_a_round_that_is_played_again_counts_once(inbox: Inbox) -> None:
    inbox.accept(POSTS)
    closed = inbox.close_round(6, 0)
    assert closed is not None
    inbox.record(1, played(inbox, closed))
    inbox.record(1, played(inbox, closed, cost=9.0))
    totals = Book(inbox.database).totals()
    assert (totals.learned, totals.waiting, totals.nats, totals.nobody) == (6, 6, 12.0, 18.0)
    person = Book(inbox.database).person("user0")
    assert person is not None
    assert (person.posts, person.learned, person.first, person.last) == (4, 2, 1_000, 1_009)
    assert inbox.database.value("SELECT count FROM heard WHERE word = 'house'") == 2


def test_no_number_is_given_twice(inbox: Inbox) -> None:
    """Else a post that comes after a deletion would be taken for one of an old round."""
    inbox.accept(POSTS[:3])
    inbox.close_round(3, 0)
    number = inbox.request("user2")
    (request,) = inbox.position(1)
    inbox.erase(request, {"vectors": 1})
    inbox.finish([request], 4)
    inbox.accept([Post("user2", "somebody new")])
    assert inbox.close_round(1, 0) == Round(2, 3, 4)
    done = inbox.find_request(number)
    assert done is not None and done.is_done and done.snapshot == 4
    assert done.erased == {"vectors": 1, "posts": 1, "words": 0}
    assert not inbox.has_requests()


def test_no_byte_is_left_of_who_is_forgotten(inbox: Inbox) -> None:
    """Enough posts to rearrange pages; other users' are all there afterwards."""
    inbox.limit = 10_000
    secret, name = "Zwölfkieselweg", "marie-antoinette"
    for start in range(0, 900, 90):
        posts = [Post(f"user{n % 7}", f"text {n} " * 20) for n in range(start, start + 90)]
        posts += [Post(name, f"{secret} {n} " * (n % 40 + 1)) for n in range(30)]
        inbox.accept(posts)
        while (closed := inbox.close_round(50, 0)) is not None:
            inbox.record(closed.number, played(inbox, closed))
    files = [secret.encode(), name.encode()]
    assert all(each in on_disk(inbox) for each in files)
    inbox.request(name)
    requests = inbox.position(99)
    for request in requests:
        inbox.erase(request, {})
    inbox.finish(requests, 1)
    assert not any(each in on_disk(inbox) for each in files)
    assert Book(inbox.database).person(name) is None
    assert inbox.database.value("SELECT count(*) FROM posts") == 900


def on_disk(inbox: Inbox) -> bytes:
    return b"".join(path.read_bytes() for path in inbox.database.path.parent.iterdir())


def test_a_post_that_waits_is_deleted_at_once_and_a_learned_one_when_it_can_be(
    inbox: Inbox,
) -> None:
    inbox.accept([Post("a", "first words", id="1"), Post("a", "second words", id="2")])
    closed = inbox.close_round(1, 0)
    assert closed is not None
    inbox.record(1, played(inbox, closed))
    inbox.request("a", "2")
    assert inbox.database.value("SELECT count(*) FROM posts") == 1
    inbox.request("a", "1")
    assert inbox.database.value("SELECT count(*) FROM posts") == 1
    assert inbox.learned_text("a", "1") == "first words"
    requests = inbox.position(1)
    inbox.erase(requests[1], {}, ["first", "words"])
    assert inbox.database.value("SELECT count(*) FROM posts") == 0
    assert inbox.database.value("SELECT count(*) FROM heard") == 0


def test_who_goes_leaves_no_post_that_waits(inbox: Inbox) -> None:
    """Nobody may ever learn here, and a corpus be made of what was heard."""
    inbox.accept(POSTS[:6])
    inbox.close_round(3, 0)
    inbox.request("user2")
    ids = [row[0] for row in inbox.database.rows("SELECT id FROM posts ORDER BY seq")]
    assert ids == ["0", "1", "2", "3", "4"]  # 2 is in a round, 5 is not
    (request,) = inbox.position(1)
    inbox.erase(request, {})
    inbox.finish([request], 1)
    done = inbox.find_request(request.number)
    assert done is not None and done.erased == {"posts": 2, "words": 0}


def test_a_word_is_private_until_enough_users_write_it(inbox: Inbox) -> None:
    book = Book(inbox.database)
    for number, user in enumerate("abc"):
        inbox.accept([Post(user, "xyzzy")])
        closed = inbox.close_round(1, 0)
        assert closed is not None
        inbox.record(number + 1, played(inbox, closed))
        assert book.is_private("xyzzy", "z", 3) == book.is_private("xyzzy", None, 3) == (number < 2)
        assert book.is_private("xyz", "z", 3) == (number < 2)  # a part of it tells it, too
        assert not book.is_private("xyzzy", user, 3)
        assert not book.is_private("xyz", user, 3)
    assert not book.is_private("unheard", "z", 3)


def test_words_are_typical_that_others_do_not_write(inbox: Inbox) -> None:
    inbox.accept([Post("a", "the cat sat"), Post("a", "the cat ran"), Post("b", "the the the")])
    closed = inbox.close_round(3, 0)
    assert closed is not None
    inbox.record(1, played(inbox, closed))
    assert Book(inbox.database).typical("a") == ["cat"]


def test_odd_texts_come_back(inbox: Inbox) -> None:
    """Half a surrogate pair cannot be stored; quotes, markup and zeros can."""
    texts = ["'); DROP TABLE posts; --", "<b>&amp;", "zero\0byte", "half \ud83d pair"]
    inbox.accept([Post(text, text) for text in texts])
    closed = inbox.close_round(9, 0)
    assert closed is not None
    found = [post.text for _, post in inbox.posts_of(closed)]
    assert found == [*texts[:3], "half \ufffd pair"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE things (name)")
    with pytest.raises(FirehoseError, match="not an inbox"):
        Inbox(tmp_path / "other.sqlite")
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(FirehoseError, match="Cannot open"):
        Inbox(tmp_path / "text")


def test_a_corpus_is_made_of_what_was_heard(inbox: Inbox, tmp_path: Path) -> None:
    inbox.limit = 1_000
    words = re.findall(r"\w+", "the quick brown fox jumps over a lazy dog while nobody is looking")
    for number in range(30):
        text = " ".join(words[(number + k) % 13] for k in range(7))
        inbox.accept([Post(f"user{u}", text, 1_400_000_000_000 + number) for u in range(2)])
    plan = make_plan([tmp_path / "inbox.sqlite"], clean={"languages": []})
    assert plan.source.kind == "inbox"
    corpus = prepare(plan, tmp_path / "corpus", INLINE).corpora[0]
    assert list(corpus.users) == ["user0", "user1"]
    assert sum(corpus.manifest.posts.values()) == 60
