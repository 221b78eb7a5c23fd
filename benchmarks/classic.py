"""A game with pictures against a plain loop that does nothing but forward, backward and step.

Both see the same perceptron and batches of 10, take one step a batch, and have one thread. They
take turns, a slice of the stream each, so that a machine that is slow for a while is slow for both.
The pictures are noise: what they show does not matter here.
"""

import argparse
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Iterator

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch import nn

from firehose.data.pictures.files import Pictures
from firehose.data.pictures.tasks import Tasks, as_posts
from firehose.experiments.classic import parse
from firehose.game.assembly import Game
from firehose.game.settings import make_settings
from firehose.models.perceptron import Perceptron

PIXELS, TASKS, SAMPLES = 784, 5, 2000
SLICE = 50  # rounds
Phases = dict[str, float]  # seconds
ONE_STEP = ["pictures.benchmark=disjoint-mnist", "play.steps=1", "play.step_size=10"]


def noise(task: int) -> Pictures:
    generator = np.random.default_rng(task)
    pixels = generator.integers(0, 256, (SAMPLES, PIXELS), dtype=np.uint8)
    return Pictures(pixels, generator.integers(0, 10, SAMPLES).astype(np.uint8))


def plain(tasks: Tasks) -> Iterator[Phases]:
    """A loop over tensors that are ready."""
    model = nn.Sequential(
        nn.Linear(PIXELS, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
    )
    rule = torch.optim.SGD(model.parameters(), lr=0.05)
    pictures = torch.rand(len(tasks.train) * SAMPLES, PIXELS)
    classes = torch.randint(0, 10, (len(pictures),))
    for start in range(0, len(pictures), 10):
        rule.zero_grad()
        loss = nn.functional.cross_entropy(
            model(pictures[start : start + 10]), classes[start : start + 10]
        )
        loss.backward()
        rule.step()
        yield {}


def game(method: str, tasks: Tasks) -> Iterator[Phases]:
    """The rounds of a game."""
    learner, optimizer = parse(method)
    chosen = {"learner": learner, "optimizer": optimizer}
    memory = {"memory": {"per_user": 60}} if learner == "gem" else {}
    playing = make_settings("classic", ONE_STEP, play=chosen | memory).play
    for played in Game(Perceptron(PIXELS, 10, (100, 100)), playing).rounds(tasks.stream(10)):
        yield played.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often all is measured")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    tasks = Tasks([as_posts(noise(task), task) for task in range(TASKS)], [], noise(0).pixels)
    methods = ("GD mixed", "GD replay", "GD online", "ConGraD mixed", "GEM")
    seconds: dict[str, list[float]] = {name: [] for name in ("plain", *methods)}
    phases: dict[str, Phases] = {method: defaultdict(float) for method in methods}
    for _ in range(rounds):
        running = {"plain": plain(tasks)} | {method: game(method, tasks) for method in methods}
        for _ in range(TASKS * SAMPLES // 10 // SLICE):
            for name, each in running.items():
                begun = time.perf_counter()
                played = list(itertools.islice(each, SLICE))
                seconds[name].append(time.perf_counter() - begun)
                for phase, value in (item for one in played for item in one.items()):
                    phases[name][phase] += value
    print(
        f"plain loop: {SLICE / np.median(seconds['plain']):,.0f} rounds/s, one step of 10 pictures"
    )
    for method in methods:
        ratios = np.array(seconds["plain"]) / seconds[method]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        total = sum(seconds[method])
        shares = ", ".join(f"{name} {value / total:.0%}" for name, value in phases[method].items())
        print(
            f"{method:14} {middle:.0%} of the plain loop's rate "
            f"(half of the slices: {low:.0%} to {high:.0%}); {shares}"
        )


if __name__ == "__main__":
    main()
