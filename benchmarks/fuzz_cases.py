"""Files for the fuzzer, in which most records are mutated, with the fate that each must have.

A fate is the post that must be read, or the reason for which the record must be skipped, or None
where it is only known that the record must end in exactly one place.
"""

import bz2
import csv
import gzip
import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import zstandard

from firehose.data.post import Post
from firehose.data.sources import Source
from firehose.data.sources.git import Git
from firehose.data.sources.tabular import Tabular
from firehose.data.sources.twitter import Twitter

Fate = Post | str | None
Record = tuple[bytes, Fate]

MAX_BYTES = 1 << 16  # of a record, in the tables
WORDS = [
    f"{a}{b}{c}" for a in ("a", "be", "str") for b in "aeiou" for c in ("", "n", "cks", "ling")
]
ODD = [
    "é",
    "日本",
    "🎉",
    "\u202e",
    "\x1b[31m",
    '"',
    "'",
    ",",
    "\t",
    "\\",
    "%00",
    "\x00",
    "NaN",
    "\u2028",
]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, 1),
    ".bz2": lambda data: bz2.compress(data, 1),
    ".zst": zstandard.ZstdCompressor(level=1).compress,
}


@dataclass
class Case:
    """A source with the fates of its records, in their order."""

    source: Source
    fates: list[Fate]
    damage: str = ""  # the reason that must come last, after some of the records
    is_exact: bool = True  # whether the number of records is known


def words(random: Random) -> str:
    """A text that begins with a letter."""
    some = random.choices(WORDS, k=random.randint(1, 12))
    if random.random() < 0.3:
        some.insert(random.randint(1, len(some)), random.choice(ODD))
    return " ".join(some)


def valid_post(random: Random, number: int) -> Post:
    """A post with an id of its own, in the years 1970 to 2100."""
    time = random.randrange(200_000_000_000, 4_000_000_000_000)
    flags = random.random() < 0.2, random.random() < 0.2
    language = random.choice([None, "en", "de"])
    return Post(f"u{random.randrange(40)}", words(random), time, str(number), language, *flags)


def iso(milliseconds: int, hours: int = 0) -> str:
    """ISO 8601, in a zone."""
    here = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds, hours=hours)
    zone = f"{'-' if hours < 0 else '+'}{abs(hours):02}:00"
    return here.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone


def fields(post: Post) -> dict[str, Any]:
    """The columns of a table."""
    return {name: value for name, value in post._asdict().items() if name != "split"}


def flipped(random: Random, line: bytes, never: bytes = b"\r\n") -> bytes:
    """Some bytes changed or removed, but for those that end a record, and none of these added."""
    data = bytearray(line)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(data))
        if data[place] not in never:
            new = random.randrange(256)
            data[place : place + 1] = bytes([new] * random.randrange(3) if new not in never else [])
        if not data:
            return b"?"
    return bytes(data)


# What can be wrong with one field, and what is said then.
WRONG_FIELDS: list[tuple[str, list[Any], str]] = [
    ("user", [None, "", True, {}, [], float("nan"), float("inf")], "no user"),
    ("text", [None, "", 5, 5.5, True, {"a": 1}, ["x"]], "no text"),
    ("time", [None, ""], "no time"),
    ("time", ["soon", 1e300, -(10**17), 10**40, "0999-12-31", "3000-01-01", {}, [0], True,
              float("nan"), float("-inf"), "9" * 20, "2020-13-01"], "unreadable time"),
    ("is_reply", ["maybe", 2, [True], {}], "unreadable yes or no"),
    ("user", ["x" * 5_000], "too long"), ("id", ["y" * 5_000], "too long"),
]  # fmt: skip


