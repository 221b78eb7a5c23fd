"""Published lists: what they say, and what a hostile one cannot do."""

import os
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from firehose.data.sources.lists import Published, published
from firehose.errors import FirehoseError

BIG = 1_050_118_621_198_921_728  # does not fit a float
ROWS = [(7, BIG, 0), (8, 5, 0), (9_000_000_000_123, BIG + 1, 0)]


def load(*paths: Path) -> Published:
    published.cache_clear()
    return published(tuple(map(str, paths)))


def as_csv(path: Path, **columns: Any) -> Path:
    pa.csv.write_csv(pa.table(columns), path)
    return path


def as_pickle(path: Path, content: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def columns() -> dict[str, Any]:
    users, tweets, times = zip(*ROWS, strict=True)
    return {"user": list(users), "tweet": list(tweets), "time": list(times)}


def authors_pickle(path: Path, protocol: int = 4) -> Path:
    when = datetime(2018, 10, 10, 20, 19, 24, tzinfo=timezone(timedelta(hours=1)))
    triples = [(user, tweet, when) for user, tweet, _ in ROWS]
    naive = [(str(u), str(t), w.replace(tzinfo=None)) for u, t, w in triples]
    content = {"meta_data": {"n": 3, "at": [when.astimezone(UTC)]}, "data": triples + naive}
    return as_pickle(path, content, protocol)


@pytest.mark.parametrize(
    ("ending", "write"),
    [
        ("csv", lambda path: as_csv(path, **columns())),
        ("parquet", lambda path: pq.write_table(pa.table(columns()), path)),
        ("pkl", authors_pickle),
    ],
)
def test_every_format_says_the_same(
    tmp_path: Path, ending: str, write: Callable[[Path], object]
) -> None:
    path = tmp_path / f"Firehose10M_Validation.{ending}"
    write(path)
    lists = load(path)
    for user, tweet, _ in ROWS:
        assert lists.split_of(str(tweet), str(user)) == "validation"
        assert lists.split_of(str(tweet), str(user + 1)) == ""
        assert lists.split_of(str(tweet), "ann") == ""
    for tweet_id in ("4", str(BIG - 1), str(BIG + 2), str(2**70), "x", "-5", "²"):
        assert lists.split_of(tweet_id, "7") is None
    assert sum(array.itemsize for array in lists) == 13


def test_a_split_column_rules_over_the_name(tmp_path: Path) -> None:
    splits = ["train", "validation", "test", "valid", "dev"]
    path = as_csv(tmp_path / "test.csv", user_id=[1] * 5, tweet_id=[1, 2, 3, 4, 5], split=splits)
    lists = load(path)
    found = [lists.split_of(str(tweet), "1") for tweet in range(1, 6)]
    assert found == ["train", "validation", "test", "validation", "validation"]
    as_csv(path, user_id=[1], id=[1], split=["holdout"])
    with pytest.raises(FirehoseError, match=r"names a split 'holdout'.*train, validation, test"):
        load(path)


@pytest.mark.parametrize("name", ["posts.csv", "latest.csv", "train-and-test.csv"])
def test_a_name_that_tells_no_split_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(FirehoseError, match="let its name contain one of train, valid and test"):
        load(as_csv(tmp_path / name, **columns()))


def test_contradictions_are_errors(tmp_path: Path) -> None:
    as_csv(tmp_path / "train.csv", user=[1, 1], tweet=[3, 4])
    as_csv(tmp_path / "train2.csv", user=[1], tweet=[4])
    assert load(tmp_path).split_of("4", "1") == "train"
    as_csv(tmp_path / "dev.csv", user=[1], tweet=[4])
    with pytest.raises(FirehoseError, match=r"Tweet 4 is listed twice .* another split"):
        load(tmp_path)
    as_csv(tmp_path / "dev.csv", user=[2], tweet=[3], split=["train"])
    with pytest.raises(FirehoseError, match=r"Tweet 3 is listed twice .* another user"):
        load(tmp_path)


def test_unreadable_lists_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FirehoseError, match="has no column user or user_id but who, tweet"):
        load(as_csv(tmp_path / "train.csv", who=[1], tweet=[1]))
    for users, tweets in (([1], ["x"]), ([1], [1.5]), ([1, 2], [1, None])):
        with pytest.raises(FirehoseError, match="not a readable list"):
            load(as_csv(tmp_path / "train.csv", user=users, tweet=tweets))
    with pytest.raises(
        FirehoseError, match=r"not a readable list .*: ValueError: an id is missing\."
    ):
        pq.write_table(pa.table({"user": [1, 2], "tweet": [1, None]}), tmp_path / "train.parquet")
        load(tmp_path / "train.parquet")
    whole = pickle.dumps({"data": [(1, 2, None)]})
    wrong = map(pickle.dumps, ([1], {"date": []}, {"data": [(1, 2)]}))
    for content in (b"", b"junk", whole[:-3], *wrong):
        (tmp_path / "train.pkl").write_bytes(content)
        with pytest.raises(FirehoseError, match="not a readable list"):
            load(tmp_path / "train.pkl")


class Call:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_list_pickled_by_any_protocol_is_read(tmp_path: Path, protocol: int) -> None:
    newest = load(authors_pickle(tmp_path / "train-5.pkl", 5))
    assert load(authors_pickle(tmp_path / "train.pkl", protocol)).tweets.tolist() == (
        newest.tweets.tolist()
    )


def test_bytes_are_all_that_the_admitted_call_can_make(tmp_path: Path) -> None:
    import codecs

    content = {"meta_data": Call(codecs.encode, "exotic", "rot13"), "data": []}
    with pytest.raises(FirehoseError, match="strange bytes"):
        load(as_pickle(tmp_path / "train.pkl", content, 2))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_calls_is_refused_and_not_executed(tmp_path: Path, protocol: int) -> None:
    touched = tmp_path / "touched"
    for function, name, argument in (
        (os.system, r"\w+\.system", f"touch {touched}"),
        (eval, r"\w+\.eval", f"__import__('pathlib').Path({str(touched)!r}).touch()"),
    ):
        content = {"meta_data": Call(function, argument), "data": [(1, 2, None)]}
        path = as_pickle(tmp_path / "train.pkl", content, protocol)
        with pytest.raises(FirehoseError, match=rf"train\.pkl calls for {name}, which no list"):
            load(path)
        assert not touched.exists()
        pickle.loads(path.read_bytes())  # shows that it would have been executed
        touched.unlink()


def test_dotted_names_and_persistent_ids_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.pkl"
    path.write_bytes(b"\x80\x04\x8c\x08datetime\x8c\x0cdatetime.now\x93.")
    with pytest.raises(FirehoseError, match=r"calls for datetime\.datetime\.now"):
        load(path)
    path.write_bytes(b"Pelsewhere\n.")
    with pytest.raises(FirehoseError, match=r"refers to an object outside of it \('elsewhere'\)"):
        load(path)


def test_lists_are_loaded_once(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "train.csv", **columns())
    lists = load(path)
    path.unlink()
    assert published((str(path),)) is lists
