"""Tables of runs: means over seeds with their deviations, and what was published."""

from collections.abc import Sequence
from typing import Any

from firehose.experiments.ledger import Group, Value
from firehose.experiments.naming import MEASURES, label
from firehose.experiments.recipe import TablePlan
from firehose.report.tables import Beside, Cell, Published, Table


def place(facts: dict[str, str], settings: Sequence[str]) -> tuple[str, ...]:
    """Where a run stands in a table; a run without these settings is known by its kind."""
    return tuple(facts[setting] for setting in settings if setting in facts)


def table(plan: TablePlan, found: Sequence[Group]) -> Table:
    """Means over seeds with their deviations, and what was published."""
    rows, columns = _lines(plan.rows, found), _lines(plan.columns, found)
    columns = {at: name for at, name in columns.items() if at} or {(): ""}
    spread = [(at, measure) for at in columns for measure in plan.measures]
    told = len(plan.measures) > 1 or not plan.columns
    heads = [
        " ".join(filter(None, [columns[at], MEASURES[measure] * told])) for at, measure in spread
    ]
    body: list[list[Cell]] = []
    for row, name in rows.items():
        line: list[Cell] = [name or label({"kind": "offline"}, ())]
        for column, measure in spread:
            if not row and column != spread[0][0]:  # one value for all columns is in the first
                line.append("–")
                continue
            here = [g for g in found if place(g.facts, plan.rows) == row]
            here = [g for g in here if place(g.facts, plan.columns) in (column, ())]
            value = here[0].value(measure) if here else None
            at = (*row, *column) if row else ("offline",)
            line.append(_cell(value, _published(plan, (*at, measure))))
        body.append(line)
    return Table(["", *heads], body, plan.title)


def _lines(settings: Sequence[str], found: Sequence[Group]) -> dict[tuple[str, ...], str]:
    """The rows, or the columns, in the order of the runs; who has none of the settings last."""
    facts = {place(group.facts, settings): group.facts for group in found}
    names = {at: label(facts[at], settings) if at else "" for at in facts}
    return dict(sorted(names.items(), key=lambda line: not line[0]))


def _published(plan: TablePlan, path: Sequence[str]) -> float | None:
    """The number at the end of a path of row, column and measure; a short one is for all below."""
    found: Any = plan.published
    for part in path:
        if isinstance(found, dict):
            found = found.get(part)
    return None if isinstance(found, dict) else found


def _cell(value: Value | None, published: float | None) -> Cell:
    if value is None:
        return "–" if published is None else Published(f"{published:.1f}")
    digits = 1 if value.mean >= 10 else 3
    text = f"{value.mean:.{digits}f}"
    if value.deviation is not None:
        text += f" ± {value.deviation:.{digits}f}"
    return text if published is None else Beside(text, f"{published:.1f}")