def jsonl(random: Random, post: Post) -> Record:  # noqa: PLR0911, PLR0912 (one for each mutation)
    """A line of JSON for a post, mostly mutated."""
    kind, record = random.randrange(24), fields(post)
    ascii_only = random.random() < 0.5
    line = json.dumps(record, ensure_ascii=ascii_only).encode()
    if kind < 5:
        return line + b"\r" * (kind == 0), post
    if kind < 9:
        name, values, reason = random.choice(WRONG_FIELDS)
        return json.dumps(record | {name: random.choice(values)}).encode(), reason
    if kind == 9:
        name = random.choice(["user", "text", "time"])
        del record[name]
        return json.dumps(record).encode(), f"no {name}"
    if kind == 10:  # of two values for a key, the last counts
        return b'{"text": [], "time": "x", "user": null, ' + line[1:], post
    if kind == 11:
        when = random.choice(
            [iso(post.time, random.randint(-12, 12)), post.time / 1_000, str(post.time)]
        )
        return json.dumps(record | {"time": when}).encode(), post
    if kind == 12:
        del record["id"]
        return json.dumps(record | {"user": int(post.user[1:])}).encode(), post._replace(
            id="", user=post.user[1:]
        )
    if kind == 13:
        return json.dumps(record).encode()[: random.randint(1, 40)], "broken JSON"
    if kind == 14:
        bad = random.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
        return line.replace(b'"text": "', b'"text": "' + bad), "not UTF-8"
    if kind == 15:
        return json.dumps(record | {"text": "\ud83d half"}).encode(), "not UTF-8"
    if kind == 16:
        return random.choice(
            [b"[1]", b"5", b'"x"', b"null", b"NaN", b"[]", b"-Infinity"]
        ), "not a JSON object"
    if kind == 17:
        deep = b"[" * 100_000 if random.random() < 0.02 else b"[" * 3_000
        return line[:-1] + b', "z": ' + deep, "broken JSON" if len(deep) < MAX_BYTES else "too long"
    if kind == 18:
        if random.random() < 0.02:
            return line + b" " * random.choice([MAX_BYTES, 1 << 20]), "too long"
        return line[:-1] + b', "n": ' + b"9" * 5_000 + b"}", "broken JSON"  # over Python's digits
    if kind == 19:
        return random.choice([b"", b" ", b"\t\r"]), ""  # no record
    if kind == 20:
        return line.replace(b'"text": "', b'"text": "\x01'), "broken JSON"
    wild = (
        flipped(random, line)
        if kind < 23
        else random.randbytes(random.randint(1, 60)).translate(None, b"\r\n")
    )
    return wild, None if wild.decode("latin1").strip(" \t\n\r\v\f") else ""


def lines_of(
    random: Random, count: int, make: Callable[[Random, Post], Record]
) -> tuple[bytes, list[Fate]]:
    """``count`` lines, and the fates of those that are records."""
    records = [make(random, valid_post(random, number)) for number in range(count)]
    content = b"\n".join(line for line, _ in records) + b"\n" * random.randrange(2)
    if random.random() < 0.2:
        content = b"\xef\xbb\xbf" + content
        if records[0][1] in (None, ""):
            return lines_of(random, count, make)
    return content, [fate for _, fate in records if fate != ""]


def packed(random: Random, content: bytes, stem: Path, case: Case) -> Path:
    """Write the content, compressed in some way, at times cut in the middle."""
    packing = random.choice([*PACK, "", ""])
    data = PACK[packing](content)
    if packing and random.random() < 0.2:
        data, case.damage = data[: random.randrange(len(data))], "truncated or corrupt file"
    path = Path(f"{stem}{packing}")
    path.write_bytes(data)
    return path


def jsonl_case(random: Random, folder: Path, count: int) -> Case:
    """A JSONL file."""
    good = json.dumps(fields(valid_post(random, 0))).encode()
    content, fates = lines_of(random, count, jsonl)
    case = Case(Tabular(), [valid_of(good), *fates])
    if content.startswith(b"\xef\xbb\xbf"):
        content = content[3:]
        good = b"\xef\xbb\xbf" + good
    path = packed(random, good + b"\n" + content, folder / "a.jsonl", case)
    case.source = Tabular(paths=(str(path),), max_record_bytes=MAX_BYTES)
    return case


def valid_of(line: bytes) -> Post:
    """The post in a line that is right."""
    return Post(**json.loads(line))


