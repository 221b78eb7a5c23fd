"""An experiment as a TOML file: the runs, what varies among them, and what is shown of them.

::

    title = "Number of steps"

    [[runs]]                        # every combination of what varies
    [runs.vary]
    "play.optimizer" = ["online-gd", "congrad"]
    "play.steps" = [1, 3]

    [[tables]]                      # a cell is the mean over seeds
    rows = ["play.optimizer"]
    columns = ["play.steps"]

    [[claims]]                      # one perplexity is lower than another
    says = "ConGraD is better."
    lower = { "play.optimizer" = "congrad" }
    higher = { "play.optimizer" = "online-gd" }
    within = ["play.steps"]
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from firehose.config import RECIPES, Section, Texts, listed, read_toml, refuse_unknown
from firehose.errors import FirehoseError

HOME = RECIPES / "experiments"
BENCHMARK = "pictures.benchmark"  # the setting that tells games with pictures apart first

Kind = Literal["play", "offline"]
Shown = Literal[
    "test", "balanced", "per-token", "online", "validation",
    "past", "old", "recent", "forgetting", "crossed", "past-left-out", "forgetting-left-out",
    "accuracy", "forward",  # and forgetting: of games with tasks
]  # fmt: skip
Drawn = Literal[
    "online-fit", "ratio", "retention", "cold-start", "steps-kept", "compute",
    "accuracy", "tasks", "transfer",  # of games with tasks
]  # fmt: skip
Further = Literal["differences", "after-tasks", "on-tasks", "earlier-posts", "gaps"]


def _alternatives(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Choice = Annotated[tuple[str, ...], BeforeValidator(_alternatives)]  # any of these values
Selection = dict[str, Choice]  # settings, and what they may be


class Runs(Section):
    """A grid of runs: every combination of what varies, with some settings fixed."""

    kind: Kind = "play"
    name: str = ""  # what they are called in tables, figures and claims, instead of their settings
    set: dict[str, Any] = Field(default={})
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default={})

    @model_validator(mode="after")
    def _no_seed(self) -> Self:
        if any(name.endswith(".seed") for name in (*self.set, *self.vary)):
            raise ValueError("seeds are counted from 0; say how many with --seeds")
        return self

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Settings of each run, by their dotted names."""
        for values in itertools.product(*self.vary.values()):
            yield self.set | dict(zip(self.vary, values, strict=True))


class TablePlan(Section):
    """A table: which settings name its rows and columns, and what is in its cells.

    Also, where asked for: what was measured less what was published; of games with tasks, the
    accuracy over all tasks after each task, and on each task in the end; of games with posts,
    online perplexity by a user's number of earlier posts, and by the time since the last one.
    """

    title: str = ""
    rows: Annotated[Texts, Field(min_length=1)]
    columns: Texts = ()
    measures: Annotated[tuple[Shown, ...], BeforeValidator(listed), Field(min_length=1)] = ("test",)
    published: dict[str, Any] = Field(default={})  # by row, column and measure
    also: tuple[Further, ...] = ()  # more tables of the same runs

    @model_validator(mode="after")
    def _published_numbers(self) -> Self:
        """Published is a number, or a pair of a mean and its deviation."""
        left: list[Any] = [self.published]
        while left:
            found = left.pop()
            if isinstance(found, dict):
                left += found.values()
            elif not _is_number(found) and not (
                isinstance(found, list) and len(found) == 2 and all(map(_is_number, found))
            ):
                raise ValueError(f"published is a number or [mean, deviation], not {found!r}")
        return self


class FigurePlan(Section):
    """One of the figures there are."""

    draw: Drawn


class ClaimPlan(Section):
    """Something the paper says: one perplexity or accuracy is lower than another, or the same.

    Runs that fit ``lower`` are compared with those that fit ``higher`` and agree with them in
    everything in ``within``. ``same`` is how far apart they may be to be equal: perplexities as a
    share, accuracies in points.
    """

    says: str
    measure: Shown = "test"
    lower: Selection
    higher: Selection
    higher_measure: Shown | None = None  # the same as ``measure``
    within: Texts = ()
    same: float | None = Field(default=None, gt=0)


class Experiment(Section):
    """Runs, and what is shown of them."""

    title: str
    about: str = ""
    of_paper: bool = False  # whether its claims are the paper's
    runs: tuple[Runs, ...] = ()
    tables: tuple[TablePlan, ...] = ()
    figures: tuple[FigurePlan, ...] = ()
    claims: tuple[ClaimPlan, ...] = ()
    experiments: Texts = ()  # instead: all of these

    def varies(self, kind: Kind | None = None) -> list[str]:
        """What tells runs, or those of one kind, apart: settings, or names if all have one."""
        asked = [runs for runs in self.runs if kind in (None, runs.kind)]
        if asked and all(runs.name for runs in asked):
            return ["name"]
        values: dict[str, set[str]] = {}
        for runs in asked:
            fixed = {name: [value] for name, value in runs.set.items()}
            for name, each in (fixed | runs.vary).items():
                values.setdefault(name, set()).update(map(str, each))
        return [name for name, different in values.items() if len(different) > 1]


def known() -> dict[str, Experiment]:
    """The experiments that come with Firehose."""
    return {path.stem: _read(path) for path in sorted(HOME.glob("*.toml"))}


def read_whole(name: str | Path, trust: bool = False) -> Experiment:
    """One that comes with Firehose, by its name, or any TOML file; it may name several others.

    With ``trust``, code that the file names is run as if the user had named it.
    """
    path = Path(name) if Path(name).suffix == ".toml" else HOME / f"{name}.toml"
    if path.parent == HOME and not path.is_file():
        names = [file.stem for file in sorted(HOME.glob("*.toml"))]
        refuse_unknown("experiment", str(name), names, "A file's name ends in .toml.")
    experiment = _read(path, trust)
    if not experiment.experiments and not experiment.runs:
        raise FirehoseError(f"{path} has no runs; give it a [[runs]] table.")
    if experiment.experiments and experiment.runs:
        raise FirehoseError(f"{path} has both experiments and runs; put the runs elsewhere.")
    return experiment


def read_experiments(name: str | Path, trust: bool = False) -> dict[str, Experiment]:
    """The experiments of a recipe by their names: those that it names, or itself."""
    whole = read_whole(name, trust)
    found: dict[str, Experiment] = {}
    for part in whole.experiments:
        found |= read_experiments(part, trust)
    return found or {Path(name).stem: whole}


def _read(path: Path, trust: bool = False) -> Experiment:
    return Experiment.of(read_toml(path, trust), str(path))
