"""Which column of a table is which field of a post, and what to say where one is missing."""

import difflib
import shlex
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from firehose.config import Section, listed
from firehose.errors import FirehoseError


def _named(value: Any) -> Any:
    """A single name as a list of one; a number is a name."""
    return listed(str(value) if isinstance(value, int) else value)


def _told(names: tuple[str, ...]) -> Any:
    return names[0] if len(names) == 1 else list(names)


# The name of a column, or several: of these, the first that a file has.
Names = Annotated[tuple[str, ...], BeforeValidator(_named), PlainSerializer(_told)]
REQUIRED = ("user", "time", "text")
USUAL = {  # what such columns are often called
    "user": "user author username user_id userid author_id by from sender owner name handle",
    "time": "time date created_at created timestamp created_utc datetime when written posted sent",
    "text": "text body message content comment title tweet post description subject selftext",
}


class Columns(Section):
    """The name of the column for each field of a post."""

    id: Names = ("id",)
    user: Names = ("user",)
    time: Names = ("time",)
    text: Names = ("text",)
    language: Names = ("language",)
    is_retweet: Names = ("is_retweet",)
    is_reply: Names = ("is_reply",)

    def every(self) -> list[tuple[str, ...]]:
        """The names of each field, in the order of the fields."""
        return [getattr(self, role) for role in type(self).model_fields]

    def chosen(self, present: Sequence[str]) -> list[str]:
        """The name of each field among those of a file; where it has none, the first."""
        return [next((n for n in names if n in present), names[0]) for names in self.every()]

    def refuse_missing(self, path: str, paths: Sequence[str], present: Sequence[str]) -> None:
        """Raise an error that names all columns a file lacks, with a command that may work."""
        missing = []
        for role, names in zip(type(self).model_fields, self.every(), strict=True):
            default = type(self).model_fields[role].default
            if (role in REQUIRED or names != default) and not any(n in present for n in names):
                missing.append(role)
        if not missing:
            return
        lacks = ", ".join(f"{getattr(self, role)[0]!r} for the {role}" for role in missing)
        taken = [n for role in REQUIRED if role not in missing for n in getattr(self, role)]
        guesses = guessed(missing, [name for name in present if name not in taken])
        told = [n for n in self.model_fields_set if n not in missing]
        given = {role: self._among(role, present) for role in told} | guesses
        settings = " ".join(
            f"--set {shlex.quote(f'source.columns.{role}={given[role]}')}"
            for role in type(self).model_fields
            if role in given
        )
        sources = " ".join(map(shlex.quote, paths))
        is_whole = all(given[role] != "NAME" for role in missing)
        advice = "this may be what you want" if is_whole else "name the right one in place of NAME"
        raise FirehoseError(
            f"{path} has no column {lacks}, but {', '.join(present)}; {advice}: "
            f"firehose prepare {sources} {settings} --out CORPUS"
        )

    def _among(self, role: str, present: Sequence[str]) -> str:
        names: tuple[str, ...] = getattr(self, role)
        return next((name for name in names if name in present), names[0])


def guessed(roles: Sequence[str], present: Sequence[str]) -> dict[str, str]:
    """The column that each role may mean, or NAME; none means two."""
    found: dict[str, str] = {}
    for role in roles:
        left = {name.lower(): name for name in present if name not in found.values()}
        words = USUAL.get(role, role).split()
        exact = [word for word in words if word in left]
        part = [low for word in words[:6] for low in left if word in low]
        close = [each for word in words for each in difflib.get_close_matches(word, left, 1, 0.8)]
        found[role] = next((left[low] for low in (*exact, *part, *close)), "NAME")
    return found
