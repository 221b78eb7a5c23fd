"""Every source on mutated records, with an exact account of what became of each.

    python benchmarks/fuzz.py [--records 100000] [--seed 0] [--source NAME] [--case N]

Records are mutated (bytes flipped or cut, fields missing, of another type or huge, absurd times,
open quotes, deep JSON, halves of surrogate pairs, cut compressed files …), and the fate of most is
known when they are made. Each file is read, and the records are compared with their fates, one by
one and in order. Where only the end of a file is lost, what comes before it is. A share of the
files also goes through `prepare`, whose manifest must tell the same.

The files are read in a process of its own for each source, with a ceiling on its memory and a
watchdog. A crash, a hang, a lost or doubled record, or a wrong fate ends with status 1, and with
the command that shows it again.
"""

import argparse
import faulthandler
import multiprocessing
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from firehose import Execution, prepare
from firehose.data.plan import Cleaning, Plan, Splitting
from firehose.data.post import Post, Skip
from firehose.data.sources import tabular
from firehose.errors import FirehoseError
from fuzz_arrow import lists_case, parquet_case
from fuzz_cases import Case, Fate, csv_case, git_case, jsonl_case, twitter_case

# For each source: how its files are made, its share of the records, and its longest file.
SOURCES: dict[str, tuple[Callable[[Random, Path, int], Case], float, int]] = {
    "jsonl": (jsonl_case, 0.3, 2_000),
    "csv": (csv_case, 0.25, 2_000),
    "parquet": (parquet_case, 0.2, 2_000),
    "twitter": (twitter_case, 0.15, 2_000),
    "git": (git_case, 0.05, 1_000),
    "lists": (lists_case, 0.05, 1_000),
}
MEMORY = 3 << 30  # bytes of address space, of which libraries take one already
SECONDS = 60  # for one file
PREPARED = 50  # one file of so many is prepared


class WrongError(Exception):
    """Records did not end where they must."""


def agrees(found: Post | Skip, fate: Fate) -> bool:
    """Whether a record ended in its place; an empty id or user in a fate stands for any."""
    if isinstance(found, Skip) or not isinstance(fate, Post):
        return fate is None or (isinstance(found, Skip) and found.reason == fate)
    return found._replace(id=fate.id and found.id, user=fate.user and found.user) == fate


def compare(found: list[Post | Skip], case: Case) -> None:
    """Raise an error where a record is not in its place, or not in exactly one."""
    fates = case.fates
    if case.damage:
        last = found.pop() if found else None
        if not isinstance(last, Skip) or last.reason != case.damage:
            raise WrongError(f"the end is {last}, not {case.damage}")
        if len(found) > len(fates):
            raise WrongError(f"{len(found):,} records instead of up to {len(fates):,}")
        fates = [*fates[: len(found) - 1], None]  # the last record may be cut
    elif len(found) != len(fates):
        raise WrongError(f"{len(found):,} records instead of {len(fates):,}")
    for number, (one, fate) in enumerate(zip(found, fates, strict=False)):
        if not agrees(one, fate):
            raise WrongError(f"record {number} is {one!s:.300}, not {fate!s:.300}")


def through_prepare(case: Case, found: list[Post | Skip], folder: Path) -> None:
    """Raise an error unless the manifest tells the same of the records, and of every post."""
    clean = Cleaning(languages=(), min_posts=2)
    plan = Plan(source=case.source, clean=clean, split=Splitting(validation=1, test=0))
    try:
        manifest = prepare(plan, folder / "corpus", Execution(workers=0)).corpora[0].manifest
    except FirehoseError:
        return  # too few posts are left for a corpus
    skipped = Counter(one.reason for one in found if isinstance(one, Skip))
    kept = sum(manifest.posts.values()) + sum(step.posts for step in manifest.steps)
    told = manifest.read, manifest.skipped, kept
    if told != (len(found), dict(skipped), len(found) - skipped.total()):
        raise WrongError(f"prepare tells {told} of {len(found):,} records with {skipped}")


