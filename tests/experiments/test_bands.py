"""Bands around curves against a baseline: as wide as users and seeds differ."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firehose.experiments import bands
from firehose.experiments.bands import ratio_bands, smooth
from firehose.experiments.ledger import Group
from firehose.game.scoring import Costs
from firehose.game.settings import Kind

POSTS, USERS = 4000, 40
USER = np.arange(POSTS) % USERS


@dataclass(frozen=True)
class Paid:
    """A run that is over, with what each post cost more than the baseline's 5 nats a word."""

    seed: int
    more: Any = field(compare=False)
    folder: Path = Path("none")
    corpus: Any = None
    kind: Kind = "play"


def group(*more: float | NDArray[np.float64]) -> Group:
    """A run for each seed."""
    return Group({}, tuple(Paid(seed, each) for seed, each in enumerate(more)))


@pytest.fixture(autouse=True)
def paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten words a post."""

    def read(job: Paid) -> Costs:
        words = np.full(POSTS, 10)
        nats = 10 * (5 + np.broadcast_to(job.more, POSTS))
        return Costs(nats, words, words, USER, np.arange(POSTS), np.ones(POSTS))

    monkeypatch.setattr(bands, "_paid", read)


def both(ours: Group, theirs: Group) -> tuple[bands.Band, bands.Band]:
    found = ratio_bands(ours, theirs)
    assert found is not None
    return found


def test_what_all_users_and_seeds_agree_on_has_no_width() -> None:
    for band in both(group(-0.2, -0.2), group(0, 0)):
        assert band.low.shape == (200,)
        assert band.low == pytest.approx(np.exp(-0.2)) == band.high


def test_one_seed_has_a_band_over_users() -> None:
    by_user = np.random.default_rng(0).normal(-0.2, 0.3, USERS)
    for band in both(group(by_user[USER]), group(0)):
        width = np.log(band.high / band.low)
        deviation = 3.92 * by_user.std() / np.sqrt(USERS)  # 95 % of the means of samples
        assert width[-1] == pytest.approx(deviation, rel=0.15)
        middle = np.log(band.high * band.low) / 2
        assert middle[-1] == pytest.approx(by_user.mean(), abs=0.03)


def test_seeds_that_differ_widen_it() -> None:
    for band in both(group(-0.1, -0.3), group(0, 0)):
        assert band.low == pytest.approx(np.exp(-0.3))
        assert band.high == pytest.approx(np.exp(-0.1))


def test_a_change_is_seen_at_once_at_the_time_and_slowly_on_average() -> None:
    later = np.where(np.arange(POSTS) < POSTS // 2, 0, -1.0)
    so_far, at_the_time = both(group(later), group(0))
    assert so_far.low[-1] == pytest.approx(np.exp(-0.5))
    assert at_the_time.low[-1] == pytest.approx(np.exp(-1))
    assert so_far.low[0] == at_the_time.low[0] == 1


def test_only_common_seeds_and_posts_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Group({}, (Paid(7, 0.0),))
    assert ratio_bands(group(-0.2), other) is None
    monkeypatch.setattr(bands, "_paid", lambda _: None)
    assert ratio_bands(group(-0.2), group(0)) is None


def test_smoothing_leaves_out_what_is_not_a_number() -> None:
    values = np.array([1.0, np.nan, 3, 5, 7])
    assert smooth(values, 3) == pytest.approx([1, 2, 4, 5, 6])
    assert np.isnan(smooth(np.full((2, 5), np.nan))).all()
