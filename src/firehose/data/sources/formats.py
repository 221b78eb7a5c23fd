"""Formats of tables: told by a setting, by the name of a file, or by its first bytes."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, Literal, NamedTuple

from firehose.data.sources.files import Line, Overlong, open_file

Kind = Literal["parquet", "jsonl", "csv", "tsv", "xml"]
SUFFIX = re.compile(
    r"\.(?:(parquet|pq)|(jsonl|ndjson|json|csv|tsv|xml)(\.gz|\.zst|\.bz2)?)$", re.IGNORECASE
)
WANTS = (
    "files ending in .parquet, .jsonl, .json, .csv, .tsv or .xml (also .gz, .zst, .bz2), a folder, "
    "or any file with --set source.format=jsonl"
)
KINDS: dict[str, Kind] = {
    "pq": "parquet", "parquet": "parquet", "jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl",
    "csv": "csv", "tsv": "tsv", "xml": "xml",
}  # fmt: skip
MAGIC = {b"\x28\xb5\x2f\xfd": ".zst", b"\x1f\x8b\x08": ".gz", b"BZh": ".bz2"}
_ROW = re.compile(r"<row\s(.*)/>", re.DOTALL)
_ATTRIBUTE = re.compile(r'([\w:.-]+)\s*=\s*"([^"]*)"')
_CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_INLINE = re.compile(
    r"</?(?:a|b|i|u|s|em|strong|code|span|sub|sup|kbd|del)\b[^<>]*>", re.IGNORECASE
)
_LINK = re.compile(r'<a\s[^<>]*href="([^"]*)"[^<>]*>\s*(?:https?:|www\.)[^<>]*</a>', re.IGNORECASE)


class Format(NamedTuple):
    """The format of a file, and the ending that tells how it is compressed; empty: it is not."""

    kind: Kind
    packing: str

    @classmethod
    def of(cls, path: str, told: Kind | None = None) -> "Format":
        """By what the user says, else by the name; compression also by the first bytes."""
        match = SUFFIX.search(path)
        kind = told or KINDS[(match[1] or match[2]).lower() if match else "jsonl"]
        return cls(kind, "" if kind == "parquet" else _packing(path))


def is_table(name: str) -> bool:
    """Whether a file is a table by its name."""
    return SUFFIX.search(name) is not None


def _packing(path: str) -> str:
    ending = Path(path).suffix.lower()
    if ending in MAGIC.values():
        return ending
    with open_file(path) as file:
        head = file.read(4)
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), "")


def xml_record(line: Line) -> dict[str, Any] | str:
    """The attributes of a ``<row …/>`` element on a line of its own, or why there is none.

    The reason is empty for all else that such a file has: its head, its end, empty lines.
    """
    if isinstance(line, Overlong):
        return "too long"
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeError:
        return "not UTF-8"
    if not text.startswith("<row"):
        return "" if not text or text.startswith(("<", "\ufeff<")) else "broken XML"
    match = _ROW.fullmatch(text)
    return {n: unescape(v) for n, v in _ATTRIBUTE.findall(match[1])} if match else "broken XML"


def without_tags(text: str) -> str:
    """HTML as plain text: no tags, no blocks of code, links that show their address as it is."""
    text = _CODE.sub(" ", text)
    text = _INLINE.sub("", _LINK.sub(lambda found: f" {found[1]} ", text))
    return unescape(" ".join(_TAG.sub(" ", text).split()))


def keys(record: dict[str, Any] | str) -> Iterator[str]:
    """The names of a record's fields."""
    if not isinstance(record, str):
        yield from record
