"""Numbers in words: 1.2K, +3.4, “2 posts”, 12 %."""

import math
from collections.abc import Sequence


def compact(number: float, places: int = 1, trim: bool = True) -> str:
    """950, 1.2K, 10K, 3.4M: short enough for an axis or a label."""
    if round(abs(number) / 1e3, places) >= 1000:  # 999,960 is 1M, not 1000K
        unit, text = "M", f"{number / 1e6:.{places}f}"
    elif round(abs(number)) >= 1000:
        unit, text = "K", f"{number / 1e3:.{places}f}"
    else:
        unit, text = "", f"{number:.{places}f}" if number % 1 else f"{number:.0f}"
    if trim and "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", "\N{MINUS SIGN}") + unit


def number(value: float, places: int = 1) -> str:
    """1,012.3, −0.5: with separators, a true minus sign, and no negative zero."""
    return f"{value:z,.{places}f}".replace("-", "\N{MINUS SIGN}")


def perplexity(value: float) -> str:
    """3.142, 86.5, 295.3, 1,568: about four digits, with separators."""
    places = 0 if value >= 999.95 else 1 if value >= 9.9995 else 3
    return f"{value:,.{places}f}"


def interval(value: float, low: float, high: float) -> tuple[str, str, str]:
    """A number and the ends of its interval, with as many digits as the interval leaves sense in.

    >>> interval(17.3214, 15.2, 19.1)
    ('17', '15', '19')
    >>> interval(17.3214, 17.05, 17.61)
    ('17.3', '17.1', '17.6')
    """
    half = max((high - low) / 2, 1e-9)
    places = min(max(-math.floor(math.log10(half)), 0), 2)
    return number(value, places), number(low, places), number(high, places)


def signed(value: float) -> str:
    """A difference, with its sign."""
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def duration(seconds: float) -> str:
    """12 s, 3.4 min, 5.6 h."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.0f} s"


def size(count: int) -> str:
    """3.1 TB: bytes, in the unit that leaves one to three digits before the point."""
    number, units = float(count), ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
    while number >= 999.5 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:,.3g} {units[0]}" if number < 999.5 else f"{number:,.0f} {units[0]}"


def many(count: int, what: str) -> str:
    """“1 post”, “2 posts”."""
    return f"{count:,} {what}" + "s" * (count != 1)


def percent(part: int, whole: int) -> str:
    """In percent, and never 0 or 100 unless it is."""
    hundredths = 100 * part / max(whole, 1)
    if hundredths > 99 and part < whole:
        return f"{min(hundredths, 99.9):.1f}\N{NO-BREAK SPACE}%"
    places = ".0f" if hundredths >= 10 or not part else ".2g"
    return f"{hundredths:{places}}\N{NO-BREAK SPACE}%"


def listing(parts: Sequence[str]) -> str:
    """“a, b and c”."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
