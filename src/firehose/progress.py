"""Progress: bars on a terminal, a line a minute elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich import progress as rich
from rich.console import Console
from rich.table import Column

from firehose.errors import visible, visible_lines

Item = TypeVar("Item")
MINUTE = 60.0  # seconds between two lines in a log
TAKEN, SHORTEST = 94, 8  # columns that all but the bar take, and those of the shortest bar

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
    """A bar that is told how much is done, and how things stand; in a log, a line a minute.

    In a narrow terminal the bar gives way, and the estimate stays.
    """
    if not console.is_terminal:
        yield _Minutes(total, doing).show
        return
    left = rich.TimeRemainingColumn(compact=True, table_column=_kept(5))
    many = rich.MofNCompleteColumn(table_column=_kept(2 * len(str(total)) + 1))
    state = rich.TextColumn(
        "{task.fields[note]}", style="dim", table_column=Column(no_wrap=True, overflow="ellipsis")
    )
    bar = [rich.BarColumn(min(40, room))] if (room := console.width - TAKEN) >= SHORTEST else []
    with _progress(*bar, many, left, state) as shown, _timed(doing):
        task = shown.add_task(doing, total=total, note="")
        yield lambda done, note: shown.update(task, completed=done, note=visible(note))


def _kept(width: int) -> Column:
    """A column that keeps its width where there is little room."""
    return Column(no_wrap=True, min_width=width)


class _Minutes:
    """Says once a minute how far something is, and how long it will take."""

    def __init__(self, total: int, doing: str) -> None:
        self.total, self.doing = total, doing
        self.begun = self.said = time.monotonic()
        self.first: float | None = None  # what was done before we began

    def show(self, done: float, note: str) -> None:
        """Note how much is done; says it, if a minute has passed."""
        now = time.monotonic()
        if self.first is None:
            self.first = 0.0 if done <= 1 else done - 1
        if now - self.said < MINUTE or not self.total:
            return
        self.said = now
        pace = (done - self.first) / (now - self.begun)
        left = f"{_clock((self.total - done) / pace)} left" if pace > 0 else "no estimate yet"
        told = f"{self.doing}: {done:,.0f} of {self.total:,}, {left}"
        say(f"{told}; {note}" if note else told)


def _clock(seconds: float) -> str:
    """45 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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
    begin = (rich.SpinnerColumn(), rich.TextColumn("{task.description:20}"))
    is_silent = not console.is_terminal
    return rich.Progress(*begin, *columns, console=console, transient=True, disable=is_silent)


@contextlib.contextmanager
def _timed(doing: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    if console.is_terminal:
        console.print(f"[dim]{doing}: {time.monotonic() - begun:.1f} s[/dim]")
