"""What processes do together: add up tensors, agree, and let the first one do something for all.

Alone, each of these is what one process would do, at no cost. All processes make the same calls in
the same order. What they send each other is numbers and JSON: nothing that could run code.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from firehose.errors import FirehoseError
from firehose.parallel.place import LostError
from firehose.parallel.shared import SharedSums

Result = TypeVar("Result")
ANSWER = -1  # in place of the number of a part, when the first process has done what it had to


class Part(Protocol):
    """What this process holds of something; the first one may ask all for theirs."""

    def bytes_of(self, start: int, stop: int) -> Tensor:
        """The bytes of this process's share of some rows."""


# By number, which is the same in all processes. See ``first``.
_parts: WeakValueDictionary[int, Part] = WeakValueDictionary()
_count = 0  # of parts there ever were
_sums: SharedSums | None = None  # where all processes are on one machine


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
    if size() == 1:
        return
    if _sums is not None and values.device.type == "cpu":
        _sums.add_up(values)
        return
    with _reaching():
        dist.all_reduce(values)


def added_up(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The sums of tensors of one kind over all processes, in one message: each has its price."""
    flat = torch.cat([each.flatten() for each in tensors])
    add_up(flat)
    parts = flat.split([each.numel() for each in tensors])
    return [part.view_as(each) for part, each in zip(parts, tensors, strict=True)]


@contextmanager
def adding_up_in(sums: SharedSums | None) -> Iterator[None]:
    """Inside, tensors of the CPU are added up in memory that is shared, if there is any."""
    global _sums  # noqa: PLW0603 (as there is one group of processes)
    before, _sums = _sums, sums
    try:
        yield
    finally:
        _sums = before


def gather(values: Tensor) -> Tensor:
    """The tensors of all processes, which are of one shape, one after another."""
    found = values.new_empty(size(), *values.shape)
    with _reaching():
        dist.all_gather(list(found), values)
    return found


def anybody(*flags: bool) -> list[bool]:
    """Whether each of some flags is set in any process."""
    raised = torch.tensor(flags, dtype=torch.int64)
    add_up(raised)
    return (raised > 0).tolist()


def first(function: Callable[..., Result], *arguments: Any) -> Result:
    """Let the first process call a function, while the others wait; all get what it returns.

    That is a value of JSON. Where it raises an error, all do. Inside, the first process may ask
    the others for their shares of what is divided among them: they answer while they wait.
    """
    if size() == 1:
        return function(*arguments)
    if not is_first():
        return _result(_serve())  # type: ignore[no-any-return]
    try:
        result = function(*arguments)
        answer = json.dumps({"result": result})
    except Exception as error:
        _tell(json.dumps(_told(error)))
        raise
    _tell(answer)
    return result


@contextmanager
def first_in(context: AbstractContextManager[Any]) -> Iterator[None]:
    """Let the first process be in a context, as that of a lock, while all do what is inside."""
    with ExitStack() as stack:
        first(lambda: stack.enter_context(context) and None)
        yield


def enroll(part: Part) -> int:
    """Give a part a number to ask for it by; all processes enroll theirs in the same order."""
    global _count  # noqa: PLW0603 (as there is one group, there is one list of parts)
    _count += 1
    _parts[_count] = part
    return _count


def ask(number: int, start: int, stop: int, sizes: list[int]) -> list[Tensor]:
    """The bytes of all processes' shares of some rows, for the first one inside ``first``.

    ``sizes`` are the bytes of each, which the first one knows.
    """
    found = [torch.empty(count, dtype=torch.uint8) for count in sizes]
    found[0] = _parts[number].bytes_of(start, stop)
    with _reaching():
        dist.broadcast(torch.tensor([number, start, stop]), 0)
        for source in range(1, size()):
            dist.recv(found[source], source)
    return found


def _serve() -> str:
    """Answer what the first process asks, until it has done what it had to; returns its answer."""
    asked = torch.zeros(3, dtype=torch.int64)
    with _reaching():
        while True:
            dist.broadcast(asked, 0)
            number, start, stop = asked.tolist()
            if number == ANSWER:
                break
            dist.send(_parts[number].bytes_of(start, stop), 0)
        answer = torch.empty(start, dtype=torch.uint8)
        dist.broadcast(answer, 0)
    return answer.numpy().tobytes().decode()


def _tell(answer: str) -> None:
    """Tell the processes that wait in ``first`` how it ended."""
    content = torch.frombuffer(bytearray(answer.encode()), dtype=torch.uint8)
    with _reaching():
        dist.broadcast(torch.tensor([ANSWER, len(content), 0]), 0)
        dist.broadcast(content, 0)


def _told(error: Exception) -> dict[str, Any]:
    """An error as it can be sent: of which kind it is, and what it was made with."""
    if isinstance(error, OSError):
        return {"kind": "OSError", "with": [error.errno, error.strerror, str(error.filename)]}
    for kind in (FirehoseError, ArithmeticError, MemoryError):
        if isinstance(error, kind):
            return {"kind": kind.__name__, "with": [str(error)]}
    return {"kind": "RuntimeError", "with": [f"the first process failed: {error!r}"]}


def _result(answer: str) -> Any:
    """What the first process has returned; raises the error that it has raised."""
    found = json.loads(answer)
    if "result" in found:
        return found["result"]
    kinds = (FirehoseError, OSError, ArithmeticError, MemoryError, RuntimeError)
    raise next(kind for kind in kinds if kind.__name__ == found["kind"])(*found["with"])


@contextmanager
def _reaching() -> Iterator[None]:
    """What torch says when another process is gone, as a sentence."""
    try:
        yield
    except RuntimeError as error:
        raise LostError from error
