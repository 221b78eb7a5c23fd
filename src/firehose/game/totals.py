"""Totals by unit: what a number is computed from, and how sure it is.

A unit is a user, with the nats and words of their posts, or a task, with the pictures that were
named rightly and all of them. Intervals come from samples of units, not of posts: posts of one user
are not independent of each other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
AT_ONCE, CELLS = 50, 2**22  # samples in memory, and samples × units


@dataclass(frozen=True)
class Measured:
    """A number, and the interval in which 95 of 100 samples have it."""

    value: float
    low: float
    high: float
    posts: int | None = None  # that it was measured on


@dataclass(frozen=True)
class Scale:
    """How ratios of totals are told to people; both functions take numbers or arrays."""

    name: str
    value: Callable[[Any], Any]  # of a ratio
    change: Callable[[Any], Any]  # of the difference of two ratios
    unit: str  # of a change, as it is shown
    shown: float = 1  # what a change is multiplied by then


def _percent(share: Any) -> Any:
    return 100 * share


PERPLEXITY = Scale("perplexity", np.exp, np.expm1, "change, %", 100)  # of nats by words
ACCURACY = Scale("accuracy", _percent, _percent, "difference, points")  # of right ones by all


@dataclass(frozen=True)
class Totals:
    """An amount and a count for every unit, or several such rows that are added and taken away.

    On the scale of perplexity nats and words of users, on that of accuracy right ones and all
    pictures of tasks.
    """

    amount: NDArray[np.float64]  # [rows, units]
    count: NDArray[np.float64]  # [rows, units]
    scale: Scale = PERPLEXITY
    sign: tuple[int, ...] = (1,)  # of each row: 1, or −1

    def less(self, other: "Totals") -> "Totals":
        """The difference of two on one scale, over the same units."""
        return Totals(
            np.concatenate([self.amount, other.amount]),
            np.concatenate([self.count, other.count]),
            self.scale,
            (*self.sign, *(-sign for sign in other.sign)),
        )

    @property
    def units(self) -> NDArray[np.bool_]:
        """Which units count in any row, [units]."""
        return np.asarray(self.count.any(0))

    def ratio(self) -> float:
        """Amount by count over all units; added up over the rows, with their signs."""
        return float(self.amount.sum(1) / self.count.sum(1) @ self.sign)

    def ratios(self, times: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same in samples, with how often each unit is in each: [samples, units] → [samples].

        Not a number, where a sample has no unit that counts in a row.
        """
        with np.errstate(invalid="ignore"):
            return np.asarray((times @ self.amount.T) / (times @ self.count.T) @ self.sign)

    def value(self) -> float:
        """The perplexity, or the accuracy in percent; of a difference, a ratio or points."""
        return float(self.scale.value(self.ratio()))

    def measured(self, generator: np.random.Generator, posts: int | None = None) -> Measured:
        """The value, and its interval over samples of as many units."""
        drawn = [self.ratios(times) for times in samples(self.units, generator)]
        low, high = self.scale.value(np.quantile(np.concatenate(drawn), [0.025, 0.975])).tolist()
        return Measured(self.value(), low, high, posts)


def samples(
    chosen: NDArray[np.bool_], generator: np.random.Generator, count: int = RESAMPLES
) -> Iterator[NDArray[np.int64]]:
    """How often each unit is in samples, with replacement, of as many as there are chosen ones.

    Yields blocks of [samples, units] that fit into memory, ``count`` samples in all.
    """
    units = np.flatnonzero(chosen)
    at_once = max(min(AT_ONCE, CELLS // len(chosen)), 1)
    for first in range(0, count, at_once):
        times = np.zeros((min(at_once, count - first), len(chosen)), np.int64)
        for row in times:
            drawn = generator.integers(0, len(units), len(units))
            row[units] = np.bincount(drawn, minlength=len(units))
        yield times
