"""Functions of arrays that are compiled to machine code: loops with a decision at every step."""

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

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
    made: Any = numba.njit(cache=True, nogil=True)(function)
    folder = Path(function.__code__.co_filename).parent
    try:
        kept = made._cache._cache_file
        kept._source_stamp = (kept._source_stamp, _sources(folder))
    except AttributeError:  # another numba, or one that compiles nothing
        made = numba.njit(nogil=True)(function)
    result: Callable[Takes, Gives] = made
    return result


@cache
def _sources(folder: Path) -> str:
    """A checksum of all modules of a folder.

    numba looks only at the file of a function itself, and would go on with what it has compiled of
    a function in another file that has changed since.
    """
    files = sorted(folder.glob("*.py"))
    return blake2b(b"\0".join(file.read_bytes() for file in files), digest_size=16).hexdigest()
