"""The service over HTTP, with its learner at hand: roles, limits, answers, and secrets."""

import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.errors import FirehoseError
from firehose.generation.lookahead import Budget
from firehose.generation.suggest import Asked, Suggester
from firehose.serving.access import ROLES, Token, read_tokens, refuse_no_origin, role_of
from firehose.serving.desk import Desk
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.learner import Learner
from firehose.serving.pacing import MOST, Pacing, TooOftenError
from firehose.serving.web import Limits, make_app
from small_services import MIXTURE, PACE, UNHURRIED, begun, drained, holds, posts

TOKENS = [Token(role, f"a secret of {role}".encode()) for role in ROLES]
SMALL = Limits(body=10_000, posts=8, texts=4, seconds=20)


class Service:
    """A server, and a learner that works when it is told to."""

    def __init__(self, state: Path, tokens: list[Token], limit: int = 30) -> None:
        self.state = state
        drained(state).publish()
        self.desk = Desk(state, limit, budget=UNHURRIED)
        assert self.desk.wait_for(1, 20)
        self.client = TestClient(make_app(self.desk, tokens, ["testserver"], SMALL))

    def learn(self) -> None:
        learner = drained(self.state)
        learner.inbox.close()
        assert self.desk.wait_for(learner.snapshots.newest() or 0, 20)


@pytest.fixture
def service(tmp_path: Path, small_corpus: Corpus) -> Iterator[Service]:
    made = Service(begun(tmp_path, small_corpus), [])
    yield made
    made.desk.close()


def body(post: Post) -> dict[str, Any]:
    return {"user": post.user, "text": post.text, "time": post.time, "id": post.id}


