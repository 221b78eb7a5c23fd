"""A game with pictures against a plain loop that does nothing but forward, backward and step.

Both see the same perceptron and batches of 10, take one step a batch, and have one thread. The
pictures are noise: what they show does not matter here.
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch import nn

from firehose.classic.files import Pictures
from firehose.classic.run import Protocol, make_parts
from firehose.classic.tasks import BENCHMARKS, Tasks, as_posts
from firehose.learning.game import play

PIXELS, TASKS, SAMPLES = 784, 5, 2000
ONE_STEP = Protocol(steps=1, step_size=10)


def noise(task: int) -> Pictures:
    generator = np.random.default_rng(task)
    pixels = generator.integers(0, 256, (SAMPLES, PIXELS), dtype=np.uint8)
    return Pictures(pixels, generator.integers(0, 10, SAMPLES).astype(np.uint8))


def plain(tasks: Tasks) -> float:
    """Rounds a second of a loop over tensors that are ready."""
    model = nn.Sequential(
        nn.Linear(PIXELS, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
    )
    rule = torch.optim.SGD(model.parameters(), lr=0.05)
    pictures = torch.rand(len(tasks.train) * SAMPLES, PIXELS)
    classes = torch.randint(0, 10, (len(pictures),))
    begun = time.perf_counter()
    for start in range(0, len(pictures), 10):
        rule.zero_grad()
        loss = nn.functional.cross_entropy(
            model(pictures[start : start + 10]), classes[start : start + 10]
        )
        loss.backward()
        rule.step()
    return len(pictures) / 10 / (time.perf_counter() - begun)


def game(method: str) -> Callable[[Tasks], tuple[float, dict[str, float]]]:
    """Rounds a second of a game, and the share of each phase."""

    def rounds(tasks: Tasks) -> tuple[float, dict[str, float]]:
        parts = make_parts(BENCHMARKS["disjoint-mnist"], tasks, method, 0, ONE_STEP)
        seconds: dict[str, float] = {}
        count, begun = 0, time.perf_counter()
        for played in play(tasks.stream(10), *parts[:4], np.random.default_rng(0)):
            count += 1
            for phase, value in played.seconds.items():
                seconds[phase] = seconds.get(phase, 0.0) + value
        whole = time.perf_counter() - begun
        return count / whole, {phase: value / whole for phase, value in seconds.items()}

    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often all is measured")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    tasks = Tasks([as_posts(noise(task), task) for task in range(TASKS)], [], noise(0).pixels)
    methods = ("GD mixed", "GD replay", "GD online", "ConGraD mixed", "GEM")
    ratios: dict[str, list[float]] = {method: [] for method in methods}
    shares: dict[str, dict[str, float]] = {}
    rates = []
    for _ in range(rounds + 1):
        rates.append(plain(tasks))
        for method in methods:
            rate, shares[method] = game(method)(tasks)
            ratios[method].append(rate / rates[-1])
    print(f"plain loop: {np.median(rates[1:]):,.0f} rounds/s, one step of 10 pictures each")
    for method in methods:
        found = ratios[method][1:]
        phases = ", ".join(f"{phase} {share:.0%}" for phase, share in shares[method].items())
        print(
            f"{method:14} {np.median(found):.0%} of the plain loop's rate "
            f"({min(found):.0%} to {max(found):.0%}); {phases}"
        )


if __name__ == "__main__":
    main()
