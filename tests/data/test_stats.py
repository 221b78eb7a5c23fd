"""What a corpus looks like: the numbers by hand, the figures at their edges, the files."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from test_corpus import ragged

from firehose.data import stats as module
from firehose.data.corpus import Corpus, Floor, Manifest, Split, Step, WordCount
from firehose.data.stats import (
    Lengths,
    Statistics,
    cleaning,
    describe,
    month_name,
    quarter_name,
    sizes,
    skipped,
    stats,
    tables,
)
from firehose.data.stats_figures import FIGURES
from firehose.errors import FirehoseError
from firehose.report.figures import render
from firehose.report.tables import Published

DAY = 86_400_000


def milliseconds(date: str) -> int:
    return int(np.datetime64(date, "ms").astype(np.int64))


def make_split(name: str, posts: Sequence[tuple[int, int, int]]) -> Split:
    """A split of posts (user, time, words with <EOT>), each of ten pieces."""
    columns = np.array(posts, np.int64).reshape(-1, 3)
    return Split(
        name=name,
        tokens=np.zeros(10 * len(posts), np.uint16),
        offsets=10 * np.arange(len(posts) + 1),
        user=columns[:, 0].astype(np.int32),
        time=columns[:, 1],
        words=columns[:, 2].astype(np.int32),
        key=np.arange(len(posts), dtype=np.uint64),
    )


def make_corpus(
    path: Path, splits: dict[str, Sequence[tuple[int, int, int]]], **known: Any
) -> Corpus:
    """What :func:`describe` asks of a corpus, without one on disk."""
    manifest: dict[str, Any] = {
        "read": 0,
        "skipped": {},
        "steps": [],
        "words": {},
        "unique_words": 0,
        "vocabulary": SimpleNamespace(size=32),
        "floor": None,
    }
    corpus = SimpleNamespace(
        name=path.name,
        path=path,
        manifest=Manifest.model_construct(**manifest | known),
        splits={name: make_split(name, posts) for name, posts in splits.items()},
    )
    return cast(Corpus, corpus)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Three users; user 0 is silent for two years, user 2 writes twice in one moment."""
    start = milliseconds("2013-03-31T23:00")
    train = [
        (0, start, 4),
        (0, start + DAY // 48, 6),  # half an hour later: still 31 March
        (1, start + DAY, 2),  # 1 April
        (2, start + 100 * DAY, 3),
        (2, start + 100 * DAY, 3),
        (0, start + 730 * DAY, 11),
    ]
    return make_corpus(
        tmp_path / "tiny",
        {
            "train": train,
            "validation": [(1, start + 2 * DAY, 5)],
            "test": [(1, start + 9 * DAY, 1)],
            "pretrain": [(-1, start - 99 * DAY, 7), (-1, start, 3)],
        },
        read=20,
        skipped={"broken <JSON>": 2, "delete notice": 5},
        steps=[Step(name="not English", posts=4, users=1), Step(name="retweets", posts=1, users=0)],
        words={
            "words": WordCount(tokens=20, unique=12),
            "hashtags": WordCount(tokens=4, unique=4),
            "emoji": WordCount(tokens=0, unique=0),
        },
        unique_words=17,
        floor={"test": Floor(personalized=12.345, agnostic=23.456)},
    )


def test_the_lengths_are_those_of_the_training_posts(corpus: Corpus) -> None:
    found = describe(corpus).lengths
    assert (found.posts, found.longer, found.covering) == (6, 0, 10)


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([10] * 8, "10 tokens; a model with max_tokens = 50 cuts none of them."),
        ([50] * 55 + [163] * 45, "163 tokens; a model with max_tokens = 50 cuts 45 % of them."),
        ([50] * 999 + [51], "50 tokens; a model with max_tokens = 50 cuts 0.1 % of them."),
        ([60] * 999 + [50], "60 tokens; a model with max_tokens = 50 cuts 99.9 % of them."),
    ],
)
def test_the_lengths_in_a_sentence(lengths: list[int], sentence: str) -> None:
    found = Lengths.of(ragged(lengths)).sentence().replace("\N{NO-BREAK SPACE}", " ")
    assert found == f"99 % of the posts have at most {sentence}"


def test_sizes_by_hand(corpus: Corpus) -> None:
    found = describe(corpus)
    assert (found.users, found.posts, found.unique_words, found.vocabulary) == (3, 8, 17, 32)
    assert found.words == 3 + 5 + 1 + 2 + 2 + 10 + 4 + 0
    assert found.pieces == 80
    train, pretrain = found.splits["train"], found.splits["pretrain"]
    assert (train.posts, train.users, train.words, train.pieces) == (6, 3, 23, 60)
    assert (pretrain.posts, pretrain.users, pretrain.words) == (2, 0, 8)
    assert found.first == milliseconds("2013-03-31T23:00")
    assert found.last == found.first + 730 * DAY


def test_quantiles_by_hand(corpus: Corpus) -> None:
    found = describe(corpus)
    posts = found.posts_per_user  # 3, 3, 2
    assert (posts.least, posts.median, posts.most) == (2, 3, 3)
    assert posts.mean == pytest.approx(8 / 3)
    words = found.words_per_post  # 0 1 2 2 3 4 5 10
    assert (words.least, words.quarter, words.median) == (0, 1.75, 2.5)
    assert (words.three_quarters, words.most, words.mean) == (4.25, 10, 27 / 8)


def test_quarters_by_hand(corpus: Corpus) -> None:
    quarters = describe(corpus).quarters
    assert quarter_name(quarters.first) == "2013 Q1"
    assert quarter_name(quarters.first + len(quarters.newcomers) - 1) == "2015 Q1"
    assert quarters.newcomers == (1, 1, 1, 0, 0, 0, 0, 0, 0)
    assert quarters.leavers == (0, 1, 1, 0, 0, 0, 0, 0, 1)


