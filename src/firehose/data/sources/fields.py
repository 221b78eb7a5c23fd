"""Read the fields of a post from the values in a record."""

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from firehose.data.post import Post
from firehose.data.sources.files import Line, Overlong

TOO_LONG = "too long"
MAX_NAMES = 4_096  # characters of a post's user, id and language, all together


def json_post(
    line: Line, make: Callable[[dict[str, Any]], Post | str], encoding: str = "utf-8"
) -> Post | str:
    """What ``make`` makes of the JSON object in a line: a post, or the reason why it is none.

    The reason is empty where the line is.
    """
    if isinstance(line, Overlong):
        return TOO_LONG
    try:
        record = json.loads(line.decode(encoding))
        return make(record) if isinstance(record, dict) else "not a JSON object"
    except UnicodeError:
        return "not UTF-8"
    except (ValueError, RecursionError):
        return "broken JSON" if line.strip() else ""


def checked(post: Post) -> Post | str:
    """The post, or why it cannot be kept: no name may fill the memory.

    Raises a UnicodeEncodeError for half a surrogate pair, which JSON allows.
    """
    encoded = f"{post.id}{post.user}{post.text}{post.language}".encode()
    is_long = len(encoded) > MAX_NAMES  # mostly not, and this is quick
    if is_long and len(post.id) + len(post.user) + len(post.language or "") > MAX_NAMES:
        return TOO_LONG
    return post


def label(value: Any) -> str:
    """An id as text, empty where there is none; whole numbers are written without “.0”."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int):
        return "" if isinstance(value, bool) else str(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return str(int(value)) if value == int(value) else str(value)
    return ""


_NUMBER = re.compile(r"[+-]?\d{1,20}(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
# "20130101" is a date of ISO 8601; as seconds it would be a day in 1970.
_BASIC_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_1000, _YEAR_3000 = -30_610_224_000_000, 32_503_680_000_000


def moment(value: Any) -> int | None:
    """Milliseconds since 1970 UTC, from an ISO 8601 text or a number of seconds or milliseconds.

    A number of at least 1e11, of either sign, is taken for milliseconds, and a text without a zone
    for UTC. Returns None for what cannot be read or is not in the years 1000 to 2999.
    """
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        value = value.strip()
        number = _NUMBER.fullmatch(value)
        if not number or _BASIC_DATE.fullmatch(value):
            return _iso(value)
        value = float(value) if number[1] or number[2] else int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return sane(value if abs(value) >= 10**11 else value * 1_000)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        seconds = float(value)
        return sane(round(seconds if abs(seconds) >= 1e11 else seconds * 1_000))
    return None


def _iso(text: str) -> int | None:
    try:
        found = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        return None
    # Exact, without floats; astimezone() would overflow in the years 1 and 9999.
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
    return sane(since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000)


def sane(milliseconds: int) -> int | None:
    """The time if it is in the years 1000 to 2999, else None."""
    return milliseconds if _YEAR_1000 <= milliseconds < _YEAR_3000 else None
