"""The one kind of error that is meant for the user's eyes."""


class FirehoseError(Exception):
    """Something the user can mend, told in one sentence: what is wrong, where, what to do.

    The command line prints the sentence and exits with status 1; it never shows a traceback
    for this error. Everything else that is raised is a defect of ours.
    """


class Stopped(FirehoseError):  # noqa: N818 (nothing went wrong)
    """The user stopped a run; the sentence says what is left of it."""
