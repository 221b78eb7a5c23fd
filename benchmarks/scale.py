"""What a game costs by the number of users and processes: python benchmarks/scale.py

For 10³ … 10⁷ users (--most), by one process and by two that hold a share of the users each: the
memory of a process for users' vectors and moments, the bytes and the time of a checkpoint, and of
a round, where games of all sizes take turns. Then what `firehose prepare` takes by posts. In the
end the law that fits, and whether what is promised holds. Posts are simulated.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import firehose  # noqa: F401 (before torch: it says how OpenMP's threads wait)

# isort: split
import numpy as np
import torch

from firehose.batch import Batch
from firehose.game.assembly import Game
from firehose.game.settings import make_settings
from firehose.models.data_parallel import spread
from firehose.models.personal import Personal
from firehose.parallel import group
from firehose.parallel.joining import joined
from firehose.parallel.launch import launch
from firehose.parallel.place import is_one_of_several
from firehose.storage.checkpoints import Checkpoints

PIECES = 2_000
RECIPE = ("laptop", ["play.optimizer=online-gd", "play.rule.rate=1e-3"])
FEW, SLOWER, SHARE = 10_000, 1.15, 0.55  # users to compare with, and the most it may be worse
WRITTEN = 1_000_000  # users of the largest checkpoint that is written
Measured = dict[str, dict[str, float]]  # by the number of users


def main() -> None:
    """Measure, print tables and laws, and end with status 1 where a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--most", type=float, default=1e7, help="users of the largest table")
    parser.add_argument("--rounds", type=int, default=15, help="of which medians are taken")
    parser.add_argument("--posts", type=float, default=30_000, help="most that are prepared")
    parser.add_argument("--out", type=Path, help="where a process leaves what it has found")
    options = parser.parse_args()
    if options.out:
        with joined(shard_users=is_one_of_several()):
            found = measure(int(options.most), options.rounds)
            if group.is_first():
                options.out.write_text(json.dumps(found), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as folder:
        alone, together = (_run(Path(folder), number) for number in (1, 2))
    tell(alone, together)
    if options.posts:
        tell_prepare(int(options.posts))
    sys.exit(not keeps_promises(alone, together))


def _run(folder: Path, processes: int) -> Measured:
    """What processes of their own have found."""
    out = folder / f"{processes}.json"
    program = [sys.executable, *sys.argv, "--out", str(out)]
    if processes > 1:
        status = launch(processes, program)
    else:
        status = subprocess.run(program, check=False).returncode
    if status:
        sys.exit(status)
    found: Measured = json.loads(out.read_bytes())
    return found


def measure(most: int, rounds: int) -> Measured:
    """Make a game for each number of users, then let them take turns at rounds."""
    torch.set_num_threads(1)
    sizes = [10**power for power in range(3, 10) if 10**power <= most]
    found: Measured = {str(users): {} for users in sizes}
    games = {}
    for users in sizes:
        before = resident()
        games[users] = make_game(users)
        for batch in posts(users, 2):
            list(games[users].rounds([batch]))
        found[str(users)]["memory"] = resident() - before
    seconds: dict[int, list[float]] = {users: [] for users in sizes}
    for number in range(rounds):
        for users in sizes:
            (batch,) = posts(users, 1, number)
            group.anybody(False)  # all begin together
            begin = time.perf_counter()
            list(games[users].rounds([batch]))
            seconds[users].append(time.perf_counter() - begin)
    for users in sizes:
        each = zip(seconds[users], seconds[min(FEW, most)], strict=True)
        found[str(users)]["round"] = statistics.median(seconds[users])
        found[str(users)]["ratio"] = statistics.median(a / b for a, b in each)
        if users <= WRITTEN:
            found[str(users)] |= group.first(write, games[users])
    return found


def make_game(users: int) -> Game:
    """A game of users who have all posted before."""
    settings = make_settings(*RECIPE)
    model = Personal(settings.model, PIECES)
    vectors = torch.zeros(1, settings.model.d_user).expand(users, -1)  # no memory yet
    total = torch.zeros(settings.model.d_user, dtype=torch.float64)
    numbers = torch.arange(users)
    model.users.restore({"vectors": vectors, "user_of": numbers, "total": total})
    return Game(spread(model), settings.play)


def posts(users: int, rounds: int, seed: int = 0) -> list[Batch]:
    """Random words of random users, as many in a post as people write."""
    settings, batches = make_settings(*RECIPE), []
    for number in range(rounds):
        generator, count = np.random.default_rng([seed, number]), settings.play.posts
        lengths = np.clip(generator.lognormal(3, 0.6, count).astype(np.int64), 4, 160)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = generator.integers(3, PIECES, offsets[-1]).astype(np.uint16)
        owners = generator.integers(0, users, count).astype(np.int32)
        words = lengths.astype(np.int32)
        batches.append(Batch(tokens, offsets, owners, np.zeros(count, np.int64), words))
    return batches


def write(game: Game) -> dict[str, float]:
    """The bytes of a checkpoint, and how long it takes to be on disk."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints, begin = Checkpoints(Path(folder)), time.perf_counter()
        checkpoints.write(1, game.state(), {})
        seconds = time.perf_counter() - begin
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return {"written": size, "writing": seconds}


def resident() -> int:
    """The bytes of memory that this process alone has."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def tell(alone: Measured, together: Measured) -> None:
    """Print what was found, and the law of memory and of checkpoints."""
    heads = ("users", "processes", "memory", "round", "to 10⁴ users", "checkpoint", "written in")
    print("".join(head.rjust(13) for head in heads))
    for processes, found in ((1, alone), (2, together)):
        for users, row in found.items():
            cells = [f"{int(users):,}", str(processes), f"{row['memory'] / 1e6:,.1f} MB"]
            cells += [f"{row['round'] * 1e3:,.1f} ms", f"{row['ratio']:.2f} ×"]
            if "written" in row:
                cells += [f"{row['written'] / 1e6:,.1f} MB", f"{row['writing']:.2f} s"]
            print("".join(cell.rjust(13) for cell in cells), flush=True)
    for processes, found in ((1, alone), (2, together)):
        each, rest = line(found, "memory")
        print(
            f"memory of a process of {processes}: {each:,.0f} bytes a user + {rest / 1e6:,.0f} MB"
        )
    each, rest = line(alone, "written")
    print(f"a checkpoint: {each:,.0f} bytes a user + {rest / 1e6:,.1f} MB")
    pace = [row["written"] / row["writing"] for row in alone.values() if "written" in row]
    print(f"a checkpoint is written at {pace[-1] / 1e6:,.0f} MB/s", flush=True)


def line(found: Measured, what: str) -> tuple[float, float]:
    """The line that fits best, where each point counts alike by its relative distance."""
    pairs = [(float(users), row[what]) for users, row in found.items() if what in row]
    users, values = np.array(pairs).T
    values = np.maximum(values, 1.0)
    weights = np.stack([users, np.ones(len(users))], axis=1) / values[:, None]
    slope, rest = np.linalg.lstsq(weights, np.ones(len(users)), rcond=None)[0]
    return float(slope), float(rest)


def tell_prepare(most: int) -> None:
    """Print what `firehose prepare` takes by the number of posts."""
    for count in (most // 10, most):
        with tempfile.TemporaryDirectory() as folder:
            told = f"--set source.posts={count} --set source.users={count // 50}"
            command = f"prepare --out {folder}/corpus {told} --vocab-size 1000 --workers 0"
            begin = time.perf_counter()
            program = [sys.executable, "-m", "firehose", *command.split()]
            subprocess.run(program, check=True, capture_output=True)
            seconds = time.perf_counter() - begin
            files = (file for file in Path(folder).rglob("*") if file.is_file())
            size = sum(file.stat().st_size for file in files)
        print(
            f"prepare {count:,} posts: {seconds:.1f} s, {size / count:.0f} bytes a post", flush=True
        )


def keeps_promises(alone: Measured, together: Measured) -> bool:
    """Print what is promised, and whether it holds."""
    most = max(alone, key=int)
    share = together[most]["memory"] / alone[most]["memory"]
    ratio = together[most]["ratio"]
    print(f"{int(most):,} users: a process of 2 takes {share:.2f} × the memory (wanted: ≤ {SHARE})")
    print(f"{int(most):,} users: a round takes {ratio:.2f} × that of 10⁴ (wanted: ≤ {SLOWER})")
    return share <= SHARE and ratio <= SLOWER


if __name__ == "__main__":
    main()
