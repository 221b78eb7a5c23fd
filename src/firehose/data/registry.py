"""Which user has which number: names by number and numbers by name, for users who keep coming."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from firehose.errors import FirehoseError


class UserRegistry:
    """Users' names, numbered 0, 1, … as they are added.

    Finding a user takes the same time however many there are. A number is given once: also after
    its user is forgotten, nobody else gets it.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Number ``names`` in their order; raises an error where one of them comes twice."""
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._next = 0
        for name in names:
            if name in self._numbers:
                raise FirehoseError(f"There are two users {name!r}; each needs a name of its own.")
            self.add(name)

    @classmethod
    def numbered(cls, numbers: Mapping[str, int]) -> Self:
        """Users who have their numbers already, no two the same; new ones follow the largest."""
        made = cls()
        made._numbers = dict(numbers)
        made._names = {number: name for name, number in numbers.items()}
        made._next = max(numbers.values(), default=-1) + 1
        return made

    def state(self) -> dict[str, Any]:
        """Names and numbers, and the number of who comes next."""
        return {
            "names": list(self._numbers),
            "numbers": list(self._numbers.values()),
            "next": self._next,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """The registry that ``state`` was taken from."""
        made = cls.numbered(dict(zip(state["names"], state["numbers"], strict=True)))
        made._next = state["next"]
        return made

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def add(self, name: str) -> int:
        """The number of a user, who gets the next one if new."""
        number = self._numbers.setdefault(name, self._next)
        if number == self._next:
            self._names[number] = name
            self._next += 1
        return number

    def number(self, name: str) -> int | None:
        """The number of a user; None for somebody unknown."""
        return self._numbers.get(name)

    def name(self, number: int) -> str:
        """The name of the user with this number; raises a KeyError where nobody has it."""
        return self._names[number]

    def forget(self, name: str) -> int | None:
        """Remove a user's name; returns the number that was the user's, None for somebody unknown.

        Added again, the user is a new one.
        """
        number = self._numbers.pop(name, None)
        if number is not None:
            del self._names[number]
        return number
