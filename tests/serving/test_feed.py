"""What those who watch are shown: costs of words, the curve, the last posts, as they happen."""

import json
import sqlite3
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.serving.costs import MOST_TOKENS, SHOWN, word_costs
from firehose.serving.desk import Desk
from firehose.serving.feed import Feed
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.page import page
from small_models import trained_on
from small_services import MIXTURE, begun, drained, live, posts


def test_the_words_of_a_post_cost_what_it_costs(small_corpus: Corpus) -> None:
    trained = trained_on(small_corpus)
    some = [*posts(5), Post("user1", "dog " * 90), Post("user2", "x" * 200)]
    batch = trained.encoder.encode(some, trained.users, grow=False)
    found = word_costs(trained.model, trained.encoder.vocabulary, batch)
    paid = trained.model.pay(batch).nats
    for post, costs, total in zip(some[:5], found[:5], paid[:5], strict=True):
        assert [word for word, _ in costs] == [*post.text.split(), ""]
        assert sum(nats for _, nats in costs) == pytest.approx(total)
        # By hand: the second word is what is paid more for two words than for one.
        pieces = [trained.encoder.prompt(" ".join(post.text.split()[:n])) for n in (1, 2)]
        outlook = trained.model.outlook(batch.select(np.array([some.index(post)]))).log_prob
        assert costs[1][1] == pytest.approx(-outlook[len(pieces[0]) - 1 : len(pieces[1]) - 1].sum())
    for costs, total in zip(found[5:], paid[5:], strict=True):
        assert 0 < sum(nats for _, nats in costs) < total
        assert sum(len(word) for word, _ in costs) < 4 * MOST_TOKENS


def test_those_who_watch_see_rounds_and_the_last_posts(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    state = begun(tmp_path, small_corpus, *MIXTURE)
    inbox = Inbox(state / FILE)
    inbox.accept(posts(20))
    drained(state).publish()
    desk = Desk(state)
    assert desk.wait_for(1, 20)
    feed = Feed(desk)
    told = feed.numbers()
    assert (told["accepted"], told["learned"], told["users"], told["rounds"]) == (20, 20, 4, 4)
    assert told["rate"] == 2.0 and not told["learning"]
    rounds = feed.rounds(0)
    assert [each[:2] for each in rounds] == [[1, 6], [2, 6], [3, 6], [4, 2]]
    assert sum(each[3] for each in rounds) == pytest.approx(told["nats"])
    assert feed.rounds(3) == rounds[3:] and feed.rounds(4) == []
    shown = feed.posts()
    assert [post["seq"] for post in shown[: SHOWN + 1]] == [20, 19, 18, 17, 16, 15, 14]
    for post in shown:
        assert sum(nats for _, nats in post["costs"]) == pytest.approx(post["nats"], abs=1e-3)
    desk.close()


def test_nobody_who_reads_waits_for_posts_to_be_on_disk(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    desk = Desk(begun(tmp_path, small_corpus))
    with ThreadPoolExecutor() as threads, desk.inbox.database.transaction():
        desk.inbox.database.run("DELETE FROM posts")  # as a post that is being accepted
        questions = [
            lambda: desk.book.is_private("word", "user1", 3),
            lambda: desk.book.person("user1"),
            lambda: Feed(desk).numbers()["accepted"],
        ]
        answers = [threads.submit(question) for question in questions]
        assert [answer.result(20) for answer in answers] == [False, None, 0]
    desk.close()


def test_many_rounds_are_added_up_to_a_curve(tmp_path: Path, small_corpus: Corpus) -> None:
    desk = Desk(begun(tmp_path, small_corpus))
    rows = [(number, number, 1, number % 7) for number in range(1, 1_000)]
    for row in rows:
        desk.inbox.database.run(
            "INSERT INTO rounds (number, last, posts, words, closed, played) VALUES (?,?,?,?,0,1)",
            *row,
        )
    found = Feed(desk).rounds(0)
    assert 150 < len(found) <= 240 and found[-1][0] == 999
    assert sum(each[2] for each in found) == sum(row[3] for row in rows)
    desk.close()


def test_events_begin_with_all_there_is_and_go_on_with_news(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    state = begun(tmp_path, small_corpus)
    Inbox(state / FILE).accept(posts(12))
    with live(state) as address, urllib.request.urlopen(f"{address}/v1/events") as events:
        assert events.headers["content-type"].startswith("text/event-stream")

        def hear() -> Any:
            line, end = events.readline(), events.readline()
            assert line.startswith(b"data: ") and end == b"\n"
            return json.loads(line[6:])

        news = hear()
        assert [each[0] for each in news["rounds"]] == [1, 2] and len(news["posts"]) == 12
        sent = json.dumps({"user": "zoe", "text": "the lazy dog"}).encode()
        head = {"content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{address}/v1/posts", sent, head)).close()
        while "rounds" not in (news := hear()):
            assert "posts" not in news
        assert news["rounds"][0][:2] == [3, 1] and news["posts"][0]["user"] == "zoe"


def test_the_page_may_run_its_own_script_and_load_nothing() -> None:
    content, headers = page()
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert b" style=" not in content and b" onclick=" not in content  # which it would not allow
    assert b'src="' not in content and b"innerHTML" not in content


def test_an_inbox_without_costs_of_words_gets_room_for_them(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / FILE)
    inbox.accept(posts(1))
    inbox.database.run("ALTER TABLE posts DROP COLUMN costs")
    inbox.database.run("PRAGMA user_version = 1")
    inbox.close()
    Inbox(tmp_path / FILE).close()
    with sqlite3.connect(tmp_path / FILE) as database:
        assert database.execute("SELECT text, costs FROM posts").fetchall() == [
            (posts(1)[0].text, None)
        ]
    database.close()
