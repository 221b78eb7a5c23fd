"""Posts in, corpus out: against a plain loop that does the same, post by post."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from nltk.tokenize import TweetTokenizer

from conftest import INLINE, prepared, simple_posts, write_posts
from firehose.data import encoding, reading, settling
from firehose.data.corpus import Corpus
from firehose.data.plan import Plan, make_plan
from firehose.data.post import Post
from firehose.data.prepare import Execution, prepare
from firehose.errors import FirehoseError

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
    start = settling._milliseconds(before) if before else -(2**62)
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

    class Fixed:
        def read(self, _: Any) -> Any:
            return iter(posts)

    shard = reading.read_shard(Fixed(), folder, 99, False, {"number": 0, "shard": {}})  # type: ignore[arg-type]
    (task,) = (task for task in reading.parts([shard]) if task["part"] == shard["batches"][0][0])
    told = settling.settle_part(make_plan(source="nature"), tmp_path, [shard], task)
    import pyarrow.parquet as pq

    kept = pq.read_table(tmp_path / "posts" / f"{task['part']:06}.parquet")
    assert told["posts"] == [0, 0, 0, 0, 0]
    assert Counter(kept["split"].to_pylist()) == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_no_byte(
    small_corpus: Corpus, tmp_path: Path, workers: int
) -> None:
    plan = Plan.of(small_corpus.manifest.config)
    again = prepare(plan, tmp_path / "corpus", Execution(workers)).corpora[0]
    assert contents(again.path) == contents(small_corpus.path)


def test_the_runner_changes_no_byte(small_corpus: Corpus, tmp_path: Path) -> None:
    code = (
        "import sys; from firehose import Execution, Plan, prepare; "
        "from firehose.config import read_toml; from pathlib import Path; "
        "prepare(Plan.of(read_toml(Path(sys.argv[1]))), sys.argv[2], Execution(2, 'ray'))"
    )
    config = str(small_corpus.path / "config.toml")
    subprocess.run([sys.executable, "-c", code, config, str(tmp_path / "ray")], check=True)
    assert contents(tmp_path / "ray") == contents(small_corpus.path)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by name."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("delay", [0.3, 1.2, 2.0, 3.0])
def test_a_killed_run_leaves_no_corpus_and_the_next_succeeds(tmp_path: Path, delay: float) -> None:
    path = write_posts(tmp_path / "posts.jsonl", simple_posts())
    command = [sys.executable, "-m", "firehose", "prepare", str(path), "--out"]
    out = tmp_path / "here" / "corpus"
    killed = subprocess.Popen(
        [*command, str(out)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    time.sleep(delay)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    if out.exists():
        Corpus(out, check=True)  # it was faster than the signal
        return
    subprocess.run([*command, str(out), "--workers", "0"], check=True, stdout=subprocess.DEVNULL)
    Corpus(out, check=True)
    assert [path.name for path in out.parent.iterdir()] == ["corpus"]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "here" / "corpus"
    posts = write_posts(tmp_path / "posts.jsonl", simple_posts(posts=9))
    with pytest.raises(FirehoseError, match="No user with 20 posts is left of 27 records"):
        prepare(make_plan([posts]), out, INLINE)
    assert list(out.parent.iterdir()) == []


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


def test_an_older_corpus_is_replaced_only_when_asked(tmp_path: Path) -> None:
    plan = make_plan([write_posts(tmp_path / "posts.jsonl", simple_posts())])
    other = make_plan([tmp_path / "posts.jsonl"], split={"seed": 7})
    prepare(plan, tmp_path / "corpus", INLINE)
    before = contents(tmp_path / "corpus")
    with pytest.raises(FirehoseError, match="exists already"):
        prepare(other, tmp_path / "corpus", INLINE)
    assert contents(tmp_path / "corpus") == before
    prepare(other, tmp_path / "corpus", INLINE, replace=True)
    assert contents(tmp_path / "corpus") != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(FirehoseError, match="is not a corpus, so --replace leaves it alone"):
        prepare(plan, tmp_path / "mine", INLINE, replace=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_half_a_surrogate_pair_is_mended(tmp_path: Path) -> None:
    class Broken:
        def read(self, _: Any) -> Iterator[Post]:
            yield Post("1", "ann", 0, "half a smile \ud83d here")

    shard = reading.read_shard(Broken(), tmp_path, 99, False, {"number": 0, "shard": {}})  # type: ignore[arg-type]
    (task,) = (task for task in reading.parts([shard]) if task["part"] == shard["batches"][0][0])
    table = reading.read_part(tmp_path, [shard], task)
    assert table["text"].to_pylist() == ["half a smile \ufffd here"]
