"""Batches: chosen from, joined and laid out in rows as lists of posts are."""

import dataclasses
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from firehose.batch import Batch, UniformBatch, gather
from small_models import batch_of

Post = tuple[tuple[int, ...], int, int, int, float, tuple[float, ...]]
texts = st.lists(st.integers(0, 60_000), min_size=1, max_size=6)
posts = st.lists(st.tuples(texts, st.integers(-1, 9)), max_size=8)


def made(posts: list[tuple[list[int], int]], first: int = 0) -> Batch:
    """A batch of these texts and users, with a column for posts and one for tokens."""
    batch = batch_of([text for text, _ in posts], [user for _, user in posts])
    batch = dataclasses.replace(batch, time=first + np.arange(len(posts)))
    halves = batch.tokens / 2
    return batch.with_columns({"third": batch.time / 3}, {"half": halves})


def listed(batch: Batch) -> list[Post]:
    """The posts one by one: text, user, time, words and the columns."""
    bounds = zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True)
    return [
        (
            tuple(batch.tokens[start:end].tolist()),
            int(batch.user[number]),
            int(batch.time[number]),
            int(batch.words[number]),
            float(batch.per_post["third"][number]),
            tuple(batch.per_token["half"][start:end].tolist()),
        )
        for number, (start, end) in enumerate(bounds)
    ]


@given(posts, st.data())
def test_a_selection_has_the_posts_in_that_order(
    posts: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    batch = made(posts)
    places = st.lists(st.integers(0, len(posts) - 1), max_size=9) if posts else st.just([])
    indices = data.draw(places)
    selected = batch.select(np.array(indices, np.int64))
    assert listed(selected) == [listed(batch)[index] for index in indices]
    assert selected.lengths.tolist() == [len(posts[index][0]) for index in indices]
    assert len(selected) == len(indices)


@given(st.lists(posts, min_size=1, max_size=4))
def test_joined_batches_are_one_after_another(parts: list[list[tuple[list[int], int]]]) -> None:
    batches = [made(part, first=10 * number) for number, part in enumerate(parts)]
    assert listed(Batch.join(batches)) == [post for batch in batches for post in listed(batch)]


def test_joined_batches_have_the_columns_that_all_of_them_have() -> None:
    one = made([([1, 2], 0)]).with_columns({"more": np.ones(1)})
    other = made([([3], 1)])
    joined = Batch.join([one, other])
    assert set(joined.per_post) == {"third"} and set(joined.per_token) == {"half"}
    assert not Batch.join([one, batch_of([[3]])]).per_post


@given(posts, st.integers(1, 7))
def test_rows_are_the_posts_cut(posts: list[tuple[list[int], int]], most: int) -> None:
    batch = made(posts)
    rows = batch.to_rows(most)
    assert all(len(column) == len(batch) for column in rows.values())
    again = Batch.from_rows(rows)
    cut = [
        (text[:most], user, time, words, third, halves[:most])
        for text, user, time, words, third, halves in listed(batch)
    ]
    assert listed(again) == cut
    same_types = zip(columns(batch).values(), columns(again).values(), strict=True)
    assert all(one.dtype == other.dtype for one, other in same_types)


def columns(batch: Batch) -> dict[str, Any]:
    own = {name: getattr(batch, name) for name in ("tokens", "offsets", "user", "time", "words")}
    return {**own, **batch.per_post, **batch.per_token}


@given(st.integers(0, 5), st.integers(1, 4), st.booleans(), st.booleans(), st.data())
def test_a_uniform_batch_does_what_any_batch_does(
    count: int, width: int, per_post: bool, per_token: bool, data: st.DataObject
) -> None:
    matrix = np.arange(count * width, dtype=np.uint8).reshape(count, width)
    rest = (np.arange(count, dtype=np.int32), np.arange(count), np.ones(count, np.int32))
    uniform = UniformBatch.from_matrix(matrix, *rest)
    if per_post:
        uniform = uniform.with_columns({"x": np.arange(count) / 3})
    if per_token:
        uniform = uniform.with_columns({}, {"y": uniform.tokens / 2})
    plain = Batch(*(getattr(uniform, field.name) for field in dataclasses.fields(Batch)))
    places = st.lists(st.integers(0, count - 1), max_size=6) if count else st.just([])
    indices = np.array(data.draw(places), np.int64)
    pairs = [
        (uniform.select(indices), plain.select(indices)),
        (UniformBatch.join([uniform, uniform]), Batch.join([plain, plain])),
        (UniformBatch.from_rows(uniform.to_rows(width)), Batch.from_rows(plain.to_rows(width))),
    ]
    for found, expected in pairs:
        assert type(found) is UniformBatch
        assert columns(found).keys() == columns(expected).keys()
        for name, column in columns(expected).items():
            assert np.array_equal(columns(found)[name], column), name
            assert columns(found)[name].dtype == column.dtype, name
    assert ("length" in uniform.to_rows(width)) is per_token  # a matrix needs no lengths


def test_columns_are_added_and_replaced_and_the_batch_stays_as_it_was() -> None:
    batch = batch_of([[1, 2], [3]])
    one = batch.with_columns({"a": np.zeros(2)}, {"t": np.zeros(3)})
    two = one.with_columns({"a": np.ones(2), "b": np.zeros((2, 5))})
    assert not batch.per_post and one.per_post["a"].tolist() == [0, 0]
    assert two.per_post["a"].tolist() == [1, 1] and set(two.per_post) == {"a", "b"}
    assert set(two.per_token) == {"t"}
    assert two.select(np.array([1])).per_post["b"].shape == (1, 5)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=6))
def test_gathered_places_are_those_of_a_loop(spans: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array([span[n] for span in spans], np.int64) for n in (0, 1))
    places, offsets = gather(starts, lengths)
    assert places.tolist() == [start + n for start, length in spans for n in range(length)]
    assert offsets.tolist() == [0, *np.cumsum(lengths).tolist()]


def test_a_batch_without_posts_is_false() -> None:
    assert batch_of([[1]])
    assert not batch_of([[1]]).select(np.zeros(0, np.int64))