def test_gaps_by_hand(corpus: Corpus) -> None:
    found = describe(corpus)
    gaps = found.gaps  # user 0: 1/48 and 729.98 days; user 1: 1 and 7; user 2: 0
    assert (gaps.total, gaps.shorter, sum(gaps.counts)) == (5, 1, 4)
    assert gaps.within == {"hour": 2, "day": 3, "week": 4, "month": 4, "year": 4}
    for days in (1 / 48, 1, 7, 729.98):
        assert gaps.counts[int(np.searchsorted(gaps.edges, days, side="right")) - 1] == 1
    assert found.silent_users == 1


def test_activity_by_hand(corpus: Corpus) -> None:
    activity = describe(corpus).activity
    assert activity.unit == "week"
    assert activity.posts == (3, 3, 2)  # by first post: users 0, 1, 2
    assert [sum(row) for row in activity.columns] == [3, 3, 2]
    assert activity.columns[0][0] == 2
    assert activity.columns[1][:2] == (2, 1)
    assert activity.columns[0][-1] == 1


def test_chunks_do_not_show(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = describe(corpus)
    monkeypatch.setattr(module, "CHUNK", 2)
    assert describe(corpus) == whole


def test_numbers_agree_with_a_loop(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    posts = [
        (int(user), int(time), 2)
        for user, time in zip(
            generator.integers(0, 9, 300), generator.integers(0, 900 * DAY, 300), strict=True
        )
    ]
    found = describe(make_corpus(tmp_path, {"train": posts[:200], "test": posts[200:]}))
    gaps, silent = [], 0
    for user in range(9):
        times = sorted(time for who, time, _ in posts if who == user)
        own = [after - before for before, after in pairwise(times)]
        gaps += own
        silent += any(gap > 365 * DAY for gap in own)
    assert found.gaps.total == len(gaps)
    assert found.gaps.within["day"] == sum(gap <= DAY for gap in gaps)
    assert found.silent_users == silent
    assert sum(found.quarters.newcomers) == sum(found.quarters.leavers) == found.users == 9


def test_no_posts_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FirehoseError, match="no posts of users"):
        describe(make_corpus(tmp_path, {"train": [], "pretrain": [(-1, 0, 2)]}))


def test_times_too_far_apart_are_a_sentence(tmp_path: Path) -> None:
    posts = [(2**24, 0, 2), (0, 2**50, 2)]
    with pytest.raises(FirehoseError, match="too far apart"):
        describe(make_corpus(tmp_path, {"train": posts}))


def test_names_of_dates() -> None:
    assert month_name(milliseconds("2013-01-31")) == "January 2013"
    assert month_name(-1) == "December 1969"
    assert quarter_name(172) == "2013 Q1"
    assert quarter_name(-1) == "1969 Q4"


START = milliseconds("2014-05-13T16:53:20")
EDGES: dict[str, tuple[list[tuple[int, int, int]], dict[str, WordCount]]] = {
    "one post": ([(0, START, 3)], {}),
    "one user, seven posts": ([(0, START + day * DAY, 3) for day in range(7)], {}),
    "all in one second": (
        [(post % 3, START + 120 * post, 2) for post in range(8)],
        {"words": WordCount(tokens=8, unique=8), "hashtags": WordCount(tokens=0, unique=0)},
    ),
    "gaps all zero": ([(0, START, 2)] * 40, {"emoji": WordCount(tokens=40, unique=1)}),
    "empty posts": ([(0, START, 1), (1, START, 1)], {}),
    "a century": (
        [(0, -30_000 * DAY, 2), (0, 16_000 * DAY, 2), (1, START, 9)],
        {"words": WordCount(tokens=2_000_000_000, unique=1)},
    ),
}


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
@pytest.mark.parametrize("edge", EDGES)
def test_edges_are_drawn(tmp_path: Path, edge: str, draw: Callable[[Statistics], Figure]) -> None:
    posts, words = EDGES[edge]
    found = describe(make_corpus(tmp_path, {"train": posts}, words=words))
    assert render(draw(found), "svg").startswith(b"<?xml")


def test_files_are_the_same_twice(corpus: Corpus, tmp_path: Path) -> None:
    first, second = (stats(corpus, tmp_path / name, "firehose stats") for name in ("a", "b"))
    assert first[0].name == "index.html"
    assert {path.name for path in first} == {path.name for path in (tmp_path / "a").iterdir()}
    assert len(first) == 2 + 2 * len(FIGURES)
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_page_says_it_all(corpus: Corpus) -> None:
    path, numbers = stats(corpus)[:2]
    assert path.parent == corpus.path / "stats"
    content = path.read_text(encoding="utf-8")
    for words in ("3 users wrote 8 posts", "March 2013 and March 2015", "The floor", "12.35"):
        assert words in content
    for words in ("not English", "broken &lt;JSON&gt;", "Firehose100M", "Figure 4."):
        assert words in content
    assert "<JSON>" not in content
    assert Statistics.model_validate_json(numbers.read_text(encoding="utf-8")) == describe(corpus)


def test_tables(corpus: Corpus) -> None:
    found = describe(corpus)
    assert sizes(found).rows[0] == ["tiny", "3", "8", "27", "17"]
    assert sizes(found).rows[1][1] == Published("94.0K")
    assert cleaning(found).rows == [("not English", "4", "1"), ("retweets", "1", "0")]
    assert skipped(found).rows == [("delete notice", "5"), ("broken <JSON>", "2")]
    console = Console(width=90)
    with console.capture() as captured:
        console.print(*tables(found))
    assert captured.get().count("1672.7M†") == 1
    assert "broken <JSON>" in captured.get()
