"""What knowing the user is worth, computed by hand."""

import numpy as np
import pytest

from firehose.experiments.gains import FEWEST_USERS, Pair
from firehose.experiments.personalize import answer
from firehose.game.scoring import Costs


def costs(nats: list[float], users: list[int]) -> Costs:
    """Posts of two words each, one a day."""
    count = len(nats)
    return Costs(
        np.array(nats, float),
        np.full(count, 2),
        np.full(count, 3),
        np.array(users),
        np.arange(count) * 86_400_000,
        np.ones(count),
    )


def pair(unknown: list[float], known: list[float], users: list[int] | None = None) -> Pair:
    users = list(range(len(known))) if users is None else users
    return Pair([costs(unknown, users)], [costs(known, users)], max(users) + 1)


def test_the_gain_is_the_share_by_which_perplexity_falls() -> None:
    found = pair([4.0] * 8, [2.0] * 8)
    gain = found.gain()
    assert found.perplexities() == pytest.approx((np.exp(2), np.exp(1)))
    assert gain.value == pytest.approx(1 - np.exp(-1))
    assert gain.low == pytest.approx(gain.value) == gain.high  # every user gains the same
    assert gain.posts == 8


def test_the_interval_holds_the_gain_and_widens_as_users_differ() -> None:
    gain = pair([4.0] * 8, [1.0, 7.0] * 4).gain()
    assert gain.low < gain.value < gain.high and gain.high - gain.low > 0.5


def test_seeds_are_averaged_as_losses() -> None:
    first, second = costs([4.0], [0]), costs([8.0], [0])
    found = Pair([first, second], [first, first], 1)
    assert found.perplexities() == pytest.approx((np.exp(3), np.exp(2)))
    assert found.saved() == pytest.approx([2.0])


def test_slices_of_few_users_are_left_out() -> None:
    users = [*range(FEWEST_USERS), 0, 1]
    found = pair([4.0] * len(users), [2.0] * FEWEST_USERS + [1.0, 1.0], users)
    group = np.array([0] * FEWEST_USERS + [1, 1])
    (only,) = found.slices((group, ["many", "few"]))
    assert (only.name, only.posts, only.users) == ("many", FEWEST_USERS, FEWEST_USERS)
    assert only.known == pytest.approx(np.exp(1))


def test_users_come_in_the_order_of_what_they_gain() -> None:
    found = pair([4.0, 4.0, 4.0, 4.0], [4.0, 1.0, 3.0, 6.0], [0, 1, 1, 2]).by_user()
    assert [(each.user, each.posts) for each in found] == [(1, 2), (0, 1), (2, 1)]
    assert found[0].gain == pytest.approx(1 - np.exp(-1)) and found[2].gain < 0 == found[1].gain


def test_the_answer_says_which_of_three_things_was_seen() -> None:
    helps = answer(pair([4.0] * 8, [2.0, 2.2] * 4))
    assert helps.startswith("Knowing who writes lowers the perplexity of the next post by 6")
    assert helps.endswith("from 7.4 to 2.9 per word.")
    harms = answer(pair([2.0, 2.2] * 4, [4.0] * 8))
    assert "does not help here: it raises" in harms and "by 159 %" in harms
    low, high = (float(each) for each in harms.split("users: ")[1].split(" %")[0].split(" to "))
    assert 0 < low < 159 < high
    assert "cannot be told" in answer(pair([4.0] * 8, [1.0, 7.0] * 4))