def csv_row(random: Random, post: Post) -> Record:  # noqa: PLR0911 (one for each mutation)
    """A row of CSV, which may have several lines, mostly mutated."""
    kind, record = random.randrange(16), fields(post)
    record |= {"language": post.language or ""}
    if kind < 2:
        record["text"] = post.text + random.choice(
            ["\nsecond", "\r\nand", "\n\n", ' "said"', "\n,,,,,,,,\n"]
        )
        return _row(record), post._replace(text=record["text"])
    if kind < 6:
        return _row(record), post
    if kind == 6:
        return _row({name: record[name] for name in random.sample([*record], 5)}), "broken CSV row"
    if kind == 7:
        return _row(record | {"more": "x"}), "broken CSV row"
    if kind == 8:
        return _row(record | {"text": "@"}).replace(b"@", b'"unclosed, and, so'), "unclosed quote"
    if kind == 9:
        return _row(record | {"text": "@"}).replace(b"@", b'"closed"x'), "broken CSV row"
    if kind == 10:
        name = random.choice(["user", "text", "time"])
        return _row(record | {name: ""}), f"no {name}"
    if kind == 11:
        return _row(
            record | {"time": random.choice(["soon", "1e300", "nan", "3000-01-01"])}
        ), "unreadable time"
    if kind == 12:
        return _row(record | {"text": "@"}).replace(b"@", b"a\xffb"), "not UTF-8"
    if kind == 13:
        if random.random() < 0.02:
            return _row(record | {"text": "x" * random.choice([MAX_BYTES, 1 << 20])}), "too long"
        return _row(record | {"time": iso(post.time)}), post
    if kind == 14:
        return b"", ""
    return flipped(
        random, _row(record | {"text": words(random).replace('"', "")}), b'\r\n"'
    ) or b"?", None


def _row(record: dict[str, Any]) -> bytes:
    page = io.StringIO(newline="")
    csv.writer(page).writerow(record.values())
    return page.getvalue().removesuffix("\r\n").encode()


def csv_case(random: Random, folder: Path, count: int) -> Case:
    """A CSV file."""
    header = ",".join(fields(valid_post(random, 0))).encode()
    records = [csv_row(random, valid_post(random, number)) for number in range(count)]
    end = random.choice([b"\n", b"\r\n"])
    content = end.join([header, *(row for row, _ in records)]) + end * random.randrange(2)
    if random.random() < 0.2:
        content = b"\xef\xbb\xbf" + content
    case = Case(Tabular(), [fate for _, fate in records if fate != ""])
    path = packed(random, content, folder / "a.csv", case)
    case.source = Tabular(paths=(str(path),), max_record_bytes=MAX_BYTES)
    return case


def tweet(random: Random, post: Post) -> Record:  # noqa: PLR0911 (one for each mutation)
    """A tweet as API v1.1 delivers it, mostly mutated."""
    post = post._replace(
        user=post.user[1:], time=post.time // 1_000 * 1_000, is_retweet=False, is_reply=False
    )
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=post.time)
    record: dict[str, Any] = {"id_str": post.id, "user": {"id_str": post.user}, "text": post.text}
    record |= {
        "created_at": when.strftime("%a %b %d %H:%M:%S +0000 %Y"),
        "lang": post.language or "und",
    }
    line, kind = json.dumps(record).encode(), random.randrange(12)
    if kind < 4:
        return line, post
    if kind == 4:
        return random.choice([b'{"delete": {"status": {}}}', b'{"delete": null}']), "delete notice"
    if kind == 5:
        return random.choice([b'{"limit": {"track": 1}}', b'{"warning": 5}']), "control message"
    if kind == 6:
        name = random.choice(["user", "text", "id_str"])
        nothing: list[Any] = [None, [], "", {}]
        value = random.choice(nothing)
        return json.dumps(record | {name: value}).encode(), f"no {name.removesuffix('_str')}"
    if kind == 7:
        absurd: list[Any] = ["soon", 5, "Wed Feb 31 20:19:24 +0000 2018", [], {"$date": 1}]
        value = random.choice(absurd)
        return json.dumps(record | {"created_at": value}).encode(), "unreadable time"
    if kind == 8:
        return line[: random.randint(1, len(line) - 1)], "broken JSON"
    if kind == 9:
        return json.dumps(
            record | {"extended_tweet": {"full_text": "all"}}
        ).encode(), post._replace(text="all")
    wild = flipped(random, line)
    return wild, None if wild.decode("latin1").strip(" \t\n\r\v\f") else ""


