"""Progress on a terminal, silence elsewhere."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")

console = Console(stderr=True, highlight=False)


def track(items: Iterable[Item], total: int, doing: str) -> Iterator[Item]:
    """The items, with a bar while they come; it goes when all are there."""
    bar = Progress(
        TextColumn("{task.description:32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    begun = time.monotonic()
    with bar:
        task = bar.add_task(doing, total=total)
        for item in items:
            yield item
            bar.advance(task)
    if console.is_terminal:
        console.print(f"[dim]{doing}: {time.monotonic() - begun:.1f} s[/dim]")


@contextlib.contextmanager
def announce(doing: str) -> Iterator[None]:
    """Say what is going on while it has no measure."""
    yield from track([None], 1, doing)
