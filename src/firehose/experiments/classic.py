"""The earlier benchmarks as an experiment: some of its benchmarks, some methods, other settings."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from firehose.config import flattened, overrides, refuse_unknown
from firehose.data.pictures.tasks import BENCHMARKS
from firehose.errors import FirehoseError
from firehose.experiments.recipe import BENCHMARK, Experiment, Runs, read_experiments
from firehose.experiments.reproduce import Reproduction, reproduce
from firehose.methods.learners import LEARNERS
from firehose.methods.optimizers import OPTIMIZERS

SHORT = {"online": "online-only", "replay": "replay-only", "mixed": "mixed-replay"}  # learners
NAMES = {"GD": "online-gd", "ConGraD": "congrad", "Averaged": "averaged"}  # of optimizers
METHODS = {  # the paper's: learner, and optimizer
    "GEM": ("gem", "online-gd"),
    "iCaRL": ("icarl", "online-gd"),
    **{f"GD {name}": (learner, "online-gd") for name, learner in SHORT.items()},
    **{f"ConGraD {name}": (learner, "congrad") for name, learner in SHORT.items()},
}
CHOSEN = ("play.learner", "play.optimizer", BENCHMARK)  # by --method, and by name


def run_classic(  # noqa: PLR0913, PLR0917 (an option each)
    name: str = "all",
    data: str | Path = "classic-data",
    out: str | Path = "classic",
    seeds: int = 3,
    jobs: int | None = None,
    methods: Sequence[str] = tuple(METHODS),
    assignments: Sequence[str] = (),
    command: str = "firehose.run_classic(…)",
    reuse_older: bool = False,
) -> Reproduction:
    """Play one of the earlier benchmarks, or all of the paper's, and report on it.

    ``data`` is a folder with the original files, ``methods`` are pairs as "GD mixed" or "ConGraD
    FILE.py:Class", ``assignments`` other settings, as ``play.memory.posts=500``.
    """
    experiment = classic_experiment(name, methods, assignments)
    return reproduce({name: experiment}, data, out, "classic", seeds, jobs, command, reuse_older)


def classic_experiment(
    name: str, methods: Iterable[str] = tuple(METHODS), assignments: Sequence[str] = ()
) -> Experiment:
    """The experiment of the paper, as far as benchmarks and methods are asked for.

    The methods of the paper come first, in its order. A setting of a learner or an optimizer is
    changed for those who have it.
    """
    (whole,) = read_experiments("classic").values()
    benchmarks = whole.runs[0].vary[BENCHMARK]
    if name != "all":
        refuse_unknown("benchmark", name, ["all", *BENCHMARKS])
        benchmarks = [name]
    asked, paper = dict.fromkeys(map(parse, methods)), list(METHODS.values())
    pairs = sorted(asked, key=lambda pair: paper.index(pair) if pair in paper else len(paper))
    changed = flattened(overrides(assignments))
    for setting in changed:
        if setting.removesuffix(".kind") in CHOSEN:
            raise FirehoseError(f"--set {setting}: choose it by the benchmark's name or --method.")
        if not any(_has(pair, setting) for pair in pairs):
            raise FirehoseError(f"--set {setting}: none of these methods has such a setting.")
    runs = [_runs(whole.runs, pair, benchmarks, changed) for pair in pairs]
    if not changed and set(pairs) == set(paper):
        return whole.model_copy(update={"runs": tuple(runs)})
    told = f" Changed here: {', '.join(assignments)}." if changed else ""
    rest = {"runs": tuple(runs), "claims": (), "about": whole.about + told}
    return whole.model_copy(update=rest)


def _has(pair: tuple[str, str], setting: str) -> bool:
    """Whether a pair has a setting: one of a learner or an optimizer belongs to some of them."""
    plugins = (("play.learner.", LEARNERS, pair[0]), ("play.optimizer.", OPTIMIZERS, pair[1]))
    for table, registry, kind in plugins:
        if setting.startswith(table):
            field = setting.removeprefix(table).partition(".")[0]
            return field in registry.find(kind).Settings.model_fields
    return True


def _runs(
    known: Sequence[Runs], pair: tuple[str, str], benchmarks: list[str], changed: dict[str, Any]
) -> Runs:
    """The runs of a pair: with the paper's settings, as far as it has any, but what is changed."""
    learner, optimizer = pair
    settings: dict[str, Any] = {}
    for runs in known:
        if learner in runs.vary.get("play.learner", [runs.set.get("play.learner")]):
            if runs.set["play.optimizer"] == optimizer:
                settings = dict(runs.set)
                break
            # Step size and memory are the learner's; the number of steps is the optimizer's.
            settings = {n: v for n, v in runs.set.items() if n != "play.steps"}
    own = {"play.learner": learner, "play.optimizer": optimizer}
    fitting = {setting: value for setting, value in changed.items() if _has(pair, setting)}
    vary = {BENCHMARK: benchmarks, **{setting: [value] for setting, value in own.items()}}
    return Runs.of({"set": {**settings, **own, **fitting}, "vary": vary}, "--set")


def parse(method: str) -> tuple[str, str]:
    """Learner and optimizer of one of the eight methods, or of any other two, as ``GD a-gem``."""
    optimizer, _, learner = method.partition(" ")
    if method in METHODS:
        return METHODS[method]
    if optimizer not in NAMES or not (learner in LEARNERS.built_in or ":" in learner):
        pairs = [f"{first} {second}" for first in NAMES for second in LEARNERS.built_in]
        own = "One of your own is 'GD FILE.py:Class' or 'ConGraD FILE.py:Class'."
        refuse_unknown("method", method, [*METHODS, *pairs], own)
    if learner == "icarl" and optimizer == "ConGraD":
        raise FirehoseError(
            "iCaRL needs a task's pictures together, and ConGraD holds some back: use 'iCaRL'."
        )
    return learner, NAMES[optimizer]
