"""A corpus on disk: opened at once, refused when damaged, streamed and sampled."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firehose.data import corpus
from firehose.data.corpus import Corpus, Split
from firehose.errors import FirehoseError


def ragged(lengths: list[int]) -> Split:
    """Posts of these lengths with tokens 0, 1, 2, …"""
    count = len(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    return Split(
        "train",
        np.arange(offsets[-1], dtype=np.uint16),
        offsets,
        np.arange(count, dtype=np.int32),
        np.arange(count, dtype=np.int64) * 1000,
        np.array(lengths, np.int32),
        np.arange(count, dtype=np.uint64),
    )


@given(st.lists(st.integers(2, 9), min_size=1, max_size=30), st.data())
def test_a_batch_holds_the_posts_asked_for_in_that_order(
    lengths: list[int], data: st.DataObject
) -> None:
    split = ragged(lengths)
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=20))
    batch = split.batch(chosen)
    assert batch.user.tolist() == chosen
    for place, post in enumerate(chosen):
        tokens = batch.tokens[batch.offsets[place] : batch.offsets[place + 1]]
        assert tokens.tolist() == list(range(split.offsets[post], split.offsets[post + 1]))


@given(st.lists(st.integers(2, 9), min_size=1, max_size=30), st.integers(1, 40), st.integers(0, 30))
def test_a_stream_passes_every_post_once_from_where_it_was_put(
    lengths: list[int], size: int, start: int
) -> None:
    from firehose.data.corpus import Stream

    split = ragged(lengths)
    start = min(start, len(lengths))
    stream = Stream(split, size).seek(start)
    batches = list(stream)
    assert [user for batch in batches for user in batch.user] == list(range(start, len(lengths)))
    assert all(len(batch) == size for batch in batches[:-1])
    assert all(
        batch.offsets[0] == 0 and batch.offsets[-1] == len(batch.tokens) for batch in batches
    )
    assert stream.position == len(lengths)


def test_a_stream_resumed_at_its_position_goes_on_with_the_next_post(small_corpus: Corpus) -> None:
    stream = small_corpus.stream(7)
    taken = [next(iter(stream)) for _ in range(3)]
    again = small_corpus.stream(7).seek(stream.position)
    rest = list(again)
    times = np.concatenate([batch.time for batch in [*taken, *rest]])
    assert times.tolist() == small_corpus.splits["train"].time.tolist()


def test_seeking_outside_and_empty_batches_are_refused(small_corpus: Corpus) -> None:
    with pytest.raises(FirehoseError, match="has 54 posts"):
        small_corpus.stream(7).seek(55)
    with pytest.raises(FirehoseError, match="at least 1"):
        small_corpus.stream(0)


def test_lengths_by_hand() -> None:
    split = ragged([2] * 50 + [9] * 49 + [40])
    assert split.share_longer(1) == 1.0
    assert split.share_longer(2) == 0.5
    assert split.share_longer(8) == 0.5
    assert split.share_longer(9) == split.share_longer(39) == 0.01
    assert split.share_longer(40) == 0.0
    assert [split.tokens_covering(share) for share in (0.01, 0.5, 0.51)] == [2, 2, 9]
    assert [split.tokens_covering(share) for share in (0.99, 0.991, 1.0)] == [9, 40, 40]
    assert split.tokens_covering() == 9
    for share in (0, -0.5, 1.01, float("nan")):
        with pytest.raises(FirehoseError, match="is no share of posts"):
            split.tokens_covering(share)


def test_without_posts_nothing_is_longer() -> None:
    assert ragged([]).share_longer(0) == 0.0
    assert ragged([]).tokens_covering() == 0


@given(
    st.lists(st.integers(2, 30), min_size=1, max_size=40),
    st.integers(0, 32),
    st.sampled_from([0.07, 0.5, 0.57, 0.9, 0.99, 1.0]),
    st.integers(1, 7),
)
def test_lengths_are_those_of_a_plain_loop(
    lengths: list[int], limit: int, share: float, chunk: int
) -> None:
    split = ragged(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "CHUNK", chunk)
        found, covering = split.share_longer(limit), split.tokens_covering(share)
    assert found == sum(length > limit for length in lengths) / len(lengths)
    enough = [
        tokens
        for tokens in range(32)
        if sum(length <= tokens for length in lengths) / len(lengths) >= share
    ]
    assert covering == enough[0]


def test_a_split_tells_the_lengths_of_its_posts(small_corpus: Corpus) -> None:
    train = small_corpus.splits["train"]
    longest = int(np.diff(train.offsets).max())
    assert train.tokens_covering(1.0) == longest
    assert train.share_longer(longest) == 0.0
    assert train.share_longer(longest - 1) > 0


def test_posts_lie_between_sot_and_eot(small_corpus: Corpus) -> None:
    vocabulary = small_corpus.vocabulary
    for split in small_corpus.splits.values():
        assert (split.tokens[split.offsets[:-1]] == vocabulary.sot).all()
        assert (split.tokens[split.offsets[1:] - 1] == vocabulary.eot).all()
        inside = np.isin(split.tokens, (vocabulary.sot, vocabulary.eot)).sum()
        assert inside == 2 * len(split)


@pytest.fixture
def copy(small_corpus: Corpus, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_corpus.path, tmp_path / "copy"))


@pytest.mark.parametrize(
    "name", ["train/tokens.npy", "vocabulary.model", "users.parquet", "test/time.npy"]
)
def test_a_damaged_file_is_refused_by_name(copy: Path, name: str) -> None:
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FirehoseError, match=f"{name} does not match its checksum"):
        Corpus(copy)
    (copy / name).write_bytes(whole[:-1])
    with pytest.raises(FirehoseError, match=rf"{name} has [\d,]+ bytes instead of"):
        Corpus(copy, check=False)
    (copy / name).unlink()
    with pytest.raises(FirehoseError, match=f"{name} is missing"):
        Corpus(copy)


def test_an_altered_or_foreign_manifest_is_refused(copy: Path) -> None:
    manifest = copy / "manifest.json"
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(body | {"users": body["users"] + 1}))
    with pytest.raises(FirehoseError, match=r"manifest\.json was altered"):
        Corpus(copy)
    manifest.write_text(json.dumps(body | {"schema_version": 99}))
    with pytest.raises(FirehoseError, match="has corpus schema 99, this Firehose reads 1"):
        Corpus(copy)
    for foreign in ("{}", "[]", '{"format": "another"}', "not JSON", ""):
        manifest.write_text(foreign)
        with pytest.raises(FirehoseError, match="is not the manifest of a corpus"):
            Corpus(copy)


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FirehoseError, match="is not a corpus: no manifest"):
        Corpus(tmp_path)
    with pytest.raises(FirehoseError, match="does not exist"):
        Corpus(tmp_path / "nothing")