def twitter_case(random: Random, folder: Path, count: int) -> Case:
    """A tar or zip of files of tweets, the last of which is at times cut."""
    fates: list[Fate] = []
    members: list[tuple[str, bytes]] = []
    damage = ""
    for number in range(random.randint(1, 4)):
        records = [tweet(random, valid_post(random, n + 1)) for n in range(count // 4 + 1)]
        fates += [fate for _, fate in records if fate != ""]
        packing = random.choice([".bz2", ".gz", ""])
        name = random.choice(["", "../", "\x1b[2J", "\u202e"]) + f"{number:02}.json{packing}"
        members.append((name, PACK[packing](b"\n".join(line for line, _ in records))))
    name, data = members[-1]
    if not name.endswith(".json") and random.random() < 0.3:
        damage = "truncated or corrupt member"
        members[-1] = (name, data[: random.randrange(len(data))])
    path = folder / random.choice(["a.tar", "a.zip"])
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members:
                archive.writestr(name, data)
    else:
        with tarfile.open(path, "w") as tar:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    case = Case(Twitter(paths=(str(path),)), fates, damage)
    if random.random() < 0.1:  # anywhere in the archive: nothing is known but that it is read
        whole = bytearray(path.read_bytes())
        for _ in range(random.randint(1, 20)):
            whole[random.randrange(len(whole))] = random.randrange(256)
        path.write_bytes(whole)
        case.is_exact = False
    return case


def commit(random: Random, post: Post) -> tuple[bytes, bytes, Fate]:
    """The author line and message of a commit, at times mutated."""
    author, seconds = post.user.encode(), post.time // 1_000
    plain = Post(post.user, "", seconds * 1_000)
    kind = random.randrange(8)
    text = b" ".join(random.choices([b"mend", b"the", b"parser", b"tests", b"again"], k=6))
    if kind < 3:
        return (
            b"%b <%b@e.org> %d +0000" % (author, author, seconds),
            text,
            plain._replace(text=text.decode()),
        )
    if kind == 3:
        return b"x <x@e.org> %d +0000" % seconds, b"Merge branch 'a'", "merge commit"
    if kind == 4:
        return b"dependabot[bot] <x@e.org> %d +0000" % seconds, text, "bot"
    if kind == 5:
        return b"x <x@e.org> %d -0700" % random.choice([0, 9_999_999_999]), text, "unreadable time"
    if kind == 6:
        return b"x <x@e.org> %d +0000" % seconds, b"  \n\nSigned-off-by: A <a@b.org>", "no text"
    wild = random.randbytes(random.choice([3, 50, 3_000])).replace(b"\0", b"")
    name = random.randbytes(8).translate(None, b"\0\n<>")
    return b"x%b <%b> %d +0000" % (name, name, seconds), wild, None


def git_case(random: Random, folder: Path, count: int) -> Case:
    """A repository, with commits that are made without git's usual care."""
    fates: list[Fate] = []
    stream: list[bytes] = []
    for number in range(count):
        author, message, fate = commit(random, valid_post(random, number))
        fates.append(fate._replace(user="") if isinstance(fate, Post) else fate)
        head = b"commit refs/heads/main\nauthor %b\ncommitter c <c@d.e> 1500000000 +0000\n" % author
        stream.append(head + b"data %d\n%b\n" % (len(message), message))
    path = folder / "repository"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", path], check=True)
    command = ["git", f"--git-dir={path}", "fast-import", "--quiet", "--date-format=raw-permissive"]
    subprocess.run(command, input=b"".join(stream), check=True, capture_output=True)
    return Case(Git(paths=(str(path),)), fates[::-1])
