"""Whether a change of the code changed what it computes: python benchmarks/same_rounds.py COMMIT

Every learner plays with every optimizer on a small simulated corpus, once with the sources of an
earlier commit (in a worktree of its own) and once with these. What each round cost, the losses of
its candidates, its steps and its gradient's norm are compared to the bit, round by round.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEARNERS = ("online-only", "replay-only", "mixed-replay", "a-gem")
OPTIMIZERS = ("online-gd", "congrad")
CORPUS = "--set source.users=30 --set source.posts=2000 --vocab-size 800 --workers 0"
COMPARED = ("posts", "words", "nats", "released", "taken", "kept", "norm", "losses")


def main() -> None:
    """Print a line for each pair, and end with status 1 where any differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("commit", help="to compare with")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            differing = sum(
                _compare(Path(folder), tree, learner, optimizer)
                for learner, optimizer in itertools.product(LEARNERS, OPTIMIZERS)
            )
        finally:
            _git("worktree", "remove", "--force", str(tree))
    sys.exit(differing > 0)


def _compare(folder: Path, tree: Path, learner: str, optimizer: str) -> bool:
    before, after = (_rounds(folder, each, learner, optimizer) for each in (tree, ROOT))
    pairs = enumerate(zip(before, after, strict=True), 1)
    differing = [
        (number, name)
        for number, (a, b) in pairs
        for name in COMPARED
        if json.dumps(a[name]) != json.dumps(b[name])
    ]
    told = "the same to the bit" if not differing else "from round {} on ({})".format(*differing[0])
    print(f"{learner} × {optimizer}: {len(after)} rounds, {told}", flush=True)
    return bool(differing)


def _rounds(folder: Path, tree: Path, learner: str, optimizer: str) -> list[dict[str, object]]:
    """The rounds of one game, played with the sources of one tree."""
    name = "now" if tree == ROOT else "then"
    corpus, run = folder / f"corpus-{name}", folder / f"{learner}-{optimizer}-{name}"
    if not corpus.exists():
        _firehose(tree, f"prepare --out {corpus} {CORPUS}")
    chosen = f"--learner {learner} --optimizer {optimizer}"
    _firehose(tree, f"play {corpus} --recipe {tree}/recipes/demo.toml {chosen} --out {run}")
    lines = (run / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _firehose(tree: Path, command: str) -> None:
    program = [sys.executable, "-m", "firehose", *command.split()]
    source = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run(program, env=os.environ | source, check=True, capture_output=True)


def _git(*command: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *command], check=True, capture_output=True)


if __name__ == "__main__":
    main()
