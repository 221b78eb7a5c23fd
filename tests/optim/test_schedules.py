"""Schedules and clipping, by hand."""

import math

import pytest
import torch

from firehose.optim.clipping import NotFinite, clip
from firehose.optim.gradient import Gradient
from firehose.optim.schedules import cosine, warmup


def test_a_warm_up_rises_in_equal_steps_and_stays() -> None:
    assert [warmup(now, 4) for now in range(7)] == [0, 0.25, 0.5, 0.75, 1, 1, 1]
    assert [warmup(now, 0) for now in range(3)] == [1, 1, 1]  # there is none
    assert [warmup(now, 1) for now in range(1, 3)] == [1, 1]


def test_a_cosine_falls_from_one_to_zero() -> None:
    expected = [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0]
    assert [cosine(done, 4) for done in range(5)] == pytest.approx(expected)


def gradient(loss: float = 1.0) -> Gradient:
    """Of norm 13: of the shared weights 3 and 4, of two users 0, 12 and 0, 0."""
    users = torch.tensor([[0.0, 12.0], [0.0, 0.0]])
    shared = [torch.tensor([[3.0]]), None, torch.tensor([4.0])]
    return Gradient(loss, shared, torch.tensor([5, 2]), users, 1)


@pytest.mark.parametrize(("most", "left"), [(None, 13.0), (20.0, 13.0), (13.0, 13.0), (1.3, 1.3)])
def test_clipping_scales_everything_to_the_largest_norm(most: float | None, left: float) -> None:
    one = gradient()
    assert clip(one, most) == 13.0
    share = left / 13
    assert one.norm() == pytest.approx(left, rel=1e-6)
    first, nothing, last = one.shared
    assert first is not None and last is not None and nothing is None
    assert first.tolist() == [[pytest.approx(3 * share, rel=1e-6)]]
    assert last.tolist() == [pytest.approx(4 * share, rel=1e-6)]
    assert one.users.flatten().tolist() == pytest.approx([0, 12 * share, 0, 0], rel=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_and_left_alone(value: float) -> None:
    for one in (gradient(loss=value), gradient()):
        if math.isfinite(one.loss):
            one.users[1, 0] = value
        with pytest.raises(NotFinite, match=r"a loss of .*, a gradient of norm"):
            clip(one, 1.0)
        with pytest.raises(NotFinite):
            clip(one, None)
        first = one.shared[0]
        assert first is not None and first.item() == 3.0


def test_a_gradient_too_long_for_its_norm_to_be_a_number_is_refused() -> None:
    one = gradient()
    one.users[0, 1] = 3e38
    one.users[1, 1] = 3e38
    with pytest.raises(NotFinite):
        clip(one, 1.0)
