"""State of rows: it follows its user, against a dictionary that does the same."""

import numpy as np
import torch
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from firehose.models.users import Users
from firehose.optim.rows import RowState
from small_methods import stored

users = st.integers(0, 150)


class Table(RuleBasedStateMachine):
    """Whatever happens to the table of users, each has the state that was last set for it."""

    def __init__(self) -> None:
        super().__init__()
        self.users = Users(2)
        self.pairs = RowState(self.users, (2,))
        self.counts = RowState(self.users, dtype=torch.int64)
        self.expected: dict[int, tuple[int, int]] = {}  # of each user: a pair, twice its count

    @rule(met=st.lists(users, min_size=1, max_size=80))
    def meet(self, met: list[int]) -> None:
        """New users start at zero."""
        self.users.take(np.array(met), learn=True)
        for user in met:
            self.expected.setdefault(user, (0, 0))

    @rule(user=users, first=st.integers(-9, 9), second=st.integers(1, 9))
    def set(self, user: int, first: int, second: int) -> None:
        """Set the state of a user, and of no other."""
        if user in self.expected:
            rows = self._rows([user])
            self.pairs[rows] = torch.tensor([[float(first), float(second)]])
            self.counts[rows] = torch.tensor([first + second])
            self.expected[user] = (first, second)

    @rule(user=users)
    def forget(self, user: int) -> None:
        """The state of who is forgotten is gone."""
        assert self.users.forget(user) == (self.expected.pop(user, None) is not None)

    @rule()
    def store(self) -> None:
        """Go on with another table, from what was stored."""
        tables = {"pairs": self.pairs.state(), "counts": self.counts.state()}
        state, self.users = stored({"users": self.users.state(), **tables}), Users(2)
        self.pairs = RowState(self.users, (2,))
        self.counts = RowState(self.users, dtype=torch.int64)
        self.users.restore(state["users"])
        self.pairs.restore(state["pairs"])
        self.counts.restore(state["counts"])

    @invariant()
    def everybody_has_the_own_state(self) -> None:
        """Of everybody who is there; and there is no other."""
        known = sorted(self.expected)
        rows = self._rows(known)
        assert self.pairs[rows].tolist() == [list(self.expected[user]) for user in known]
        assert self.counts[rows].tolist() == [sum(self.expected[user]) for user in known]
        assert self.pairs.state().shape == (len(known), 2)
        assert self.counts.state().dtype == torch.int64
        assert (self.pairs.values[len(known) :] == 0).all()

    def _rows(self, met: list[int]) -> torch.Tensor:
        return torch.from_numpy(self.users.rows(np.array(met, np.int64)))


Table.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestTable = Table.TestCase


def test_state_that_is_attached_late_starts_at_zero_for_all() -> None:
    table = Users(2)
    table.take(np.arange(70), learn=True)
    late = RowState(table, (3,))
    assert late.state().shape == (70, 3) and not late.state().any()
