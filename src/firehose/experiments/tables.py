"""Tables of runs: averages over seeds with their deviations, and what was published."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.experiments.ledger import Group, Value, together
from firehose.experiments.naming import label, measure_name
from firehose.experiments.recipe import Shown, TablePlan
from firehose.game.metrics import Slices
from firehose.game.outcome import Outcome, TaskOutcome
from firehose.game.totals import ACCURACY, PERPLEXITY, Scale
from firehose.report.tables import Beside, Cell, Published, Table
from firehose.report.words import number, perplexity, signed

FAR = 3.0  # points, and two published deviations: further away asks for an explanation
NOTHING = "–"

Place = tuple[str, ...]  # what some settings are, in a row or a column
Pair = tuple[Value | None, Value | None]  # what is known for a cell: measured here, published
BY_TASK: dict[str, tuple[str, Callable[[TaskOutcome], NDArray[np.float64]]]] = {
    "after-tasks": (
        "accuracy over all tasks after each task, %",
        lambda came: came.accuracy.mean(1)[came.ends],
    ),
    "on-tasks": ("accuracy on each task in the end, %", lambda came: came.accuracy[-1]),
}
BY_SLICE: dict[str, tuple[str, Callable[[Outcome], Slices]]] = {
    "earlier-posts": (
        "Online perplexity by the user's number of earlier posts",
        lambda came: came.by_history,
    ),
    "gaps": (
        "Online perplexity by the time since the user's last post",
        lambda came: came.after_silence,
    ),
}


def place(facts: dict[str, str], settings: Sequence[str]) -> Place:
    """Where a run stands in a table; a run without these settings is known by its kind."""
    return tuple(facts[setting] for setting in settings if setting in facts)


def make_tables(plan: TablePlan, found: Sequence[Group]) -> list[Table]:
    """The table of a plan, and what it differs by from the published one, if that is asked for."""
    grid = _Grid(plan, found)
    made = [grid.table(_shown, plan.title)]
    if "differences" in plan.also and (differences := _differences(grid)).rows:
        made.append(differences)
    return made


def make_details(plan: TablePlan, found: Sequence[Group]) -> list[Table]:
    """What a plan also asks for, task by task or slice by slice."""
    asked = [BY_TASK[also] for also in plan.also if also in BY_TASK]
    tables = [table for each in asked for table in _by_task(plan, found, *each)]
    for title, slices in (BY_SLICE[also] for also in plan.also if also in BY_SLICE):
        games = ((label(g.facts, (*plan.rows, *plan.columns)), g.posts()) for g in found)
        sliced = {name: slices(came) for name, came in games if came}
        tables += [slice_table(sliced, title, by_slice=False)] if sliced else []
    return tables


def slice_table(by_run: Mapping[str, Slices], title: str, by_slice: bool = True) -> Table:
    """A row for each slice of the posts and a column for each run, or the other way round.

    Only slices that all runs have: results of older versions lack some.
    """
    every = list(by_run.values())
    slices = [name for name in every[0] if all(name in run for run in every)]
    posts = [f"{every[0][name].posts:,}" for name in slices]
    values = [[perplexity(run[name].value) for name in slices] for run in every]
    if by_slice:
        lines = zip(slices, posts, *values, strict=True)
        return Table(["", "posts", *by_run], [list(line) for line in lines], title)
    runs = [[name, *line] for name, line in zip(by_run, values, strict=True)]
    return Table(["", *slices], [["posts", *posts], *runs], title)


class _Grid:
    """The values of a table, by row, column and measure."""

    def __init__(self, plan: TablePlan, found: Sequence[Group]) -> None:
        self.plan = plan
        self.rows, columns = _lines(plan.rows, found), _lines(plan.columns, found)
        self.columns = {at: name for at, name in columns.items() if at} or {(): ""}
        self.spread = [(at, measure) for at in self.columns for measure in plan.measures]
        self.cells = {
            row: [self._pair(found, row, *where) for where in self.spread] for row in self.rows
        }

    def _pair(self, found: Sequence[Group], row: Place, column: Place, measure: Shown) -> Pair:
        if not row and column != self.spread[0][0]:  # one value for all columns is in the first
            return None, None
        here = [g for g in found if place(g.facts, self.plan.rows) == row]
        here = [g for g in here if place(g.facts, self.plan.columns) in (column, ())]
        value = here[0].value(measure) if here else None
        path = (*row, *column, measure) if row else ("offline", measure)
        scale = value.scale if value else ACCURACY if measure == "accuracy" else PERPLEXITY
        return value, _published(self.plan, path, scale)

    def heads(self) -> list[str]:
        """The names of columns and measures, as far as they are needed."""
        told = len(self.plan.measures) > 1 or not self.plan.columns
        names = []
        for index, (column, measure) in enumerate(self.spread):
            values = [value for line in self.cells.values() if (value := line[index][0])]
            name = measure_name(measure, values[0].scale if values else PERPLEXITY)
            names.append(" ".join(filter(None, [self.columns[column], name * told])))
        return names

    def table(self, cell: Callable[[Pair], Cell], title: str, dense: bool = False) -> Table:
        """The table; a dense one leaves out rows and columns without anything in them."""
        heads = ["", *self.heads()]
        body: list[list[Cell]] = [
            [name or label({"kind": "offline"}, ()), *map(cell, self.cells[row])]
            for row, name in self.rows.items()
        ]
        if dense:
            body = [line for line in body if any(each != NOTHING for each in line[1:])]
            full = [any(line[n] != NOTHING for line in body) for n in range(len(heads))]
            heads = [head for head, wanted in zip(heads, full, strict=True) if wanted]
            body = [[c for c, wanted in zip(line, full, strict=True) if wanted] for line in body]
        return Table(heads, body, title)


def _lines(settings: Sequence[str], found: Sequence[Group]) -> dict[Place, str]:
    """The rows, or the columns, in the order of the runs; who has none of the settings last."""
    facts = {place(group.facts, settings): group.facts for group in found}
    names = {at: label(facts[at], settings) if at else "" for at in facts}
    return dict(sorted(names.items(), key=lambda line: not line[0]))


def _published(plan: TablePlan, path: Sequence[str], scale: Scale) -> Value | None:
    """The number at the end of a path of row, column and measure; a short one is for all below."""
    found: Any = plan.published
    for part in path:
        if isinstance(found, dict):
            found = found.get(part)
    if found is None or isinstance(found, dict):
        return None
    mean, deviation = found if isinstance(found, list) else (found, None)
    return Value(mean, deviation, scale)


def _shown(pair: Pair) -> Cell:
    here, published = pair
    if here is None:
        return NOTHING if published is None else Published(str(published))
    return str(here) if published is None else Beside(str(here), str(published))


def _differences(grid: _Grid) -> Table:
    """What was measured less what was published, where there are both."""
    scales = {here.scale for line in grid.cells.values() for here, _ in line if here}
    told = ""
    if ACCURACY in scales:
        told = f", in points; far: by over {FAR:.0f} points and two published deviations"
    return grid.table(_difference, f"{grid.plan.title}: ours less published{told}", dense=True)


def _difference(pair: Pair) -> Cell:
    here, published = pair
    if here is None or published is None:
        return NOTHING
    change = here.mean - published.mean
    far = abs(change) > max(FAR, 2 * (published.deviation or 0)) and here.scale is ACCURACY
    return "far " * far + signed(change)


def _by_task(
    plan: TablePlan,
    found: Sequence[Group],
    title: str,
    measure: Callable[[TaskOutcome], NDArray[np.float64]],
) -> list[Table]:
    """A table for each benchmark: a row for each group of runs, a column for each task."""
    settings = (*plan.rows, *plan.columns)
    played = [group for group in found if group.tasks()]
    tables = []
    for name, members in together(played, lambda group: group.tasks()[0].benchmark).items():
        facts = [group.facts for group in members]
        differing = [name for name in settings if len({each.get(name) for each in facts}) > 1]
        rows = []
        for group in members:
            shares = measure(TaskOutcome.mean(group.tasks()))
            numbers = [number(100 * share) for share in shares]
            rows.append([label(group.facts, differing or settings), *numbers])
        heads = [f"task {task + 1}" for task in range(len(rows[0]) - 1)]
        tables.append(Table(["", *heads], rows, f"{name}: {title}"))
    return tables
