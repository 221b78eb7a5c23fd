"""The table of users: grows, averages, forgets, against a dictionary that does the same."""

from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from firehose.models.users import NOBODY, Users
from small_methods import stored


class Table(RuleBasedStateMachine):
    """Any sequence of taking, moving and forgetting leaves the same vectors as in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.users = Users(2)
        self.expected: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}

    @rule(users=st.lists(st.integers(0, 300), min_size=1, max_size=9))
    def learn(self, users: list[int]) -> None:
        mean = np.mean(list(self.expected.values()), 0) if self.expected else np.zeros(2)
        taken = self.users.take(np.array(users), learn=True)
        for user in sorted(set(users)):
            self.expected.setdefault(user, mean)
        found = taken.vectors[taken.which].detach().numpy()
        np.testing.assert_allclose(found, [self.expected[user] for user in users], atol=1e-4)

    @rule(user=st.integers(0, 300), x=st.floats(-3, 3, width=32))
    def move(self, user: int, x: float) -> None:
        if user in self.expected:
            rows = torch.from_numpy(self.users.rows(np.array([user])))
            self.users.put(rows, torch.tensor([[x, -x]]))
            self.expected[user] = np.array([x, -x])

    @rule(user=st.integers(0, 300))
    def forget(self, user: int) -> None:
        assert self.users.forget(user) == (user in self.expected)
        self.expected.pop(user, None)

    @rule(user=st.integers(301, 999))
    def look_at_somebody_unknown(self, user: int) -> None:
        taken = self.users.take(np.array([user, NOBODY]), learn=False)
        mean = np.mean(list(self.expected.values()), 0) if self.expected else np.zeros(2)
        np.testing.assert_allclose(taken.vectors[taken.which[0]].numpy(), mean, atol=1e-4)
        assert not taken.vectors.requires_grad

    @rule()
    def store(self) -> None:
        """Go on with another table, from what was stored."""
        state, self.users = stored(self.users.state()), Users(2)
        self.users.restore(state)

    @invariant()
    def holds_everybody_once(self) -> None:
        assert len(self.users) == len(self.expected)
        known = np.array(sorted(self.expected), np.int64)
        rows = self.users.rows(known)
        assert sorted(rows.tolist()) == list(range(len(known)))
        for user, row in zip(known.tolist(), rows.tolist(), strict=True):
            np.testing.assert_allclose(self.users.vectors[row], self.expected[user], atol=1e-4)
        assert (self.users.vectors[len(known) :] == 0).all()


Table.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestTable = Table.TestCase


@pytest.mark.parametrize("start", ["mean", "zero"])
def test_new_users_begin_at_the_mean_or_at_zero(start: Literal["mean", "zero"]) -> None:
    users = Users(2, start)
    users.enter(np.array([4, 7]), torch.tensor([[1.0, 2.0], [3.0, -6.0]]))
    expected = [2.0, -2.0] if start == "mean" else [0.0, 0.0]
    assert users.take(np.array([9, NOBODY]), learn=False).vectors.tolist() == [expected] * 2
    assert len(users) == 2  # who is only looked at gets no row
    assert users.take(np.array([9, NOBODY]), learn=True).rows.tolist() == [-1, 2]
    assert users.vectors[2].tolist() == expected
    assert users.numbers().tolist() == [4, 7, 9]
