"""Progress on a terminal, silence elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich import progress as rich
from rich.console import Console

from firehose.errors import visible, visible_lines

Item = TypeVar("Item")

console = Console(stderr=True, highlight=False)


def track(
    items: Iterable[Item], total: int, doing: str, note: Callable[[], str] = str
) -> Iterator[Item]:
    """The items, with a bar while they come; a line with the time it took stays behind.

    ``note`` says how things stand, and is asked after each item.
    """
    with measure(total, doing) as show:
        for number, item in enumerate(items, 1):
            yield item
            show(number, note())


@contextlib.contextmanager
def measure(total: int, doing: str) -> Iterator[Callable[[float, str], None]]:
    """A bar that is told how much is done, and how things stand."""
    left = rich.TimeRemainingColumn(compact=True)
    state = rich.TextColumn("{task.fields[note]}", style="dim")
    with _progress(rich.BarColumn(), rich.MofNCompleteColumn(), left, state) as bar, _timed(doing):
        task = bar.add_task(doing, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=visible(note))


@contextlib.contextmanager
def announce(doing: str) -> Iterator[None]:
    """Say what is going on while it has no measure."""
    with _progress(rich.TimeElapsedColumn()) as bar, _timed(doing):
        bar.add_task(doing, total=None)
        yield


def say(sentence: str) -> None:
    """One line about a long job, on a terminal or in its log."""
    console.print(visible_lines(sentence), markup=False, soft_wrap=True)


def _progress(*columns: rich.ProgressColumn) -> rich.Progress:
    begin = (rich.SpinnerColumn(), rich.TextColumn("{task.description:28}"))
    is_silent = not console.is_terminal
    return rich.Progress(*begin, *columns, console=console, transient=True, disable=is_silent)


@contextlib.contextmanager
def _timed(doing: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    if console.is_terminal:
        console.print(f"[dim]{doing}: {time.monotonic() - begun:.1f} s[/dim]")
