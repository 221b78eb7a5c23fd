"""The one kind of error that is meant for the user's eyes, and what may be shown to them."""

import re

# Controls, among them those that a terminal obeys; marks that reverse the order of what follows;
# separators that look like an end of line; and halves of surrogate pairs, which cannot be printed.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """A name that may come from anywhere, with all that a terminal would obey as an escape."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_lines(text: str) -> str:
    """The same for sentences that may have several lines."""
    return "\n".join(map(visible, text.expandtabs(4).split("\n")))


class FirehoseError(Exception):
    """Something the user can mend, told in one sentence: what is wrong, where, what to do.

    The command line prints the sentence and exits with status 1; it never shows a traceback
    for this error. Everything else that is raised is a defect of ours.
    """


class Stopped(FirehoseError):  # noqa: N818 (nothing went wrong)
    """The user stopped a run; the sentence says what is left of it."""
