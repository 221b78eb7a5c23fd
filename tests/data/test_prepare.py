"""Posts in, corpus out: against a plain loop that does the same, post by post."""

import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from nltk.tokenize import TweetTokenizer

from conftest import INLINE, contents, prepared, simple_posts, write_posts
from firehose.data import encoding, reading, settling
from firehose.data.corpus import Corpus
from firehose.data.plan import Plan, make_plan
from firehose.data.post import Post
from firehose.data.prepare import Execution, prepare
from firehose.data.sources import Shard, Source
from firehose.errors import FirehoseError

GOLDEN = [  # the test posts of conftest.small_corpus with seed 0
    "3b0755438860da6d",
    "4e9f3cdeb61f0d18",
    "7337a2062b1afb32",
    "7edb8271f0d647de",
    "848f1469b4af85e0",
    "94a5acdfda620c6d",
    "c67058de0f7176e7",
    "d6c2937d13369069",
    "faefbda754569e9a",
]
KEPT_SPLITS = ("train", "validation", "test", "pretrain")


def key(identifier: str) -> int:
    return int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=8).digest(), "little")


def reference(posts: list[Post], plan: Plan) -> tuple[dict[str, set[tuple[int, int]]], list[int]]:
    """Where each post goes, as (time, key) by split, and how many each step removes."""
    clean = plan.clean
    removed = [0] * 5
    alive: dict[str, dict[str, Post]] = defaultdict(dict)
    for post in posts:
        if not TweetTokenizer().tokenize(post.text):
            removed[0] += 1
        elif post.language not in clean.languages:
            removed[1] += 1
        elif post.is_retweet or post.is_reply:
            removed[2] += 1
        elif post.id in alive[post.user]:
            removed[3] += 1
        else:
            alive[post.user][post.id] = post
    before = plan.split.pretrain_before
    start = int(np.datetime64(before, "ms").astype(int)) if before else -(2**62)
    places: dict[str, set[tuple[int, int]]] = {name: set() for name in KEPT_SPLITS}
    for of_user in alive.values():
        early = [post for post in of_user.values() if post.time < start]
        own = [post for post in of_user.values() if post.time >= start]
        places["pretrain"].update((post.time, key(post.id)) for post in early)
        if len(own) < clean.min_posts:
            removed[4] += len(own)
            continue
        keys = np.array([key(post.id) for post in own], np.uint64)
        for rank, number in enumerate(np.argsort(settling._mix(keys, plan.split.seed))):
            name = "validation" if rank < 3 else "test" if rank < 6 else "train"
            places[name].add((own[number].time, int(keys[number])))
    return places, removed


posts_strategy = st.lists(
    st.builds(
        Post,
        id=st.integers(0, 150).map(str),
        user=st.sampled_from(["ann", "bob", "čeněk", "<script>", "e"]),
        time=st.integers(1_356_998_400_000, 1_356_998_400_000 + 30 * 86_400_000),
        text=st.sampled_from(
            ["good morning", "so tired http://t.co/x1 #late", " ", "&nbsp;", "😀 @ann"]
        ),
        language=st.sampled_from(["en", "en", "en", "en", "de"]),
        is_retweet=st.sampled_from([False] * 9 + [True]),
        is_reply=st.sampled_from([False] * 9 + [True]),
    ),
    min_size=40,
    max_size=250,
)


