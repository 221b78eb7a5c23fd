"""Divide the lines of a CSV file into rows, and go on with the next line where a row is broken.

A quote that is not closed would make one row of all that follows, up to the next quote. So a row
that is broken, or does not end within a number of lines and characters, is taken as broken at its
first line only, and its other lines are read again, each as the start of a row.
"""

import csv
from collections import deque
from collections.abc import Iterable, Iterator

from firehose.data.sources.fields import TOO_LONG
from firehose.data.sources.files import Line, Overlong

BROKEN, UNCLOSED = "broken CSV row", "unclosed quote"
MAX_FIELD = csv.field_size_limit()  # characters

Row = tuple[int, list[str] | str]  # the number of its first line; the cells, or why it is broken


class _EndlessError(Exception):
    """The row does not end where it should."""


class CsvRows:
    """The rows of a CSV file, the header first; each line is parsed at most three times.

    All rows must be as wide as the header. Empty lines are no rows. Bytes that are not UTF-8
    become halves of surrogate pairs, which no post may contain.
    """

    def __init__(
        self, lines: Iterable[Line], delimiter: str, max_lines: int, max_characters: int
    ) -> None:
        self._lines = _decoded(lines)
        self._delimiter = delimiter
        self._max_lines, self._max_characters = max_lines, max_characters
        self._number = 1  # of the first line of the row
        self._row: list[str] = []  # the lines of the row that were given to the parser
        self._again: deque[str | Overlong] = deque()  # lines to be read once more
        self._ended = False
        # Lines before this one were read within a quote. Had one of them opened a quote that stays
        # open, it would run into the same end: so it is broken, too, and need not be tried.
        self._hopeless = 0

    def __iter__(self) -> Iterator[Row]:
        width = None
        while True:
            reader = csv.reader(self._feed(), delimiter=self._delimiter, strict=True)
            reason = None
            try:
                for cells in reader:
                    if width is None and cells:
                        width = len(cells)
                    if cells and len(cells) == width:
                        yield self._number, cells
                    elif self._row[1:]:  # it may have swallowed rows
                        reason = BROKEN
                        break
                    elif cells:
                        yield self._number, BROKEN
                    self._number += len(self._row)
                    self._row.clear()
            except _EndlessError:
                reason = UNCLOSED if self._row[0] else TOO_LONG
                self._hopeless = max(self._hopeless, self._number + len(self._row))
            except csv.Error as error:
                is_open = self._ended or self._row[1:]
                is_long = not is_open and str(error).startswith("field larger")
                reason = UNCLOSED if is_open else TOO_LONG if is_long else BROKEN
            if reason is None:
                return
            width = width or 0  # without a header, no row is right
            yield self._number, reason
            self._go_on()

    def _go_on(self) -> None:
        """Put back all lines of a broken row but the first."""
        # Where the last line ended the quote, it may start a row of its own.
        last = self._number + len(self._row) - (not self._ended)
        self._hopeless = max(self._hopeless, last)
        self._again.extendleft(reversed(self._row[1:]))
        self._number += 1
        self._row.clear()
        self._ended = False

    def _feed(self) -> Iterator[str]:
        """The lines for the parser, which asks for another only where a quote is open."""
        row, again = self._row, self._again
        size = 0
        while True:
            line = again.popleft() if again else next(self._lines, None)
            if line is None:
                self._ended = True
                return
            if row:
                size += len(line)
                is_hopeless = self._number < self._hopeless or len(row) >= self._max_lines
                if is_hopeless or size > self._max_characters or isinstance(line, Overlong):
                    again.appendleft(line)
                    raise _EndlessError
            elif isinstance(line, Overlong):
                row.append("")
                raise _EndlessError
            else:
                size = len(line)
            row.append(line)
            yield line


def _decoded(lines: Iterable[Line]) -> Iterator[str | Overlong]:
    encoding = "utf-8-sig"  # only the start of a file may have a byte order mark
    for line in lines:
        if isinstance(line, Overlong):
            yield line
        else:
            yield line.decode(encoding, "surrogateescape") + "\n"
        encoding = "utf-8"
