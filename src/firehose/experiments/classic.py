"""The earlier benchmarks as an experiment: some of its benchmarks, some methods, other settings."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from firehose.config import flattened, overrides, refuse_unknown
from firehose.data.pictures.tasks import BENCHMARKS
from firehose.errors import FirehoseError
from firehose.experiments.recipe import Experiment, Runs, read_experiments
from firehose.experiments.reproduce import Reproduction, reproduce
from firehose.methods.learners import LEARNERS

OPTIMIZERS = {"GD": "online-gd", "ConGraD": "congrad"}
METHODS = {  # the paper's: learner, and optimizer
    "GEM": ("gem", "online-gd"),
    "iCaRL": ("icarl", "online-gd"),
    "GD online": ("online-only", "online-gd"),
    "GD replay": ("replay-only", "online-gd"),
    "GD mixed": ("mixed-replay", "online-gd"),
    "ConGraD online": ("online-only", "congrad"),
    "ConGraD replay": ("replay-only", "congrad"),
    "ConGraD mixed": ("mixed-replay", "congrad"),
}
BENCHMARK = "pictures.benchmark"


def run_classic(  # noqa: PLR0913, PLR0917 (an option each)
    name: str = "all",
    data: str | Path = "classic-data",
    out: str | Path = "classic",
    seeds: int = 3,
    jobs: int | None = None,
    methods: Sequence[str] = tuple(METHODS),
    assignments: Sequence[str] = (),
    command: str = "firehose.run_classic(…)",
) -> Reproduction:
    """Play one of the earlier benchmarks, or all of the paper's, and report on it.

    ``data`` is a folder with the original files, ``methods`` are pairs as "GD mixed" or "ConGraD
    FILE.py:Class", ``assignments`` other settings, as ``play.memory.posts=500``.
    """
    experiment = classic_experiment(name, methods, assignments)
    return reproduce({name: experiment}, data, out, "classic", seeds, jobs, command)


def classic_experiment(
    name: str, methods: Iterable[str], assignments: Sequence[str] = ()
) -> Experiment:
    """The experiment of the paper, as far as benchmarks and methods are asked for."""
    (whole,) = read_experiments("classic").values()
    benchmarks = whole.runs[0].vary[BENCHMARK]
    if name != "all":
        refuse_unknown("benchmark", name, ["all", *BENCHMARKS])
        benchmarks = [name]
    changed = flattened(overrides(assignments))
    pairs = list(dict.fromkeys(map(parse, methods)))
    runs = [_runs(whole.runs, pair, benchmarks, changed) for pair in pairs]
    claims = whole.claims if set(pairs) == set(METHODS.values()) and not changed else ()
    return whole.model_copy(update={"runs": tuple(runs), "claims": claims})


def _runs(
    known: Sequence[Runs], pair: tuple[str, str], benchmarks: list[str], changed: dict[str, Any]
) -> Runs:
    """The runs of a pair: with the paper's settings for it, if it has any, but what is changed."""
    learner, optimizer = pair
    settings: dict[str, Any] = {}
    for runs in known:
        learners = runs.vary.get("play.learner", [runs.set.get("play.learner")])
        if learner in learners and runs.set["play.optimizer"] == optimizer:
            settings = dict(runs.set)
    own = {"play.learner": learner, "play.optimizer": optimizer}
    vary = {BENCHMARK: benchmarks, **{name: [value] for name, value in own.items()}}
    return Runs(set={**own, **settings, **changed}, vary=vary)


def parse(method: str) -> tuple[str, str]:
    """Learner and optimizer of one of the eight methods, or of any other two, as ``GD a-gem``."""
    optimizer, _, learner = method.partition(" ")
    if method in METHODS:
        return METHODS[method]
    if optimizer not in OPTIMIZERS or not (learner in LEARNERS.built_in or ":" in learner):
        pairs = [f"{first} {second}" for first in OPTIMIZERS for second in LEARNERS.built_in]
        own = "One of your own is 'GD FILE.py:Class' or 'ConGraD FILE.py:Class'."
        refuse_unknown("method", method, [*METHODS, *pairs], own)
    if learner == "icarl" and optimizer == "ConGraD":
        raise FirehoseError(
            "iCaRL needs a task's pictures together, and ConGraD holds some back: use 'iCaRL'."
        )
    return learner, OPTIMIZERS[optimizer]
