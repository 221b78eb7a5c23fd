"""The language of Nature: its words, its grammar, and the words of each topic in each era.

A post is a chain of word classes. Words of the closed classes have the same probabilities for
everyone; those of words of the topical classes depend on the post's topic, the era and the user.
Every word is one token of NLTK's TweetTokenizer, alone and between all neighbours that the
grammar allows. So a full stop never follows a full stop (spaced dots would be one ellipsis), there
are no numbers (spaced numbers would be a telephone number), and no emoji of several code points.
"""

import tomllib
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.data.clean import URL

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CLOSED = {name: words.split() for name, words in _DATA["closed"].items()} | {"url": [URL]}
_TOPICS = list(_DATA["topics"].values())
OPEN = {  # word i of a class belongs to topic i % 12
    name: list(chain(*zip(*(topic[name].split() for topic in _TOPICS), strict=True)))
    for name in _TOPICS[0]
}

CLASSES = (*CLOSED, "noun", "verb", "adjective", "hashtag", "mention", "emoji")
TOPICAL = len(CLOSED)  # this class and those after it are topical
URL_CLASS = CLASSES.index("url")
MENTION_CLASS = CLASSES.index("mention")
END = len(CLASSES)  # before the first word of a post, and after the last
SHARES = {"verb": 0.12, "adjective": 0.1, "hashtag": 0.12, "mention": 0.1, "emoji": 0.025}

SYLLABLES = [c + v for c in (*"bdfgklmnprstvz", "ch", "sh") for v in "aeiou"]


class Language(NamedTuple):
    """The parameters of the language that all users share."""

    words: tuple[str, ...]  # class by class
    class_of: NDArray[np.int64]  # [word]
    start: NDArray[np.int64]  # [class + 1]: the first word of each class
    transition: NDArray[np.float64]  # [class before, class after]
    closed: NDArray[np.float64]  # [word of a closed class]: probability within its class
    topical: NDArray[np.float64]  # [era, topic, word of a topical class]: likewise


def grammar() -> NDArray[np.float64]:
    """The probabilities ``[class before, class after]``; END stands for both ends of a post."""
    index = {name: i for i, name in enumerate((*CLASSES, "end"))}
    matrix = np.zeros((END + 1, END + 1))
    for before, parts in _DATA["grammar"].items():
        fields = parts.split()
        for after, part in zip(fields[::2], fields[1::2], strict=True):
            matrix[index[before], index[after]] = float(part)
    return np.asarray(matrix / matrix.sum(1, keepdims=True))


def handles(users: int, generator: np.random.Generator) -> list[str]:
    """Different names, one for each user."""
    draws = generator.integers(0, 1 << 30, size=(users, 5)).tolist()
    names: dict[str, None] = {}
    for user, (one, two, style, letter, number) in enumerate(draws):
        name = SYLLABLES[one % len(SYLLABLES)] + SYLLABLES[two % len(SYLLABLES)]
        if style % 4:
            name += ("", "_", "x")[style % 4 - 1] + "abcdefghjklmnprstvwz"[letter % 20]
        if style % 8 < 5:
            name += str(number % 100)
        names[name if name not in names else f"{name}_{user}"] = None
    return list(names)


def vocabulary(
    size: int, users: Sequence[str], generator: np.random.Generator
) -> list[Sequence[str]]:
    """``size`` different words, class by class; where real words are too few, made-up ones."""
    fill = _made_up(generator)
    wanted = {name: min(len(words), max(3, size // 80)) for name, words in CLOSED.items()}
    wanted |= {name: max(3, round(share * size)) for name, share in SHARES.items()}
    wanted["mention"] = min(wanted["mention"], len(users))
    wanted["emoji"] = min(wanted["emoji"], len(OPEN["emoji"]))
    wanted["noun"] = size - sum(wanted.values())
    known = CLOSED | OPEN | {"mention": [f"@{user}" for user in users]}
    words: list[Sequence[str]] = []
    for name in CLASSES:
        chosen = known[name][: wanted[name]]
        mark = "#" if name == "hashtag" else ""
        words.append(chosen + [mark + next(fill) for _ in range(wanted[name] - len(chosen))])
    return words


def _made_up(generator: np.random.Generator) -> Iterator[str]:
    """Yield different pronounceable words that are not among the real ones."""
    seen = set(chain(*CLOSED.values(), *OPEN.values()))
    while True:
        count, *draws, last = generator.integers(0, 1 << 30, size=6).tolist()
        word = "".join(SYLLABLES[draw % len(SYLLABLES)] for draw in draws[: 2 + count % 2])
        word += ("", "n", "r", "s", "l")[last % 5]
        if word not in seen:
            seen.add(word)
            yield word


def language(
    words: list[Sequence[str]],
    topics: int,
    years: NDArray[np.float64],
    drift: float,
    generator: np.random.Generator,
) -> Language:
    """The language with these words; ``years`` holds the time of each era in years."""
    sizes = np.array([len(group) for group in words])
    start = np.concatenate([[0], np.cumsum(sizes)])
    rank = np.concatenate([np.arange(size) for size in sizes])
    first = start[TOPICAL]
    closed = (rank[:first] + 1.0) ** -1.3
    # Word i of a class belongs to topic i % topics; in other topics it is rare, but possible.
    home = rank[first:] % topics
    weight = (rank[first:] // topics + 1.0) ** -1.2
    at_home = np.where(home == np.arange(topics)[:, None], 1.0, 0.25 / topics)  # [topic, word]
    # Each word becomes more and less frequent with its own period of 3 to 10 years.
    period, phase = generator.random((len(weight), 2)).T
    angle = 2 * np.pi * (years[:, None] / (3 + 7 * period) + phase)
    fashion = np.exp(3 * drift * np.sin(angle))  # [era, word]
    topical = weight * at_home * fashion[:, None, :]
    for begin, end in pairwise(start[TOPICAL:] - first):
        topical[..., begin:end] /= topical[..., begin:end].sum(-1, keepdims=True)
    for begin, end in pairwise(start[: TOPICAL + 1]):
        closed[begin:end] /= closed[begin:end].sum()
    class_of = np.repeat(np.arange(len(CLASSES)), sizes)
    return Language(tuple(chain(*words)), class_of, start, grammar(), closed, topical)


def foreign() -> list[tuple[str, str]]:
    """All sentences that are not English, each with the code of its language."""
    return [
        (code, ("" if code == "ja" else " ").join(sentence))
        for code, parts in _DATA["foreign"].items()
        for sentence in product(*(part.split("|") for part in parts))
    ]
