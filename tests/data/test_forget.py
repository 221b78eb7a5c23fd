"""Forgetting a user in a corpus: against a corpus that was prepared without that user."""

import shutil
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from conftest import INLINE, contents, prepared, simple_posts
from firehose.data import encoding, forget, wordcount
from firehose.data.corpus import Corpus
from firehose.data.forget import forget_in_corpus
from firehose.data.plan import make_plan
from firehose.data.post import USER_SPLITS, Post
from firehose.data.prepare import prepare
from firehose.data.stats import stats
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError

COLUMNS = ("tokens", "offsets", "user", "time", "words", "key", "floor")
ENDINGS = (
    *("#late :-)", "see http://t.co/x1 !", "@ann 😀", "call 123 4567 now", "wait. . . what"),
    *("naïve 東京", "a.b", "1 - 800 555", "&lt;3 <url> <URL>", "<eot> ▁ ..."),
)


# As unlike as can be, so that the compression of a Parquet file leaves them as they are.
NAMES = {"user0": "quillon", "user1": "Zdeňka", "user2": "brambleweft", "user3": "hixvoy"}


def varied_posts() -> list[Post]:
    """Words of every category, some with spaces inside, and one that only its user writes."""
    return [
        post._replace(
            user=NAMES[post.user],
            text=f"{post.text} {ENDINGS[number % len(ENDINGS)]} x{NAMES[post.user][::-1]}x",
        )
        for number, post in enumerate(simple_posts(4, 24))
    ]


def pair(folder: Path, posts: Sequence[Post], user: str, **tables: Any) -> tuple[Corpus, Corpus]:
    """A corpus that forgot a user, and one that never knew the user, with one vocabulary."""
    (folder / "all").mkdir()
    (folder / "others").mkdir()
    path = prepared(folder / "all", posts, **tables).path
    others = [post for post in posts if post.user != user]
    tables |= {"vocabulary": {"model": path / "vocabulary.model"}}
    expected = prepared(folder / "others", others, **tables)
    forget_in_corpus(path, user)
    return Corpus(path, check=True), expected


def assert_same_posts(found: Corpus, expected: Corpus) -> None:
    assert list(found.splits) == list(expected.splits)
    for name, split in expected.splits.items():
        for column in COLUMNS:
            ours, theirs = getattr(found.splits[name], column), getattr(split, column)
            assert (ours is None) == (theirs is None)
            if theirs is not None:
                assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    assert pq.read_table(found.path / "users.parquet").equals(
        pq.read_table(expected.path / "users.parquet")
    )


@pytest.mark.parametrize("user", NAMES.values())
@pytest.mark.parametrize("mentions", ["keep", "replace"])
def test_what_remains_is_what_would_have_been_prepared_without_the_user(
    tmp_path: Path, user: str, mentions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forget, "CHUNK", 7)
    found, expected = pair(tmp_path, varied_posts(), user, clean={"mentions": mentions})
    assert_same_posts(found, expected)
    ours, theirs = found.manifest, expected.manifest
    for field in ("read", "read_users", "posts", "users", "skipped", "steps", "vocabulary"):
        assert getattr(ours, field) == getattr(theirs, field)
    # "▁" is a space to SentencePiece, so it is kept as "_": both are one word of the same kind.
    assert ours.words == theirs.words
    assert ours.unique_words == theirs.unique_words
    own = {name: file for name, file in theirs.files.items() if name != "config.toml"}
    assert {name: file for name, file in ours.files.items() if name != "config.toml"} == own


