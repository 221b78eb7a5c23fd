"""Batches: posts of one length behave as any others do, with and without columns of a method's."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firehose.batch import Batch, UniformBatch

WIDTH = 5


def uniform(posts: int, seed: int = 0, columns: str = "") -> UniformBatch:
    """Posts of one length, with a column for each post, for each token, or both."""
    generator = np.random.default_rng(seed)
    batch = UniformBatch.from_matrix(
        generator.integers(0, 256, (posts, WIDTH), dtype=np.uint8),
        generator.integers(0, 3, posts, dtype=np.int32),
        np.arange(posts, dtype=np.int64),
        np.ones(posts, np.int32),
    )
    per_post = {"loss": generator.normal(size=posts)} if "post" in columns else {}
    per_token = {"logits": generator.normal(size=(posts * WIDTH, 2))} if "token" in columns else {}
    return batch.with_columns(per_post, per_token)


def ragged(batch: UniformBatch) -> Batch:
    """The same posts as an ordinary batch."""
    return Batch(**{field.name: getattr(batch, field.name) for field in dataclasses.fields(Batch)})


def same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)
    return bool(np.array_equal(one, two)) and one.dtype == two.dtype


def assert_same(one: Batch, two: Batch) -> None:
    for field in dataclasses.fields(Batch):
        assert same(getattr(one, field.name), getattr(two, field.name)), field.name


@given(
    st.integers(1, 9),
    st.lists(st.integers(0, 8)),
    st.sampled_from(["", "post", "token", "post token"]),
)
def test_posts_of_one_length_are_posts(posts: int, some: list[int], columns: str) -> None:
    images = uniform(posts, columns=columns)
    chosen = np.array([index % posts for index in some], np.int64)
    assert_same(images.select(chosen), ragged(images).select(chosen))
    others = uniform(4, seed=1, columns=columns)
    assert_same(UniformBatch.join([images, others]), Batch.join([ragged(images), ragged(others)]))
    assert_same(UniformBatch.from_rows(images.to_rows(WIDTH)), images)
    assert_same(Batch.from_rows(ragged(images).to_rows(WIDTH)), ragged(images))
    assert isinstance(images.select(chosen), UniformBatch)


def test_no_posts_of_one_length_stay_none() -> None:
    nobody = np.zeros(0, np.int64)
    none = uniform(3).select(nobody)
    assert len(none) == 0 == len(none.select(nobody))
    assert_same(UniformBatch.join([uniform(3), none]), uniform(3))


@pytest.mark.parametrize("make", [uniform, lambda *_, **more: ragged(uniform(*_, **more))])
def test_joining_keeps_the_columns_that_all_have(make: Any) -> None:
    both = type(make(2)).join([make(2, columns="post token"), make(3, columns="post")])
    assert set(both.per_post) == {"loss"} and not both.per_token
    assert not type(make(2)).join([make(2, columns="post"), make(3)]).per_post