def run_case(source: str, seed: int, number: int) -> tuple[int, Counter[str], float, bool]:
    """Make and read a file.

    Returns its records, what became of them, the seconds, and whether all fates were compared.
    """
    make, _, most = SOURCES[source]
    random = Random(f"{seed}/{source}/{number}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        count = random.choice([1, 2, 30, most // 4, most])
        case = make(random, folder, count)
        size = sum(path.stat().st_size for path in folder.glob("a.*"))
        tabular.BYTES_PER_SHARD = max(size // random.choice([1, 3, 50]), 7)
        tabular.ROWS_PER_SHARD = max(count // random.choice([1, 3, 50]), 3)
        begun = time.process_time()
        try:
            found = [one for shard in case.source.shards() for one in case.source.records(shard)]
        except FirehoseError as error:
            if case.is_exact:
                raise WrongError(f"refused: {error}") from error
            return len(case.fates), Counter({"refused file": len(case.fates)}), 0, False
        seconds = time.process_time() - begun
        if case.is_exact:
            compare([*found], case)
        if number % PREPARED == 0:
            through_prepare(case, found, folder)
    places = Counter("a post" if isinstance(one, Post) else one.reason for one in found)
    return len(found), places, seconds, case.is_exact


def work(source: str, seed: int, first: int, records: int, told: Connection) -> None:
    """Run cases until there were so many records; tell of each before and after."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    number = first
    while records > 0:
        told.send(("begin", number))
        try:
            done, *more = run_case(source, seed, number)
        except Exception:
            told.send(("failed", traceback.format_exc()))
            return
        told.send(("done", (done, *more)))
        records -= max(done, 1)
        number += 1
    told.send(("end", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


def fuzz(source: str, seed: int, first: int, records: int) -> dict[str, Any]:
    """What became of all records of a source; with ``failure``, where one went wrong."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=work, args=(source, seed, first, records, theirs))
    process.start()
    theirs.close()
    told: dict[str, Any] = {
        "records": 0,
        "files": 0,
        "places": Counter(),
        "seconds": 0.0,
        "peak": 0,
        "loose": 0,
    }
    number, failure = first, ""
    try:
        while True:
            if not ours.poll(SECONDS):
                failure = f"hangs for {SECONDS} s"
                break
            what, value = ours.recv()
            if what == "begin":
                number = value
            elif what == "done":
                told["records"] += value[0]
                told["files"] += 1
                told["places"] += value[1]
                told["seconds"] += value[2]
                told["loose"] += 0 if value[3] else value[0]
            elif what == "failed":
                failure = value
                break
            else:
                told["peak"] = value
                break
    except EOFError:
        process.join()
        failure = f"ended with status {process.exitcode}"
    process.kill()
    process.join()
    again = f"python benchmarks/fuzz.py --source {source} --seed {seed} --case {number} --records 1"
    return told | {"failure": failure and f"{failure.strip()}\nAgain: {again}"}


def main() -> None:
    """Fuzz all sources, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--source", choices=SOURCES)
    parser.add_argument("--case", type=int, default=0, help="the first file, to show it again")
    given = parser.parse_args()
    begun, all_records, failed = time.monotonic(), 0, False
    for source, (_, share, _) in SOURCES.items():
        if given.source not in (None, source):
            continue
        wanted = given.records if given.source else round(given.records * share)
        told = fuzz(source, given.seed, given.case, wanted)
        all_records += told["records"]
        speed = told["records"] / max(told["seconds"], 1e-9)
        print(
            f"{source}: {told['records']:,} records in {told['files']:,} files, "
            f"{speed:,.0f} read a second, peak memory {told['peak'] / 1024:,.0f} MiB; "
            f"{told['loose']:,} in files whose damage may change the number of records"
        )
        for place, count in told["places"].most_common():
            print(f"  {count:>9,}  {place}")
        if told["failure"]:
            failed = True
            print(f"{source} FAILED: {told['failure']}")
        sys.stdout.flush()
    minutes = (time.monotonic() - begun) / 60
    print(
        f"{all_records:,} records in {minutes:.1f} minutes" + ("." if failed else ", all in place.")
    )
    sys.exit(failed)


if __name__ == "__main__":
    main()
