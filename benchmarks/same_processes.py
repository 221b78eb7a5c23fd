"""Whether a game is the same, however many processes play it.

    python benchmarks/same_processes.py CORPUS [--from PRETRAINED]

Every learner plays the first rounds of a corpus with every optimizer, by one process, by two and by
three, each with all users and with a share of them (--shard-users). What each round cost, and what
its candidates cost, is compared with that of one process, and so is how many steps ConGraD kept.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import firehose  # noqa: F401 (before torch: it says how OpenMP's threads wait)

# isort: split
import numpy as np
import torch

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game.assembly import make_game, open_stream
from firehose.game.settings import make_settings
from firehose.parallel import group
from firehose.parallel.joining import joined
from firehose.parallel.launch import launch
from firehose.parallel.shards import sharding

LEARNERS = ["online-only", "replay-only", "mixed-replay", "a-gem"]
LEARNERS += ["der", "mir", "gem", "online-ewc", "distill"]
OPTIMIZERS = ("online-gd", "congrad")
LOSSES, CHOICES = 1e-4, 0.99  # the most that losses may differ, the least share of equal choices
Played = dict[str, Any]  # of each pair: the costs of all rounds, of candidates, and what was kept


def main() -> None:
    """Print a line for each pair and way to play, and end with status 1 where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--from", dest="start", type=Path, help="a pretrained model")
    parser.add_argument("--recipe", default="laptop")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    parser.add_argument("--out", type=Path, help="where processes leave what they have seen")
    options = parser.parse_args()
    if options.out:
        with joined():
            play_all(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        alone = _run(Path(folder), 1)["whole"]
        found = [
            compare(f"{processes} processes, {way}", alone, played)
            for processes in options.processes
            for way, played in _run(Path(folder), processes).items()
        ]
    losses, equal = max(each[0] for each in found), min(each[1] for each in found)
    print(f"in all: losses differ by {losses:.1e} at most (wanted: ≤ {LOSSES:.0e})")
    print(f"in all: {equal:.1%} of ConGraD's choices are the same (wanted: ≥ {CHOICES:.0%})")
    sys.exit(losses > LOSSES or equal < CHOICES)


def _run(folder: Path, processes: int) -> dict[str, Played]:
    """What so many processes have seen, by the way they played."""
    out = folder / f"{processes}.json"
    program = [sys.executable, *sys.argv, "--out", str(out)]
    if processes > 1:
        status = launch(processes, program)
    else:
        status = subprocess.run(program, check=False).returncode
    if status:
        sys.exit(status)
    found: dict[str, Played] = json.loads(out.read_bytes())
    return found


def play_all(options: argparse.Namespace) -> None:
    """Let all pairs play, in each way; the first process writes what it has seen."""
    torch.set_num_threads(1)
    corpus, seen = Corpus(options.corpus), {}
    for is_sharded in (False, True)[: group.size()]:
        with sharding(is_sharded):
            seen["sharded" if is_sharded else "whole"] = {
                f"{learner} × {optimizer}": play(corpus, options, learner, optimizer)
                for learner, optimizer in itertools.product(options.learners, OPTIMIZERS)
            }
    if group.is_first():
        options.out.write_text(json.dumps(seen), encoding="utf-8")


def play(corpus: Corpus, options: argparse.Namespace, learner: str, optimizer: str) -> Any:
    """The first rounds of one game; None: the two do not go together."""
    parts = [f"play.learner={learner}", f"play.optimizer={optimizer}"]
    settings = make_settings(options.recipe, parts)
    try:
        game = make_game(corpus, settings, options.start)
    except FirehoseError:
        return None
    stream = itertools.islice(open_stream(corpus, settings), options.rounds)
    rounds = list(game.rounds(stream))
    return {
        "nats": [float(each.paid.nats.sum()) for each in rounds],
        "candidates": [loss for each in rounds for loss in each.steps.losses],
        "kept": [each.steps.kept for each in rounds],
    }


def compare(way: str, alone: Played, played: Played) -> tuple[float, float]:
    """The largest relative difference of a loss over all pairs, and the share of equal choices."""
    differences, equal = [0.0], []
    for pair, one in alone.items():
        if one is None:
            continue
        other = played[pair]
        worst = max(_difference(one[what], other[what]) for what in ("nats", "candidates"))
        differences.append(worst)
        told = f"{pair}, {way}: losses differ by {worst:.1e}"
        if one["candidates"]:
            same = np.array(one["kept"]) == np.array(other["kept"])
            equal.extend(same.tolist())
            told += f", {same.mean():.1%} of the choices are the same"
        print(told, flush=True)
    return max(differences), float(np.mean(equal)) if equal else 1.0


def _difference(one: list[float], other: list[float]) -> float:
    """The largest relative difference; where a choice differs, there may be other candidates."""
    if len(one) != len(other):
        return float("inf")
    a, b = np.array(one), np.array(other)
    finite = np.isfinite(a)  # that no step is taken may be no candidate
    return float(np.abs(b[finite] / a[finite] - 1).max(initial=0))


if __name__ == "__main__":
    main()