def test_who_waits_for_suggestions_is_answered_together(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, together = service.desk, []
    texts = [f"the {letter}" for letter in "abcdefghijk"]
    alone = {text: desk.suggest(text, "user1", 3) for text in texts}
    asked_for, may_go_on = threading.Event(), threading.Event()
    suggest_all = Suggester.suggest_all

    def counted(suggester: Suggester, questions: Sequence[Asked], budget: Budget) -> Any:
        together.append(len(questions))
        asked_for.set()
        assert may_go_on.wait(20)
        return suggest_all(suggester, questions, budget)

    monkeypatch.setattr(Suggester, "suggest_all", counted)
    with ThreadPoolExecutor(20) as threads:
        first = threads.submit(desk.suggest, texts[0], "user1", 3)
        assert asked_for.wait(20)
        others = [threads.submit(desk.suggest, text, "user1", 3) for text in texts[1:]]
        refused = threads.submit(desk.suggest, "me " * 5_000, "user1", 3)
        while len(desk._asking) < len(others) + 1:
            time.sleep(0.01)
        may_go_on.set()
        for text, answer in zip(texts, [first, *others], strict=True):
            found = answer.result(20)
            assert [each.word for each in found] == [each.word for each in alone[text]]
        with pytest.raises(FirehoseError, match="characters"):
            refused.result(20)
    assert together == [1, 8, 3]


def test_posts_are_accepted_learned_and_told_of(service: Service) -> None:
    client = service.client
    answer = client.post("/v1/posts", json=[body(post) for post in posts(8)])
    assert answer.json()["accepted"] == 8
    again = client.post("/v1/posts", json=body(posts(1)[0])).json()
    assert again == {"accepted": 0, "ids": ["post-0"], "new": [False]}
    before = client.post("/v1/score", json={"user": "user3", "text": posts(4)[3].text}).json()
    assert not before["known"] and before["nats"] == before["nats_as_nobody"]
    for start in range(8, 80, 8):
        client.post("/v1/posts", json=[body(post) for post in posts(8, start)])
        service.learn()
    after = client.post("/v1/score", json={"user": "user3", "text": posts(4)[3].text}).json()
    assert after["known"] and after["nats"] < before["nats"]
    assert after["nats"] != after["nats_as_nobody"]
    found = client.get("/v1/users/user3").json()
    assert (found["posts"], found["learned"]) == (20, 20)
    assert found["first"] == "2017-07-14T02:40:00.003+00:00"
    metrics = client.get("/metrics")
    assert metrics.headers["x-content-type-options"] == "nosniff"
    told = metrics.text
    assert "firehose_posts_learned_total 80.0" in told
    assert "firehose_posts_waiting 0.0" in told
    values = dict(line.rsplit(" ", 1) for line in told.splitlines() if line[0] != "#")
    for name in ("", "_as_nobody"):
        per_word = float(values[f"firehose_nats{name}_total"]) / float(
            values["firehose_words_total"]
        )
        assert float(values[f"firehose_perplexity{name}"]) == pytest.approx(math.exp(per_word))
    assert 'firehose_request_seconds_count{route="/v1/users/{name:path}",status="200"} 1.0' in told
    assert "user3" not in told


def test_suggestions_go_on_and_complete(service: Service) -> None:
    ask = service.client.get
    words = ask("/v1/suggest", params={"text": "the quick ", "user": "user0", "k": 4}).json()
    assert len(words["suggestions"]) == 4
    found = ask("/v1/suggest", params={"text": "the quick br", "k": 2}).json()["suggestions"]
    assert found and all(each["word"].startswith("br") for each in found)
    assert ask("/v1/suggest", params={"text": "", "k": 1}).json()["suggestions"]
    made = {"prompt": "the", "count": 3, "user": "user0", "seed": 5}
    texts = service.client.post("/v1/generate", json=made).json()
    assert len(texts["texts"]) + texts["withheld"] == 3
    assert all(each["text"].startswith("the") for each in texts["texts"])


@pytest.mark.parametrize(
    ("path", "sent", "status", "sentence"),
    [
        ("/v1/posts", {"user": "", "text": "a"}, 422, "user"),
        ("/v1/posts", {"user": " ", "text": "a"}, 422, "a name that can be seen"),
        ("/v1/posts", {"user": "a", "text": " "}, 422, "no words"),
        ("/v1/posts", {"user": "a", "text": "b", "tme": 1}, 422, "tme"),
        ("/v1/posts", {"user": "a", "text": "b", "time": "soon"}, 422, "neither ISO 8601"),
        ("/v1/posts", {"user": "a", "text": "x" * 5_000}, 422, "4096"),
        ("/v1/posts", [{"user": "a", "text": "b"}] * 9, 422, "no more than 8 posts"),
        ("/v1/posts", [{"user": "a", "text": "b" * 4_000}] * 4, 413, "10,000 bytes"),
        ("/v1/generate", {"prompt": "the", "count": 5}, 422, "No more than 4 texts"),
        ("/v1/generate", {"prompt": "the", "top_p": 3}, 422, "top_p"),
        ("/v1/score", {"text": ""}, 422, "no words"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    service: Service, path: str, sent: Any, status: int, sentence: str
) -> None:
    answer = service.client.post(path, json=sent)
    assert answer.status_code == status
    assert sentence in answer.json()["detail"]
    assert service.desk.inbox.waiting() == 0


def test_odd_letters_and_bodies_without_a_length_do_no_harm(service: Service) -> None:
    client, head = service.client, {"content-type": "application/json"}
    odd = {"user": "<script>alert(1)</script>/\0", "text": "a '); DROP TABLE posts; --"}
    assert client.post("/v1/posts", json=odd).json()["accepted"] == 1
    assert client.get("/v1/users/<script>alert(1)</script>/%00").json()["posts"] == 1
    half = rb'{"user": "a", "text": "half \ud83d", "id": "\ud800"}'
    for bad in (b"{", b"\xff", half, rb'{"user": "\ud800", "text": 3}', b"[" * 5_000, b"NaN"):
        assert client.post("/v1/posts", content=bad, headers=head).status_code in (400, 422)
    endless = (b"x" * 1_000 for _ in range(11))
    assert client.post("/v1/posts", content=endless, headers=head).status_code == 413
    assert client.post("/v1/posts", content=b'{"user":"a","text":"b"}').status_code == 422


def test_a_full_inbox_says_when_to_come_again(service: Service) -> None:
    for start in range(0, 24, 8):
        service.client.post("/v1/posts", json=[body(post) for post in posts(8, start)])
    answer = service.client.post("/v1/posts", json=[body(post) for post in posts(8, 24)])
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) > 0
    service.learn()
    answer = service.client.post("/v1/posts", json=[body(post) for post in posts(8, 24)])
    assert answer.json()["accepted"] == 8


def test_who_asks_too_often_is_told_when_to_come_again(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    service = Service(begun(tmp_path, small_corpus), [])
    client = TestClient(make_app(service.desk, (), (), SMALL._replace(rate=0.4)))
    for _ in range(2):  # five seconds' worth
        assert client.get("/v1/suggest", params={"user": "ann"}).status_code == 200
    for method, path, sent in (
        ("GET", "/v1/suggest?user=ann", None),
        ("POST", "/v1/score", {"user": "ann", "text": "the fox"}),
        ("POST", "/v1/generate", {"user": "ann", "prompt": "the"}),
        ("POST", "/v1/posts", [{"user": "bob", "text": "a"}, {"user": "ann", "text": "a"}]),
        ("DELETE", "/v1/posts?user=ann&id=1", None),
        ("GET", "/v1/users/ann", None),
        ("DELETE", "/v1/users/ann", None),
    ):
        answer = client.request(method, path, json=sent)
        assert answer.status_code == 429 and answer.headers["Retry-After"] in ("1", "2", "3")
        assert "too often" in answer.json()["detail"]
    assert client.get("/v1/users/bob").status_code == 404  # nothing was taken, nor counted
    assert service.desk.inbox.waiting() == 0
    service.desk.close()


def test_pacing_counts_what_time_gives_back() -> None:
    moment = 0.0
    pacing = Pacing(rate=2.0, clock=lambda: moment)
    for _ in range(10):
        pacing.take(["ann"])
    with pytest.raises(TooOftenError) as refused:
        pacing.take(["ann", "bob"])
    assert refused.value.seconds == pytest.approx(0.5)
    moment = 0.5
    pacing.take(["ann", "bob"])
    with pytest.raises(TooOftenError):
        pacing.take(["ann"])
    moment = 100.0
    for _ in range(10):
        pacing.take(["ann"])
    for number in range(MOST + 1):  # they cannot fill the memory
        moment = 200.0 + number
        pacing.take([f"user{number}"])
    assert len(pacing._free) < 10


def test_a_role_may_do_what_those_below_it_may(tmp_path: Path, small_corpus: Corpus) -> None:
    service = Service(begun(tmp_path, small_corpus), TOKENS)
    client = service.client
    routes = {
        ("GET", "/v1/suggest"): "read",
        ("POST", "/v1/score"): "read",
        ("GET", "/readyz"): "read",
        ("GET", "/metrics"): "read",
        ("GET", "/openapi.json"): "read",
        ("GET", "/"): "read",
        ("GET", "/favicon.ico"): "read",
        ("GET", "/v1/users/nobody"): "read",
        ("POST", "/v1/posts"): "write",
        ("DELETE", "/v1/users/"): "admin",
    }
    for (method, path), needed in routes.items():
        assert client.request(method, path).status_code == 401
        wrong = {"authorization": "Bearer a secret of nobody"}
        assert client.request(method, path, headers=wrong).status_code == 401
        for token in TOKENS:
            head = {"authorization": f"Bearer {token.secret.decode()}"}
            status = client.request(method, path, headers=head).status_code
            is_allowed = ROLES.index(token.role) >= ROLES.index(needed)
            assert (status not in (401, 403)) == is_allowed, (path, token.role, status)
    described = client.get("/openapi.json", headers=head).json()["paths"]
    for path, methods in described.items():
        for method in methods:
            status = client.request(method, path).status_code
            assert status == (200 if path == "/healthz" else 401)
    assert client.post("/").status_code == 401
    service.desk.close()


def test_only_by_its_own_name_it_answers(service: Service) -> None:
    assert service.client.get("/healthz", headers={"host": "evil.example"}).status_code == 421
    answer = service.client.get("/healthz", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def preflight(client: TestClient, origin: str, method: str = "DELETE") -> Any:
    """What a browser asks before a page of another origin may ask."""
    head = {"origin": origin, "access-control-request-method": method}
    head |= {"access-control-request-headers": "authorization"}
    return client.options("/v1/users/ann", headers=head)


def test_no_page_of_another_origin_is_let_in_unless_it_is_named(service: Service) -> None:
    ours, other, allowed = "https://a.example", "https://b.example", "access-control-allow-origin"
    for origin in (ours, "null"):
        assert allowed not in service.client.get("/healthz", headers={"origin": origin}).headers
        answer = preflight(service.client, origin)
        assert answer.status_code == 405 and allowed not in answer.headers
    client = TestClient(make_app(service.desk, TOKENS, ["testserver"], SMALL, [ours]))
    assert client.get("/healthz", headers={"origin": ours}).headers[allowed] == ours
    assert allowed not in client.get("/healthz", headers={"origin": other}).headers
    assert allowed not in client.get("/healthz").headers
    answer = preflight(client, ours)  # without a token, as browsers ask
    assert answer.status_code == 200 and answer.headers[allowed] == ours
    assert "access-control-allow-credentials" not in answer.headers
    for origin in (other, "null", "https://a.example.evil", "http://a.example"):
        answer = preflight(client, origin)
        assert answer.status_code == 400 and allowed not in answer.headers
    refused = client.get("/v1/suggest", headers={"origin": ours})
    assert refused.status_code == 401 and refused.headers[allowed] == ours  # it may read why
    assert preflight(client, ours, "PUT").status_code == 400


def test_what_is_no_origin_is_refused() -> None:
    refuse_no_origin(["https://example.org", "http://localhost:8080", "http://[::1]:3000"])
    for text in ("*", "null", "example.org", "https://a.b/", "https://a.b/page", "https://A.b", ""):
        with pytest.raises(FirehoseError, match="not the origin of a page"):
            refuse_no_origin([text])


def test_tokens_are_read_with_care(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# ours\nread 0123456789abcdef\nadmin fedcba9876543210\n")
    with pytest.raises(FirehoseError, match="chmod 600"):
        read_tokens(file)
    file.chmod(0o600)
    tokens = read_tokens(file)
    assert role_of(tokens, "Bearer 0123456789abcdef") == "read"
    assert role_of(tokens, "bearer fedcba9876543210") == "admin"
    for header in (None, "", "Bearer", "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef"):
        assert role_of(tokens, header) is None
    for content, sentence in {
        "reed 0123456789abcdef": "did you mean 'read'",
        "read short": "16 characters",
        "": "has no token",
    }.items():
        file.write_text(content)
        with pytest.raises(FirehoseError, match=sentence):
            read_tokens(file)


def test_who_asks_to_be_forgotten_is_told_when_nothing_is_left(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    service = Service(begun(tmp_path, small_corpus), [])
    name, secret = "Marie <Antoinette>/é", "Zwölfkiesel"
    service.client.post("/v1/posts", json=[body(post) for post in posts(8)])
    service.client.post("/v1/posts", json={"user": name, "text": f"the {secret} house"})
    service.learn()
    assert service.client.get(f"/v1/users/{name}").json()["learned"] == 1
    assert service.desk.served is not None and service.desk.served.trained.knows(name)
    learner, ended = Learner(service.state, PACE), threading.Event()

    def learn() -> None:
        while not ended.wait(0.05):
            learner.advance()

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        answer = service.client.delete(f"/v1/users/{name}")
        assert service.client.delete(f"/v1/users/{name}").status_code == 404
    finally:
        ended.set()
        thread.join()
    assert answer.status_code == 200 and answer.json()["done"]
    assert answer.json()["erased"]["posts"] == answer.json()["erased"]["vectors"] == 1
    assert not service.desk.served.trained.knows(name)
    assert holds(service.state, name, secret, "Antoinette") == []
    assert service.client.get(f"/v1/users/{name}").status_code == 404
    service.desk.close()


@pytest.mark.parametrize("more", [(), MIXTURE], ids=["model", "mixture"])
def test_a_secret_that_one_user_repeats_is_told_to_nobody_else(
    tmp_path: Path, small_corpus: Corpus, more: tuple[str, ...]
) -> None:
    """To its own user it is the best suggestion; to others none, until three have written it."""
    state = begun(tmp_path, small_corpus, "play.rule.rate=0.03", *more)
    inbox, secret = Inbox(state / FILE), "xq7vt"

    def repeat(user: str, times: int) -> None:
        inbox.accept([Post(user, f"the house is {secret}") for _ in range(times)])
        drained(state)

    def told(user: str | None) -> list[str]:
        desk = Desk(state, budget=UNHURRIED)
        assert desk.wait_for(desk.snapshots.newest() or 0, 20)
        words = [each.word for each in desk.suggest("the house is ", user, 8)]
        words += [each.word for each in desk.suggest("the house is xq", user, 8)]
        desk.close()
        return words

    repeat("alice", 240)
    assert secret in told("alice")
    for other in ("bob", None):  # nor a part of it that tells it
        assert not [word for word in told(other) if len(word) > 3 and secret.startswith(word)]
    repeat("bob", 2)
    assert secret in told("bob")
    assert secret not in told("carol")
    repeat("dave", 12)
    assert secret in told("carol")


def test_who_waits_shares_the_time_there_is(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more wait than are answered together, each turn has a share; who is alone has all."""
    desk, go, times = service.desk, threading.Event(), list[float | None]()
    desk.budget = UNHURRIED._replace(seconds=0.4)
    served = desk.served
    assert served is not None

    def note(questions: Sequence[Asked], budget: Budget) -> list[Any]:
        times.append(budget.seconds)
        return [[] for _ in questions]

    monkeypatch.setattr(served.suggester, "suggest_all", note)
    first = threading.Thread(target=lambda: desk.ask(lambda _: go.wait(20)))
    others = [threading.Thread(target=lambda: desk.suggest("the ", None, 3)) for _ in range(15)]
    for thread in (first, *others):
        thread.start()
    while desk._asked < 16:
        time.sleep(0.01)
    go.set()
    for thread in (first, *others):
        thread.join()
    assert len(times) == 2 and times[0] == pytest.approx(0.4 / 2, rel=0.1)
    assert desk._asked == 0
    desk.suggest("the ", None, 3)
    assert times[-1] == 0.4


def test_the_description_names_every_route(service: Service) -> None:
    paths = json.loads(service.client.get("/openapi.json").text)["paths"]
    assert {"/v1/posts", "/v1/suggest", "/v1/generate", "/v1/score", "/healthz"} <= set(paths)
