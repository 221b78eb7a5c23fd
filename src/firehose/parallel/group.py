"""What processes do together: add up tensors, agree, and let the first one do something for all.

Alone, each of these is what one process would do, at no cost. All processes make the same calls in
the same order.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from firehose.errors import FirehoseError
from firehose.parallel.place import LostError

Result = TypeVar("Result")
CPU = torch.device("cpu")


def size() -> int:
    """The number of processes that play together; 1: this one is alone."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_first() -> bool:
    """Whether this is the process that writes."""
    return rank() == 0


def add_up(values: Tensor) -> None:
    """Let a tensor become the sum of those of all processes, bit by bit the same in each."""
    if size() > 1:
        with _reaching():
            dist.all_reduce(values)


def anybody(flag: bool) -> bool:
    """Whether a flag is set in any process."""
    flags = torch.tensor([float(flag)])
    add_up(flags)
    return bool(flags[0] > 0)


def first(function: Callable[..., Result], *arguments: Any) -> Result:
    """Let the first process call a function, while the others wait; all get what it returns.

    Where it raises an error, all do.
    """
    if size() == 1:
        return function(*arguments)
    told: list[Any] = [None, None]
    if is_first():
        try:
            told[0] = function(*arguments)
        except Exception as error:
            _broadcast([None, _portable(error)])
            raise
    _broadcast(told)
    result, failure = told
    if failure is not None:
        raise failure
    return result  # type: ignore[no-any-return]


@contextmanager
def first_in(context: AbstractContextManager[Any]) -> Iterator[None]:
    """Let the first process be in a context, as that of a lock, while all do what is inside."""
    with ExitStack() as stack:
        first(lambda: stack.enter_context(context) and None)
        yield


def _broadcast(told: list[Any]) -> None:
    with _reaching():
        dist.broadcast_object_list(told, 0, device=CPU)


def _portable(error: Exception) -> Exception:
    """An error as it can be sent: what is ours, the system's or a broken number's, or its text."""
    if isinstance(error, FirehoseError | OSError | ArithmeticError | MemoryError):
        return error
    return RuntimeError(f"the first process failed: {error!r}")


@contextmanager
def _reaching() -> Iterator[None]:
    """What torch says when another process is gone, as a sentence."""
    try:
        yield
    except RuntimeError as error:
        raise LostError from error
