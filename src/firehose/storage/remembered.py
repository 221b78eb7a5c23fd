"""What is remembered from one process to the next, in folders of the user's own.

Code that the user has run, or allowed, is in ``$XDG_STATE_HOME/firehose/trusted`` (else below
``~/.local/state``); large files that were compared with their checksums in
``$XDG_CACHE_HOME/firehose/verified`` (else below ``~/.cache``). Each fact is a small file of its
own, so that processes need not wait for each other. Where nothing can be written, nothing is
remembered, which is no error.
"""

import contextlib
import os
from pathlib import Path
from typing import Literal

Sort = Literal["trusted", "verified"]
HOMES = {"trusted": ("XDG_STATE_HOME", ".local/state"), "verified": ("XDG_CACHE_HOME", ".cache")}


def remember(sort: Sort, key: str, note: str) -> None:
    """Remember a key from now on; the note is for people who look into the folder."""
    with contextlib.suppress(OSError, RuntimeError):  # the latter: nobody knows the home folder
        place = _home(sort) / key
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{note}\n", encoding="utf-8")


def is_remembered(sort: Sort, key: str) -> bool:
    """Whether this user has ever remembered a key."""
    with contextlib.suppress(OSError, RuntimeError):
        return (_home(sort) / key).is_file()
    return False


def _home(sort: Sort) -> Path:
    variable, usual = HOMES[sort]
    given = Path(os.environ.get(variable, ""))
    return (given if given.is_absolute() else Path.home() / usual) / "firehose" / sort
