"""A batch that is computed part by part is the whole batch, masks of dropout included."""

import numpy as np
import pytest
import torch

from firehose.batch import Batch
from firehose.models.data_parallel import divided
from firehose.models.dropout import Random, Share
from firehose.models.personal import Personal
from small_models import awake, batch_of, tiny

POSTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7], [9, 8], [7, 6, 5, 4, 3], [1, 1]]
DEALT = [
    [[0, 1, 2], [3, 4, 5]],
    [[0], [1, 4], [2, 3, 5]],
    [[], [0, 1, 2, 3, 4, 5]],
    [[1, 3, 5], [0, 2, 4]],
]


def learner(dropout: float) -> tuple[Personal, Batch]:
    """A model that learns, and posts of users of whom some are new."""
    shape = dict(tiny("adapters").plan.shape) | {"dropout": dropout}
    model = awake(tiny("adapters", shape=shape, max_tokens=9))
    model.train()
    return model, batch_of(POSTS, [3, 12, 5, 11, 3, -1])


@pytest.mark.parametrize("dealt", DEALT)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["words", "outputs"])
def test_the_gradients_of_parts_add_up(dealt: list[list[int]], dropout: float, kind: str) -> None:
    model, batch = learner(dropout)
    batch = model.with_outputs(batch, 3)
    compute = model.gradient if kind == "words" else model.gradient_toward_outputs
    before = model.random.state()
    whole = compute(batch)
    after, parts = model.random.state(), []
    for posts in dealt:
        model.random.restore(before)
        parts.append(compute(batch, np.array(posts, np.int64)))
        assert model.random.state() == after
    assert sum(part.loss for part in parts) == pytest.approx(whole.loss, rel=1e-6)
    for number, expected in enumerate(whole.shared):
        found = torch.stack([part.shared[number] for part in parts]).sum(0)  # type: ignore[misc]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(sum(part.users for part in parts), whole.users)
    assert all(torch.equal(part.rows, whole.rows) for part in parts)
    assert {part.tokens for part in parts} == {whole.tokens}


def test_masks_matter() -> None:
    """With another mask the gradient is another: what is compared above could differ."""
    model, batch = learner(0.4)
    assert model.gradient(batch).loss != model.gradient(batch).loss


@pytest.mark.parametrize("rows", [slice(2, 5), np.array([0, 4, 5])])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_share_of_a_mask(rows: slice, axis: int) -> None:
    whole = Random(3).kept(torch.empty(7, 7, 5), 0.5)
    share = Share(7, rows, axis)
    like = torch.empty(7, 7, 5)[share.place]
    random = Random(3)
    assert torch.equal(random.kept(like, 0.5, share), whole[share.place])
    assert random.kept(like, 0.5, share).is_contiguous()


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_posts_are_divided_by_tokens(parts: int) -> None:
    generator = np.random.default_rng(parts)
    for posts in (0, 1, 2, 5, 300):
        tokens = generator.integers(1, 50, posts)
        found = divided(tokens, parts)
        every = np.sort(np.concatenate(found))
        assert len(found) == parts and every.tolist() == list(range(posts))
        assert all((np.diff(each) > 0).all() for each in found)
        sums = [tokens[each].sum() for each in found]
        assert max(sums) - min(sums) <= tokens.max(initial=0)


def test_the_longest_post_is_dealt_first() -> None:
    """By hand: 9 | 8, then 4 joins 8, then 2 joins 9."""
    left, right = divided(np.array([2, 9, 4, 8]), 2)
    assert (left.tolist(), right.tolist()) == ([0, 1], [2, 3])
