"""Parquet files and published lists for the fuzzer, with the fate of each row."""

import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from firehose.data.post import USER_SPLITS, Post
from firehose.data.sources.tabular import Tabular
from firehose.data.sources.twitter import Twitter
from fuzz_cases import MAX_BYTES, Case, Fate, iso, tweet, valid_post

UNITS = {"s": (1, 1_000), "ms": (1, 1), "us": (1_000, 1), "ns": (1_000_000, 1)}  # of a millisecond
YEAR_1000, YEAR_3000 = -30_610_224_000_000, 32_503_680_000_000


def timestamps(random: Random, posts: list[Post]) -> tuple[pa.Array, list[int | None]]:
    """A column of timestamps with fractions and absurd ones, and the milliseconds of each."""
    unit = random.choice([*UNITS])
    factor, divisor = UNITS[unit]
    ticks = [post.time * factor // divisor + random.randrange(factor) for post in posts]
    for place in range(0, len(ticks), 7):
        ticks[place] = random.randrange(-(2**63) + 1, 2**63) // divisor  # seconds become ms
    times = [tick * divisor // factor for tick in ticks]
    zone = random.choice([None, "UTC", "America/New_York", "+25:99", "Mars/Phobos"])
    column = pa.array(ticks, pa.int64()).view(pa.timestamp(unit, zone))
    return column, [time if YEAR_1000 <= time < YEAR_3000 else None for time in times]


def dates(random: Random, posts: list[Post]) -> tuple[pa.Array, list[int | None]]:
    """A column of days, some of which Python does not have."""
    days = [post.time // 86_400_000 for post in posts]
    for place in range(0, len(days), 5):
        days[place] = random.randrange(-(2**31), 2**31)
    times = [day * 86_400_000 for day in days]
    known = [time if YEAR_1000 <= time < YEAR_3000 else None for time in times]
    if random.random() < 0.5:
        return pa.array(days, pa.int32()).view(pa.date32()), known
    return pa.array(times, pa.int64()).view(pa.date64()), known


def plain_times(random: Random, posts: list[Post]) -> tuple[pa.Array, list[int | None]]:
    """Times as numbers or texts, or of a type that is no time at all."""
    times = [post.time for post in posts]
    kind = random.randrange(6)
    if kind == 0:
        return pa.array(times, pa.int64()), [*times]
    if kind == 1:
        return pa.array(map(iso, times), random.choice([pa.string(), pa.large_string()])), [*times]
    if kind == 2:
        return pa.array(map(iso, times)).dictionary_encode(), [*times]
    if kind == 3:
        return pa.array([Decimal(time) / 1_000 for time in times], pa.decimal128(20, 3)), [*times]
    odd: list[Any] = [
        pa.array(times, pa.duration("ns")),
        pa.array([[time] for time in times]),
        pa.array([{"at": time} for time in times]),
        pa.array([time % 86_400_000 for time in times], pa.int32()).view(pa.time32("ms")),
    ]
    return random.choice(odd), [None] * len(posts)


def text_column(random: Random, values: list[str | None], bad: set[int]) -> pa.Array:
    """A column of texts; of those in ``bad``, the bytes are not UTF-8."""
    if bad:
        raw = [b"\xff\xfe" if n in bad else v and v.encode() for n, v in enumerate(values)]
        column = pa.array(raw, pa.binary())
        if random.random() < 0.5:
            return column
        return pa.Array.from_buffers(pa.string(), len(column), column.buffers(), column.null_count)
    kind = random.choice([pa.string(), pa.large_string(), pa.binary(), "dictionary"])
    if kind == "dictionary":
        return pa.array(values, pa.string()).dictionary_encode()
    if kind == pa.binary():
        return pa.array([v and v.encode() for v in values], pa.binary())
    return pa.array(values, kind)


def parquet_case(random: Random, folder: Path, count: int) -> Case:
    """A Parquet file with columns of any type, at times with damaged pages or a damaged footer."""
    posts = [valid_post(random, number) for number in range(count)]
    times, known = random.choice([timestamps, dates, plain_times])(random, posts)
    users: list[str | None] = [post.user for post in posts]
    texts: list[str | None] = [post.text for post in posts]
    fates: list[Fate] = []
    bad: set[int] = set()
    spoil_bytes = random.random() < 0.3
    for number, post in enumerate(posts):
        kind, time = random.randrange(12), known[number]
        fate: Fate = "unreadable time" if time is None else post._replace(time=time)
        if kind == 0:
            users[number], fate = None, "no user"
        elif kind == 1:
            texts[number], fate = random.choice([None, ""]), "no text"
        elif kind == 2 and spoil_bytes:
            bad.add(number)
            fate = None
        elif kind == 3 and random.random() < 0.01:
            texts[number], fate = "x" * random.choice([MAX_BYTES + 1, 1 << 20]), "too long"
        fates.append(fate)
    table = pa.table({
        "id": text_column(random, [post.id for post in posts], set()),
        "user": text_column(random, users, set()), "time": times,
        "text": text_column(random, texts, bad),
        "language": text_column(random, [post.language for post in posts], set()),
        "is_retweet": [post.is_retweet for post in posts],
        "is_reply": [post.is_reply for post in posts],
    })  # fmt: skip
    if random.random() < 0.03:  # every row refers to one text
        shared = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), ["y" * 80_000])
        table, fates = table.set_column(3, "text", shared), ["too long"] * count
    path = folder / "a.parquet"
    packing = random.choice(["none", "snappy", "zstd", "gzip"])
    encoded = {"compression": packing, "use_dictionary": random.random() < 0.5}
    pq.write_table(
        table, path, row_group_size=random.randint(1, 2 * count), data_page_size=4_096, **encoded
    )
    case = Case(Tabular(paths=(str(path),), max_record_bytes=MAX_BYTES), fates)
    if random.random() < 0.2:
        _damage(random, path, case)
    return case


def _damage(random: Random, path: Path, case: Case) -> None:
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    if random.random() < 0.5 and footer > 4:  # the footer still tells how many rows there are
        for _ in range(random.randint(1, 30)):
            data[random.randrange(4, footer)] = random.randrange(256)
        case.fates = [None] * len(case.fates)
    else:
        for _ in range(random.randint(1, 5)):
            data[random.randrange(footer, len(data))] = random.randrange(256)
        case.is_exact = False
    path.write_bytes(data)


def lists_case(random: Random, folder: Path, count: int) -> Case:
    """Tweets of which some are in published lists, whose files are at times damaged."""
    fates: list[Fate] = []
    lines: list[bytes] = []
    listed: dict[str, list[tuple[int, int, int]]] = {name: [(1, 1, 0)] for name in USER_SPLITS}
    listed |= {"validation": [(1, 2, 0)], "test": [(1, 3, 0)]}
    for number in range(count):
        line, fate = tweet(random, valid_post(random, number + 10))
        if isinstance(fate, Post):
            kind, split = random.randrange(3), random.choice(USER_SPLITS)
            if kind:
                user = int(fate.user) + (kind == 2)
                listed[split].append((user, int(fate.id), 0))
                fate = fate._replace(split=split) if kind == 1 else "another user than in the list"
            else:
                fate = "not in the published list"
        elif fate is None:
            line = b"[" + line
            fate = None
        lines.append(line)
        fates += [fate] if fate != "" else []
    (folder / "00.json").write_bytes(b"\n".join(lines))
    (folder / "lists").mkdir()
    for split, rows in listed.items():
        random.choice(WRITERS)(folder / "lists" / split, rows)
    case = Case(Twitter(paths=(str(folder / "00.json"),), ids=(str(folder / "lists"),)), fates)
    if random.random() < 0.4:
        path = random.choice(sorted((folder / "lists").iterdir()))
        data = bytearray(path.read_bytes())
        for _ in range(random.randint(1, 8)):
            data[random.randrange(len(data))] = random.randrange(256)
        path.write_bytes(data[: random.choice([len(data), random.randint(1, len(data))])])
        case.is_exact = False
    return case


def _csv_list(path: Path, rows: list[tuple[int, int, int]]) -> None:
    lines = "".join(f"{user},{tweet},x\n" for user, tweet, _ in rows)
    path.with_suffix(".csv").write_text(f"user,tweet,time\n{lines}", encoding="utf-8")


def _parquet_list(path: Path, rows: list[tuple[int, int, int]]) -> None:
    users, tweets, _ = zip(*rows, strict=True)
    pq.write_table(pa.table({"user": users, "tweet": tweets}), path.with_suffix(".parquet"))


def _pickle_list(path: Path, rows: list[tuple[int, int, int]]) -> None:
    path.with_suffix(".pkl").write_bytes(pickle.dumps({"data": rows}))


WRITERS: list[Callable[[Path, list[tuple[int, int, int]]], None]] = [
    _csv_list,
    _parquet_list,
    _pickle_list,
]