@pytest.mark.parametrize("which", ["corpus", "small", "large"])
def test_counts_of_a_simulated_corpus_are_those_of_prepare(tmp_path: Path, which: str) -> None:
    settings = ["source.users=30", "source.posts=3000", "source.years=2.0"]
    if which != "corpus":
        settings += ["split.small=0.5", "split.pretrain_before=2013-04-01"]
    made = prepare(make_plan(source="nature", assignments=settings), tmp_path / "corpus", INLINE)
    (corpus,) = (each for each in made.corpora if each.path.name == which)
    before = {name: split.batch(split.user != 3) for name, split in corpus.splits.items()}
    floors = {name: split.floor for name, split in corpus.splits.items()}
    kept = {name: np.asarray(split.user != 3) for name, split in corpus.splits.items()}
    user, config = corpus.users[3], (corpus.path / "config.toml").read_bytes()
    erased = forget_in_corpus(corpus.path, user)
    after = Corpus(corpus.path, check=True)
    assert user not in after.users and len(after.users) == corpus.manifest.users - 1
    assert (corpus.path / "config.toml").read_bytes() == config
    for name, split in after.splits.items():
        batch = split.batch(np.arange(len(split)))
        assert batch.tokens.tolist() == before[name].tokens.tolist()
        assert batch.time.tolist() == before[name].time.tolist()
        floor = floors[name]
        if name == "pretrain":
            assert (split.user == -1).all() and len(split) == len(corpus.splits[name])
            continue
        assert floor is not None and split.floor is not None
        assert split.floor.tolist() == floor[kept[name]].tolist()
        assert after.manifest.floor is not None
        levels = np.exp(split.floor.sum(0) / split.words.sum())
        told = after.manifest.floor[name]
        assert [told.personalized, told.agnostic] == pytest.approx(levels.tolist())
    own = [after.splits[name] for name in USER_SPLITS]
    words = sum(int(split.words.sum()) - len(split) for split in own)
    assert sum(count.tokens for count in after.manifest.words.values()) == words
    told_before = sum(count.tokens for count in corpus.manifest.words.values())
    assert told_before - words == erased["words"]


def test_it_is_told_what_was_erased(tmp_path: Path) -> None:
    path = prepared(tmp_path, simple_posts()).path
    assert forget_in_corpus(path, "user1") == {
        "train posts": 18,
        "validation posts": 3,
        "test posts": 3,
        "words": 24 * 6,
        "names": 1,
    }
    assert Corpus(path).users == ["user0", "user2"]
    assert forget_in_corpus(path, "user2")["train posts"] == 18
    assert Corpus(path).manifest.posts == {"train": 18, "validation": 3, "test": 3}


def test_neither_the_name_nor_a_word_of_the_user_is_in_any_file(tmp_path: Path) -> None:
    path = prepared(tmp_path, varied_posts()).path
    stats(path)  # its pages stay in the folder of the corpus
    names = [b"brambleweft", b"xtfewelbmarbx"]
    assert any(names[0] in content for content in contents(path).values())
    corpus = Corpus(path)
    assert any("xtfewelbmarbx" in text for text in texts(corpus))
    forget_in_corpus(path, "brambleweft")
    for name, content in contents(path).items():
        assert name == "vocabulary.model" or not any(each in content for each in names)
    assert not any("xtfewelbmarbx" in text for text in texts(Corpus(path)))
    assert not (path / "stats").exists()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def texts(corpus: Corpus) -> list[str]:
    """The texts of all posts."""
    return [
        text
        for split in corpus.splits.values()
        for text in corpus.vocabulary.decode_posts(split.tokens, split.offsets)
    ]


def test_posts_to_pretrain_on_have_no_user_and_stay(tmp_path: Path) -> None:
    posts = simple_posts(3, 40)
    tables: dict[str, Any] = {"split": {"pretrain_before": date(2014, 5, 14)}}
    corpus = prepared(tmp_path, posts, **tables)
    early = corpus.splits["pretrain"].key.tolist()
    assert early
    forget_in_corpus(corpus.path, "user0")
    after = Corpus(corpus.path, check=True)
    assert after.splits["pretrain"].key.tolist() == early
    assert (after.splits["pretrain"].user == -1).all()


@pytest.fixture
def path(small_corpus: Corpus, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_corpus.path, tmp_path / "here" / "corpus"))


