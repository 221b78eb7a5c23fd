"""Processes killed at random moments, and gone on with until they are done.

    python benchmarks/kills.py [--kills 100] [--seed 0] [--jobs 2]

`play`, `pretrain`, `prepare` and `reproduce` are killed while they start, work and finish, several
times a run: the process alone, or all that it has started with it. Then they are resumed, or given
again, as a user would. What they leave must be the same to the bit as without a kill. Ends with
status 1 where it is not, or where a command was refused.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

os.environ["OMP_NUM_THREADS"] = "1"  # the same bits in every process
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))

from judging import Meaning, differences, meaning
from small_models import TINY_MODEL

STARTING, WORKING, FINISHING = "starting", "working", "finishing"
SAME, OTHER, ORPHANS = "same bits", "wrong", "orphans"
COLUMNS = ("runs", STARTING, WORKING, FINISHING, ORPHANS, SAME, OTHER)
AT_A_TIME = 5  # kills of a task
PATIENCE = 300  # seconds after which a process is said to hang
POSTS = ["--set", "source.users=12", "--set", "source.posts=900", "--vocab-size", "400"]
BEFORE = "2014-01-01"  # earlier posts are pretrained on
SCALE = """
model.shape = { layers = 1, d_model = 8, heads = 2, d_head = 4, d_inner = 16 }
play = { posts = 32, step_size = 4 }
pretrain = { epochs = 1, posts = 32 }
"""
EXPERIMENT = """
title = "Kills"
[[runs]]
[runs.vary]
"play.optimizer" = ["online-gd", "congrad"]
[[tables]]
title = "Test"
rows = ["play.optimizer"]
[[claims]]
says = "ConGraD is better."
lower = { "play.optimizer" = "congrad" }
higher = { "play.optimizer" = "online-gd" }
"""


class Command(NamedTuple):
    """A command that makes ``out``."""

    name: str
    arguments: Callable[[Path], Sequence[object]]  # by its ``out``
    last_sign: str  # a file or folder that is there when it is about to finish
    is_resumed: bool = False


class Pace(NamedTuple):
    """Seconds that a command takes where nobody kills it: until it writes something, and then."""

    start: float
    work: float


class Ground(NamedTuple):
    """What the commands are given, and the folder that everything is in."""

    folder: Path

    def command(self, name: str) -> Command:
        """One of the commands, with settings so small that it takes seconds."""
        corpus = self.folder / "corpus"
        tiny = [part for setting in TINY_MODEL for part in ("--set", setting)]
        run = [corpus, *tiny, "--checkpoint-every", "0"]
        plays = ["--set", "play.posts=8", "--set", "play.step_size=4", "--set", "play.steps=2"]
        trains = ["--set", "pretrain.epochs=2", "--set", "pretrain.posts=8"]
        scaled = ["--scale", self.folder / "scale.toml", "--seeds", "1", "--jobs", "2"]
        reproduces = [self.folder / "kills.toml", "--corpus", corpus, *scaled]
        return {
            "play": Command("play", lambda out: [*run, *plays, "--out", out], "run/model", True),
            "pretrain": Command(
                "pretrain", lambda out: [*run, *trains, "--out", out], "run/model", True
            ),
            "prepare": Command(
                "prepare",
                lambda out: [*POSTS, "--pretrain-before", BEFORE, "--workers", "2", "--out", out],
                ".run.partial-*/result",
            ),
            "reproduce": Command("reproduce", lambda out: [*reproduces, "--out", out], "run/kills"),
        }[name]

    def make(self) -> None:
        """Write what the commands need."""
        (self.folder / "scale.toml").write_text(SCALE)
        (self.folder / "kills.toml").write_text(EXPERIMENT)
        prepare = self.command("prepare").arguments(self.folder / "corpus")
        subprocess.run(program("prepare", *prepare), check=True, capture_output=True)


def program(*arguments: object) -> list[str]:
    """The command line of Firehose."""
    return [sys.executable, "-m", "firehose", *map(str, arguments)]


class Trial:
    """One run of a command, in a folder of its own, which may take several processes."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.command, self.folder, self.out = command, folder, folder / "run"
        folder.mkdir(parents=True)
        self.left_alone: list[psutil.Process] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Begin, or go on."""
        if self.command.is_resumed and (self.out / "run.json").is_file():
            arguments = program("resume", self.out)
        else:
            arguments = program(self.command.name, *self.command.arguments(self.out))
        with (self.folder / "said").open("ab") as said:
            self.begun = time.time()
            return subprocess.Popen(arguments, stdout=said, stderr=said, start_new_session=True)

    def is_done(self) -> bool:
        """Whether the command would be refused, as all is there."""
        done = self.out / "result.json" if self.command.is_resumed else self.out
        return self.command.name != "reproduce" and done.exists()

    def wait_for_work(self, process: subprocess.Popen[bytes]) -> float:
        """Wait until the process writes something; returns how long that took."""
        since = time.monotonic()
        while process.poll() is None and not self.is_working():
            time.sleep(0.02)
        return time.monotonic() - since

    def is_working(self) -> bool:
        """Whether anything was written since the last start, but for what was said."""
        try:
            paths = [path for path in self.folder.rglob("*") if path.name != "said"]
            return any(path.stat().st_mtime > self.begun for path in paths)
        except FileNotFoundError:  # it was there a moment ago
            return True

    def phase(self) -> str:
        """What the process is doing right now."""
        if not self.is_working():
            return STARTING
        is_last = any(self.folder.glob(self.command.last_sign))
        return FINISHING if is_last else WORKING

    def kill(self, process: subprocess.Popen[bytes], alone: bool) -> None:
        """Kill the process, and all that it has started, or leave those alone."""
        others = psutil.Process(process.pid).children(recursive=True)
        for each in [] if alone else others:
            if each.is_running():
                each.kill()
        process.kill()
        process.wait()
        self.left_alone += others

    def end_orphans(self) -> int:
        """End what is still going on of what was left alone; returns how many did."""
        _, alive = psutil.wait_procs(self.left_alone, timeout=10)
        for each in alive:
            each.kill()
        return len(alive)

    def meaning(self) -> Meaning:
        """What is left, to the bit."""
        found = meaning(self.out)
        if self.command.name != "reproduce":
            return found
        parts = ("runs/", "kills/tables/", "kills/claims.json")
        kept = [name for name in found if name.startswith(parts) and not name.endswith(".log")]
        return {name: found[name] for name in kept}

    def last_words(self) -> str:
        """What it said last."""
        return (self.folder / "said").read_text(errors="replace").strip().rpartition("\n")[2]


def undisturbed(command: Command, folder: Path) -> tuple[Meaning, Pace]:
    """What a command leaves where nobody kills it, and how long it takes."""
    trial = Trial(command, folder)
    process = trial.start()
    start, since = trial.wait_for_work(process), time.monotonic()
    if process.wait() != 0:
        sys.exit(f"{command.name} fails by itself: {trial.last_words()}")
    return trial.meaning(), Pace(start, time.monotonic() - since)


def killed(
    command: Command, folder: Path, truth: Meaning, pace: Pace, kills: int, chance: random.Random
) -> tuple[Counter[str], list[str]]:
    """Kill a command so many times, in as many runs as that takes; returns counts and faults."""
    counts: Counter[str] = Counter()
    faults = []
    while kills_in(counts) < kills:
        trial = Trial(command, folder / str(counts["runs"]))
        counts["runs"] += 1
        for _ in range(chance.randint(1, AT_A_TIME)):
            kill_once(trial, pace, chance, counts)
            if trial.is_done():
                break
        if not trial.is_done() and trial.start().wait(PATIENCE) != 0:
            faults.append(f"{command.name} is refused: {trial.last_words()}")
        elif trial.meaning() != truth:
            differing = differences(trial.meaning(), truth)
            faults.append(f"{command.name} differs in {', '.join(differing)}")
        counts[ORPHANS] += trial.end_orphans()
    counts[OTHER] = len(faults)
    counts[SAME] = counts["runs"] - len(faults)
    return counts, faults


def kill_once(trial: Trial, pace: Pace, chance: random.Random, counts: Counter[str]) -> None:
    """Start the command and kill it at a random moment, unless it is done before."""
    process = trial.start()
    if chance.random() < 0.2:
        moment = chance.uniform(0, pace.start)
    else:
        trial.wait_for_work(process)
        moment = chance.uniform(0, pace.work)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        counts[trial.phase()] += 1
        trial.kill(process, alone=chance.random() < 0.5)


def kills_in(counts: Counter[str]) -> int:
    """All kills, whatever they interrupted."""
    return counts[STARTING] + counts[WORKING] + counts[FINISHING]


def line(name: str, counts: Counter[str]) -> None:
    """Print one line of the table."""
    print(f"{name:12}" + "".join(f"{counts[column]:>11}" for column in COLUMNS), flush=True)


def main() -> None:
    """Print a line for each command, and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="of all commands together")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments")
    parser.add_argument("--jobs", type=int, default=2, help="commands that are killed at a time")
    arguments = parser.parse_args()
    begun = time.monotonic()
    shares = {"play": 0.3, "pretrain": 0.3, "prepare": 0.2, "reproduce": 0.2}
    folder = Path(tempfile.mkdtemp(prefix="firehose-kills-"))
    ground = Ground(folder)
    print(f"{'':12}" + "".join(f"{column:>11}" for column in COLUMNS), flush=True)
    faults: list[str] = []
    total: Counter[str] = Counter()
    try:
        ground.make()
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for name, share in shares.items():
                command = ground.command(name)
                truth, pace = undisturbed(command, folder / name / "0")
                left, tasks = round(share * arguments.kills), []
                for number, first in enumerate(range(0, left, AT_A_TIME)):
                    place = folder / f"{name}-{number}"
                    place.mkdir()
                    chance = random.Random(f"{arguments.seed} {name} {number}")
                    quota = min(AT_A_TIME, left - first)
                    tasks.append(pool.submit(killed, command, place, truth, pace, quota, chance))
                counts: Counter[str] = Counter()
                for task in tasks:
                    found, wrong = task.result()
                    counts += found
                    faults += wrong
                line(name, counts)
                total += counts
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    line("all", total)
    print(f"{kills_in(total)} kills, {time.monotonic() - begun:.0f} s", *faults, sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
