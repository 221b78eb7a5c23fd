"""Functions of arrays that are compiled to machine code: loops with a decision at every step."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

Takes = ParamSpec("Takes")
Gives = TypeVar("Gives")


def compiled(function: Callable[Takes, Gives]) -> Callable[Takes, Gives]:
    """Compile a function of numbers and arrays when it is first called.

    What was compiled is kept beside the module, or in the user's cache, for the next process.
    It must name no class, or another version of the code could not read it: so a function takes
    arrays, numbers and plain tuples of them. Whole numbers with and without a sign must not meet in
    it: together they become fractions.
    """
    made: Callable[Takes, Gives] = numba.njit(cache=True, nogil=True)(function)
    return made
