"""The page in a real browser: Debian's chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.serving.access import Token
from firehose.serving.inbox import FILE, Inbox
from small_services import MIXTURE, begun, holds, live, posts

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
SECONDS = 60_000  # milliseconds that something may take on a busy machine
EVIL = "<script>alert(1)</script>"

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the page is not tested: pip install playwright"
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="the page is not tested: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    # Whatever has another name than this machine's own leads nowhere.
    nowhere = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu", nowhere]
        found = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory, small_corpus: Corpus) -> Path:
    """A service that knows two users, who end the same beginning with different words."""
    folder = begun(tmp_path_factory.mktemp("page"), small_corpus, *MIXTURE)
    inbox = Inbox(folder / FILE)
    for number in range(30):
        inbox.accept([Post("ann", "a lazy fox"), Post("bob", "a lazy dog"), *posts(1, number)])
    inbox.close()
    return folder


@pytest.fixture(scope="module")
def address(state: Path) -> Iterator[str]:
    with live(state) as found:
        yield found


@pytest.fixture
def page(browser: "Browser", address: str) -> Iterator["Page"]:
    """A page that asks nobody but its service, and on which nothing fails."""
    found = browser.new_page()
    found.set_default_timeout(SECONDS)
    wrong: list[str] = []
    asked: list[str] = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("dialog", lambda dialog: wrong.append(dialog.message))
    found.on("request", lambda request: asked.append(request.url))
    found.goto(address)
    yield found
    found.close()
    assert wrong == []
    assert len(asked) > 2
    assert [url for url in asked if not url.startswith((f"{address}/", "data:"))] == []


def write(page: "Page", user: str, text: str) -> None:
    page.fill("#user", user)
    page.wait_for_function("name => $('person-title').textContent === name", arg=user)
    page.fill("#text", "")
    page.type("#text", text)


def first(page: "Page", word: str) -> None:
    """Wait until a word is the first that is suggested."""
    playwright.expect(page.locator("#choices b").first).to_have_text(word, timeout=SECONDS)


def count(page: "Page") -> int:
    page.wait_for_function("$('n-posts').textContent !== '–'")
    return int(page.inner_text("#n-posts").replace(",", ""))


def test_keys_take_suggestions_which_are_the_users_own(page: "Page") -> None:
    write(page, "ann", "a lazy ")
    first(page, "fox")
    page.press("#text", "Tab")
    assert page.input_value("#text") == "a lazy fox "
    write(page, "bob", "a lazy ")
    first(page, "dog")
    write(page, "bob", "a lazy d")
    first(page, "dog")
    page.press("#text", "1")
    assert page.input_value("#text") == "a lazy dog "
    page.wait_for_selector("#choices button")
    second = page.inner_text("#choices li:nth-child(2) b")
    page.press("#text", "2")
    assert page.input_value("#text") == f"a lazy dog {second} "
    page.wait_for_selector("#choices button")
    page.press("#text", "Escape")
    page.type("#text", "12")
    assert page.input_value("#text").endswith(" 12")
    page.press("#text", "Tab")
    assert page.evaluate("document.activeElement.id") == "post"


def test_a_post_is_counted_learned_and_forgotten(page: "Page", state: Path) -> None:
    write(page, "zoe-of-the-page", "nobody is looking")
    before = count(page)
    page.press("#text", "Enter")
    playwright.expect(page.locator("#said")).to_contain_text("Learned", timeout=SECONDS)
    assert count(page) == before + 1
    assert page.input_value("#text") == ""
    assert page.inner_text("#p-posts") == "1"
    last = page.locator("#posts li", has_text="zoe-of-the-page")
    playwright.expect(last.locator("p")).to_have_text("nobody is looking", timeout=SECONDS)
    assert len(last.locator(".w").all()) == 3
    page.click("#forget")
    page.click("#sure button[value=yes]")
    playwright.expect(page.locator("#said")).to_contain_text("Forgotten: ", timeout=SECONDS)
    playwright.expect(page.locator("#unknown")).to_be_visible(timeout=SECONDS)
    playwright.expect(last).to_have_count(0, timeout=SECONDS)
    assert holds(state, "zoe-of-the-page") == []


def test_the_name_of_a_user_is_a_name_and_nothing_else(page: "Page") -> None:
    write(page, EVIL, "the lazy dog")
    page.click("#post")
    playwright.expect(page.locator("#said")).to_contain_text("Learned", timeout=SECONDS)
    shown = page.locator("#posts .name", has_text=EVIL)
    playwright.expect(shown).to_have_count(1, timeout=SECONDS)
    page.reload()
    assert page.input_value("#user") == EVIL
    playwright.expect(shown).to_have_count(1, timeout=SECONDS)
    playwright.expect(page.locator("#person-title")).to_have_text(EVIL, timeout=SECONDS)
    assert page.evaluate("document.scripts.length") == 1
    # Even a script that came in would not be run, nor reach another machine.
    run = "(() => { const s = document.createElement('script'); s.textContent = 'window.evil = 1';"
    assert page.evaluate(f"{run} document.body.append(s); return window.evil; }})()") is None
    elsewhere = "fetch('http://localhost:9/').then(() => 'in', error => error.name)"
    assert page.evaluate(elsewhere) == "TypeError"


def test_a_token_is_asked_for_and_kept_nowhere(
    browser: "Browser", tmp_path: Path, small_corpus: Corpus
) -> None:
    with live(begun(tmp_path, small_corpus), [Token("write", b"a token of writers")]) as address:
        page = browser.new_page()
        answer: Any = page.goto(address)
        assert answer.status == 401
        for token in ("not a token at all", "a token of writers"):
            page.wait_for_selector("#ask[open]")
            page.fill("#token", token)
            page.press("#token", "Enter")
        write(page, "ann", "the ")
        page.wait_for_selector("#choices button")
        assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
        assert page.context.cookies() == []
        page.click("#post")
        playwright.expect(page.locator("#said")).to_contain_text("Learned", timeout=SECONDS)
        page.click("#forget")
        page.click("#sure button[value=yes]")
        playwright.expect(page.locator("#said")).to_contain_text("role admin", timeout=SECONDS)
        page.close()