@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    posts=posts_strategy,
    seed=st.integers(0, 5),
    before=st.sampled_from([None, date(2013, 1, 8)]),
    minimum=st.integers(7, 12),
)
def test_every_post_is_in_exactly_one_place(
    tmp_path_factory: pytest.TempPathFactory,
    posts: list[Post],
    seed: int,
    before: date | None,
    minimum: int,
) -> None:
    folder = tmp_path_factory.mktemp("property")
    tables: dict[str, Any] = {
        "clean": {"min_posts": minimum},
        "split": {"seed": seed, "pretrain_before": before},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PARTS", 3)
        patch.setattr(reading, "PART", 40)  # so that large parts are dealt again
        patch.setattr(encoding, "SLICE", 16)
        patch.setattr(encoding, "SAMPLE", 4)
        patch.setattr(settling, "SAMPLE", 4)
        plan = make_plan([write_posts(folder / "posts.jsonl", posts)], **tables)
        places, removed = reference(posts, plan)
        users_left = any(places[name] for name in ("train", "validation", "test"))
        if not users_left:
            with pytest.raises(FirehoseError, match="No user with"):
                prepare(plan, folder / "corpus", INLINE)
            return
        corpus = prepare(plan, folder / "corpus", INLINE).corpora[0]
    found = {
        name: set(zip(split.time.tolist(), split.key.tolist(), strict=True))
        for name, split in corpus.splits.items()
    }
    assert found == {name: place for name, place in places.items() if name in found}
    assert [step.posts for step in corpus.manifest.steps] == removed
    kept = sum(corpus.manifest.posts.values())
    assert kept + sum(removed) == corpus.manifest.read == len(posts)
    for name, split in corpus.splits.items():
        assert (np.diff(split.time) >= 0).all()
        if name in ("validation", "test"):
            assert set(Counter(split.user.tolist()).values()) == {3}
    lost = sum(step.users for step in corpus.manifest.steps)
    assert corpus.manifest.read_users - lost == corpus.manifest.users


def test_users_are_numbered_by_their_first_post(small_corpus: Corpus) -> None:
    assert small_corpus.users == ["user0", "user1", "user2"]
    assert small_corpus.manifest.posts == {"train": 54, "validation": 9, "test": 9}


def test_words_are_counted_with_one_for_the_end(small_corpus: Corpus) -> None:
    for split in small_corpus.splits.values():
        assert (split.words == 7).all()
    assert small_corpus.manifest.words["words"].tokens == 72 * 6
    assert small_corpus.manifest.unique_words == len(
        {w for p in simple_posts() for w in p.text.split()}
    )


def test_the_stored_tokens_spell_the_cleaned_text(tmp_path: Path) -> None:
    posts = [
        post._replace(text=f"Hello @ann see http://t.co/x{n} it's #late :-) n{n}")
        for n, post in enumerate(simple_posts(1, 20))
    ]
    corpus = prepared(tmp_path, posts, clean={"mentions": "replace"})
    split = corpus.splits["train"]
    texts = [
        corpus.vocabulary.decode(split.tokens[start:stop])
        for start, stop in zip(split.offsets, split.offsets[1:], strict=False)
    ]
    numbers = {text.rsplit(" n", 1)[1] for text in texts}
    assert len(numbers) == 14
    assert {text.rsplit(" n", 1)[0] for text in texts} == {
        "Hello <MENTION> see <URL> it's #late :-)"
    }


def test_the_vocabulary_sees_training_text_only(tmp_path: Path) -> None:
    posts = simple_posts(2, 20)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    corpus = prepared(tmp_path / "a", posts)
    held_out = set(corpus.splits["test"].key.tolist())
    spoiled = [
        post._replace(text="zyzzyva " * 6) if key(post.id) in held_out else post for post in posts
    ]
    other = prepared(tmp_path / "b", spoiled)
    assert other.vocabulary.model == corpus.vocabulary.model


def test_small_and_large_have_different_users_and_the_same_vocabulary(tmp_path: Path) -> None:
    posts = simple_posts(12, 20)
    plan = make_plan(
        [write_posts(tmp_path / "posts.jsonl", posts)],
        split={"small": 0.4, "pretrain_before": date(2014, 5, 14)},
        clean={"min_posts": 7},
    )
    large, small = prepare(plan, tmp_path / "both", INLINE).corpora
    assert (large.path.name, small.path.name) == ("large", "small")
    assert small.users and large.users
    assert set(small.users).isdisjoint(large.users)
    assert len(small.users) + len(large.users) == 12
    assert small.vocabulary.model == large.vocabulary.model
    early = small.splits["pretrain"]
    assert early.key.tolist() == large.splits["pretrain"].key.tolist()
    assert len(early) > 0 and (early.user == -1).all()
    held = {post.time for post in posts} - set(early.time.tolist())
    assert max(early.time) < min(held)


def test_a_listed_post_is_kept_in_its_split_whatever_it_is(tmp_path: Path) -> None:
    posts = [
        post._replace(
            language="ja", is_retweet=True, split=["train", "validation", "test"][number % 3]
        )
        for number, post in enumerate(simple_posts(1, 9))
    ]
    folder = tmp_path / "read"
    folder.mkdir()
    for name in ("posts", "users", "words"):
        (tmp_path / name).mkdir()

    class Fixed(Source):
        def read(self, shard: Shard) -> Iterator[Post]:  # noqa: ARG002
            return iter(posts)

    shard = reading.read_shard(Fixed(), folder, 99, False, {"number": 0, "shard": {}})
    (task,) = (task for task in reading.parts([shard]) if task["part"] == shard["batches"][0][0])
    told = settling.settle_part(make_plan(source="nature"), tmp_path, [shard], task)
    import pyarrow.parquet as pq

    kept = pq.read_table(tmp_path / "posts" / f"{task['part']:06}.parquet")
    assert told["posts"] == [0, 0, 0, 0, 0]
    assert Counter(kept["split"].to_pylist()) == {0: 3, 1: 3, 2: 3}


# Several shards, slices of time, corpora: each stage has work for more than one process.
MANY = """
import sys
from pathlib import Path
from firehose import Execution, make_plan, prepare
from firehose.data import encoding
encoding.SLICE = 8192
folder, workers, runner = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
execution = Execution(workers, runner)
split = {"small": 0.4, "pretrain_before": "2014-05-14"}
prepare(make_plan(["in"], split=split, clean={"min_posts": 7}), folder / "posts", execution)
nature = {"kind": "nature", "users": 700, "posts": 20_000, "years": 2.0}
prepare(make_plan(source=nature, vocabulary={"size": 600}), folder / "nature", execution)
"""


@pytest.fixture(scope="module")
def reference_bytes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    home = tmp_path_factory.mktemp("many")
    (home / "in").mkdir()
    posts = simple_posts(12, 20)
    for number in range(3):
        write_posts(home / "in" / f"{number}.jsonl", posts[number::3])
    return home, many(home, "here", 0, "native")


def many(home: Path, name: str, workers: int, runner: str) -> dict[str, bytes]:
    command = [sys.executable, "-c", MANY, name, str(workers), runner]
    subprocess.run(command, cwd=home, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return contents(home / name)


@pytest.mark.parametrize(("workers", "runner"), [(1, "native"), (2, "native"), (2, "ray")])
def test_neither_workers_nor_runner_change_a_byte(
    reference_bytes: tuple[Path, dict[str, bytes]], workers: int, runner: str
) -> None:
    home, expected = reference_bytes
    assert many(home, f"{runner}{workers}", workers, runner) == expected


def test_the_choice_of_held_out_posts_is_for_ever(small_corpus: Corpus) -> None:
    keys = [f"{key:016x}" for key in sorted(small_corpus.splits["test"].key.tolist())]
    assert keys == GOLDEN


def test_strict_stops_at_the_first_unreadable_record_with_file_and_line(tmp_path: Path) -> None:
    path = write_posts(tmp_path / "posts.jsonl", simple_posts())
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:4], "{broken", *lines[4:]]))
    with pytest.raises(FirehoseError, match=r"posts\.jsonl:5: broken JSON"):
        prepare(make_plan([path]), tmp_path / "strict", INLINE, strict=True)
    with pytest.raises(FirehoseError, match=r"posts\.jsonl:5: broken JSON"):
        prepare(make_plan([path]), tmp_path / "strict", Execution(1), strict=True)
    told = prepare(make_plan([path]), tmp_path / "corpus", INLINE)
    assert told.corpora[0].manifest.skipped == {"broken JSON": 1}
    assert told.corpora[0].manifest.read == 73
    assert told.examples["broken JSON"].endswith("posts.jsonl:5")


