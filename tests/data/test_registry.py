"""The registry of users, against a list of all names that ever came."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from firehose.data.registry import UserRegistry
from firehose.errors import FirehoseError

names = st.sampled_from("abcdef")


class Registry(RuleBasedStateMachine):
    """Any sequence of adding and forgetting leaves what a list with holes has."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = UserRegistry(["a", "b"])
        self.everyone: list[str | None] = ["a", "b"]  # by number; None: forgotten

    @rule(name=names)
    def add(self, name: str) -> None:
        if name not in self.everyone:
            self.everyone.append(name)
        assert self.registry.add(name) == self.everyone.index(name)

    @rule(name=names)
    def forget(self, name: str) -> None:
        expected = self.everyone.index(name) if name in self.everyone else None
        assert self.registry.forget(name) == expected
        if expected is not None:
            self.everyone[expected] = None

    @invariant()
    def knows_the_same(self) -> None:
        known = {name: number for number, name in enumerate(self.everyone) if name is not None}
        assert list(self.registry) == list(known)
        assert len(self.registry) == len(known)
        for name in "abcdef":
            assert self.registry.number(name) == known.get(name)
            assert (name in self.registry) == (name in known)
        for number, expected in enumerate(self.everyone):
            if expected is None:
                with pytest.raises(KeyError):
                    self.registry.name(number)
            else:
                assert self.registry.name(number) == expected


test_registry = Registry.TestCase


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_a_user_is_found_without_looking_at_the_others() -> None:
    registry = UserRegistry(Counted(f"user{number}") for number in range(10_000))
    Counted.compared = 0
    assert registry.number(Counted("user9999")) == 9_999
    assert registry.add(Counted("somebody")) == 10_000
    assert registry.forget(Counted("user5000")) == 5_000
    assert Counted.compared < 20


def test_two_users_of_one_name_are_refused() -> None:
    with pytest.raises(FirehoseError, match="two users 'ann'; each needs a name of its own"):
        UserRegistry(["ann", "bob", "ann"])