def test_a_user_who_is_not_there_is_refused_with_the_nearest_names(path: Path) -> None:
    before = contents(path)
    with pytest.raises(FirehoseError, match=r"no user 'user9' in .*: did you mean 'user2' or "):
        forget_in_corpus(path, "user9")
    with pytest.raises(FirehoseError, match=r"no user 'Zoë' in .*: see users\.parquet"):
        forget_in_corpus(path, "Zoë")
    with pytest.raises(FirehoseError, match="does not exist"):
        forget_in_corpus(path.parent / "none", "user1")
    with pytest.raises(FirehoseError, match="does not exist"):
        forget_in_corpus(path / "none" / "none", "user1")
    assert contents(path.parent) == {f"corpus/{name}": content for name, content in before.items()}
    assert [each.name for each in path.parent.iterdir()] == ["corpus"]


def test_the_last_user_is_not_forgotten_alone(path: Path) -> None:
    forget_in_corpus(path, "user0")
    forget_in_corpus(path, "user1")
    with pytest.raises(FirehoseError, match=r"only user of .*: remove the whole folder"):
        forget_in_corpus(path, "user2")


def test_files_of_somebody_else_are_not_lost(path: Path) -> None:
    (path / "notes.txt").write_text("mine")
    before = contents(path)
    with pytest.raises(FirehoseError, match=r"notes\.txt is not a part of the corpus: move it"):
        forget_in_corpus(path, "user1")
    assert contents(path) == before


def test_a_damaged_corpus_does_not_get_new_checksums(path: Path) -> None:
    file = path / "train" / "time.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FirehoseError, match=r"time\.npy does not match its checksum"):
        forget_in_corpus(path, "user1")


def test_a_corpus_that_a_link_leads_to_is_rewritten_where_it_lies(
    path: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(path, target_is_directory=True)
    forget_in_corpus(tmp_path / "link", "user1")
    assert (tmp_path / "link").is_symlink()
    assert Corpus(path).users == Corpus(tmp_path / "link").users == ["user0", "user2"]


def test_an_attempt_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(path)

    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(wordcount, "by_category", fail)
        with pytest.raises(OSError, match="no space left"):
            forget_in_corpus(path, "user1")
    assert contents(path) == before
    assert [each.name for each in path.parent.iterdir()] == ["corpus"]


def test_what_a_killed_attempt_left_behind_is_removed_by_the_next(path: Path) -> None:
    leftover = path.parent / ".corpus.partial-0123abcd"
    shutil.copytree(path, leftover / "replaced")
    forget_in_corpus(path, "user1")
    shutil.copytree(path, leftover / "replaced")
    with pytest.raises(FirehoseError, match="no user 'user1'"):
        forget_in_corpus(path, "user1")
    assert [each.name for each in path.parent.iterdir()] == ["corpus"]


def test_a_given_vocabulary_that_spells_otherwise_is_counted_alike(tmp_path: Path) -> None:
    # Such a vocabulary has one piece for <URL> and for <url>, so nobody can write the latter here.
    posts = [post._replace(text=post.text.replace("<url>", "")) for post in varied_posts()]
    model = tmp_path / "lower.model"
    model.write_bytes(lower_case_vocabulary(tmp_path, posts).model)
    found, expected = pair(tmp_path, posts, "quillon", vocabulary={"model": model})
    assert_same_posts(found, expected)
    assert found.manifest.words == expected.manifest.words


def lower_case_vocabulary(folder: Path, posts: Sequence[Post]) -> Vocabulary:
    """A vocabulary whose special pieces are in lower case, and <eot> no control piece."""
    import io

    import sentencepiece

    (folder / "text").write_text("\n".join(post.text for post in posts), encoding="utf-8")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"),
        model_writer=model,
        vocab_size=340,
        byte_fallback=True,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        user_defined_symbols=["<sot>", "<eot>", "<url>", "<mention>"],
        minloglevel=2,
    )
    return Vocabulary(model.getvalue())


def test_offsets_are_running_sums_of_lengths() -> None:
    blocks = [np.array([2, 3]), np.array([], np.int64), np.array([5])]
    assert np.concatenate([*encoding.offsets_of(blocks)]).tolist() == [0, 2, 5, 10]