def test_half_a_surrogate_pair_is_mended(tmp_path: Path) -> None:
    class Broken(Source):
        def read(self, shard: Shard) -> Iterator[Post]:  # noqa: ARG002
            yield Post("ann", "half a smile \ud83d here", 0, "1")

    shard = reading.read_shard(Broken(), tmp_path, 99, False, {"number": 0, "shard": {}})
    (task,) = (task for task in reading.parts([shard]) if task["part"] == shard["batches"][0][0])
    table = reading.read_part(tmp_path, [shard], task)
    assert table["text"].to_pylist() == ["half a smile \ufffd here"]


def test_when_nothing_can_be_read_it_is_said_why_and_where(tmp_path: Path) -> None:
    (tmp_path / "posts.jsonl").write_text('{"user": "a", "time": 1, "text": "x"}\n'[:20] + "\n" * 3)
    with pytest.raises(FirehoseError, match=r"None of 1 records is a post \(broken JSON: 1, first"):
        prepare(make_plan([tmp_path / "posts.jsonl"]), tmp_path / "corpus", INLINE)


def test_posts_before_the_date_are_named_when_they_are_all(tmp_path: Path) -> None:
    posts = write_posts(tmp_path / "posts.jsonl", simple_posts())
    plan = make_plan([posts], split={"pretrain_before": date(2030, 1, 1)})
    with pytest.raises(FirehoseError, match=r"\(before 2030-01-01: 72\)"):
        prepare(plan, tmp_path / "corpus", INLINE)


def test_a_share_that_nobody_falls_into_is_named(tmp_path: Path) -> None:
    posts = write_posts(tmp_path / "posts.jsonl", simple_posts())
    plan = make_plan([posts], split={"small": 0.000001})
    with pytest.raises(FirehoseError, match="None of 3 users falls into the small corpus"):
        prepare(plan, tmp_path / "corpus", INLINE)


def test_a_corpus_in_the_input_folder_is_not_input(tmp_path: Path) -> None:
    write_posts(tmp_path / "posts.jsonl", simple_posts())
    first = prepare(make_plan([tmp_path]), tmp_path / "corpus", INLINE).corpora[0].manifest.files
    again = prepare(make_plan([tmp_path]), tmp_path / "corpus", INLINE, replace=True)
    assert again.corpora[0].manifest.files == first


def test_stated_languages_may_have_regions(tmp_path: Path) -> None:
    languages = ["EN", "en-US", "en_GB"]
    posts = [p._replace(language=languages[n % 3]) for n, p in enumerate(simple_posts())]
    assert prepared(tmp_path, posts).manifest.steps[1].posts == 0


def test_overlong_texts_are_counted_and_never_held(tmp_path: Path) -> None:
    posts = simple_posts(1, 25)
    posts[3] = posts[3]._replace(text="word " * 200_000)
    corpus = prepared(tmp_path, posts)
    assert corpus.manifest.steps[0].posts == 1
    assert sum(corpus.manifest.posts.values()) == 24
