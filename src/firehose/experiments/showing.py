"""What an experiment shows: its tables with published numbers, its claims with verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from firehose.config import nearest
from firehose.errors import FirehoseError
from firehose.experiments.jobs import Job
from firehose.experiments.ledger import Difference, Group, Value, difference
from firehose.experiments.naming import MEASURES, label
from firehose.experiments.recipe import ClaimPlan, Experiment, Selection, Shown, TablePlan
from firehose.report.tables import Beside, Cell, Published, Table

Answer = Literal["yes", "no", "open"]


def refuse_unclear(experiment: Experiment, jobs: Sequence[Job]) -> None:
    """Refuse tables and claims that do not fit the runs, before anything is run."""
    different = {repr(job.facts): job.facts for job in jobs}.values()
    _refuse_unknown(experiment, sorted({name for facts in different for name in facts}))
    for plan in experiment.tables:
        cells: dict[Any, int] = {}
        for facts in different:
            cell = _place(facts, plan.rows), _place(facts, plan.columns)
            cells[cell] = cells.get(cell, 0) + 1
        if max(cells.values()) > 1:
            raise FirehoseError(
                f"{experiment.title!r}: {max(cells.values())} different runs share one cell of the "
                f"table {plan.title!r}; name all that varies in its rows and columns."
            )
    for claim in experiment.claims:
        for side in (claim.lower, claim.higher):
            if not any(fits(facts, side) for facts in different):
                raise FirehoseError(
                    f"{experiment.title!r}: no run fits {side} of the claim {claim.says!r}."
                )


def _refuse_unknown(experiment: Experiment, settings: list[str]) -> None:
    """Refuse names of settings that no run has."""
    shown = [name for plan in experiment.tables for name in (*plan.rows, *plan.columns)]
    claimed = [name for claim in experiment.claims for name in claim.within]
    for name in (*shown, *claimed):
        if name not in settings:
            raise FirehoseError(
                f"{experiment.title!r}: no run has a setting {name!r}: {nearest(name, settings)}"
            )


def fits(facts: dict[str, str], selection: Selection) -> bool:
    """Whether a run is one of those that a claim speaks of."""
    return all(facts.get(setting) in values for setting, values in selection.items())


def _place(facts: dict[str, str], settings: Sequence[str]) -> tuple[str, ...]:
    """Where a run stands in a table; a run without these settings is known by its kind."""
    return tuple(facts[setting] for setting in settings if setting in facts)


def table(plan: TablePlan, found: Sequence[Group]) -> Table:
    """Means over seeds with their deviations, and what was published."""
    rows, columns = _lines(plan.rows, found), _lines(plan.columns, found)
    columns = {place: name for place, name in columns.items() if place} or {(): ""}
    spread = [(place, measure) for place in columns for measure in plan.measures]
    told = len(plan.measures) > 1 or not plan.columns
    heads = [
        " ".join(filter(None, [columns[place], MEASURES[measure] * told]))
        for place, measure in spread
    ]
    body: list[list[Cell]] = []
    for row, name in rows.items():
        line: list[Cell] = [name or label({"kind": "offline"}, ())]
        for number, (column, measure) in enumerate(spread):
            here = [g for g in found if _place(g.facts, plan.rows) == row]
            here = [g for g in here if _place(g.facts, plan.columns) in (column, ())]
            if not row and number:  # one value for all columns stands in the first
                here = []
            value = here[0].value(measure) if here else None
            published = _published(plan, row or ("offline",), column if row else (), measure)
            line.append(_cell(value, published if row or not number else None))
        body.append(line)
    return Table(["", *heads], body, plan.title)


def _lines(settings: Sequence[str], found: Sequence[Group]) -> dict[tuple[str, ...], str]:
    """The rows, or the columns, in the order of the runs; who has none of the settings last."""
    places = {_place(group.facts, settings): group.facts for group in found}
    named = {place: label(facts, settings) if place else "" for place, facts in places.items()}
    return {place: named[place] for place in sorted(named, key=lambda place: not place)}


def _published(
    plan: TablePlan, row: tuple[str, ...], column: tuple[str, ...], measure: str
) -> float | None:
    found: Any = plan.published
    for part in (*row, *column, measure):
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


@dataclass(frozen=True)
class Compared:
    """Two groups of runs, and what the comparison says of a claim."""

    label: str
    difference: Difference
    answer: Answer


@dataclass(frozen=True)
class Checked:
    """A claim of the paper, and all that speaks for and against it here."""

    says: str
    measure: Shown
    compared: tuple[Compared, ...]

    @property
    def verdict(self) -> str:
        """In one word or two."""
        answers = [each.answer for each in self.compared]
        if not answers:
            return "not run"
        if len(set(answers)) == 1:
            return {"yes": "holds", "no": "does not hold", "open": "undecided"}[answers[0]]
        against = f", not in {answers.count('no')}" if "no" in answers else ""
        return f"holds in {answers.count('yes')} of {len(answers)}{against}"


def check(plan: ClaimPlan, found: Sequence[Group], varies: Sequence[str]) -> Checked:
    """Compare all that a claim speaks of."""
    compared = []
    for low in (group for group in found if fits(group.facts, plan.lower)):
        for high in (group for group in found if fits(group.facts, plan.higher)):
            if any(low.facts.get(name) != high.facts.get(name) for name in plan.within):
                continue
            other = plan.higher_measure or plan.measure
            if found_here := difference(low, high, plan.measure, other):
                answer = _answer(found_here, plan.same)
                compared.append(Compared(_versus(low, high, varies), found_here, answer))
    return Checked(plan.says, plan.measure, tuple(compared))


def _versus(low: Group, high: Group, varies: Sequence[str]) -> str:
    """What two groups share, and in what they differ."""
    shared = [name for name in varies if low.facts.get(name) == high.facts.get(name)]
    differing = [name for name in varies if name not in shared]
    common = label(low.facts, shared) if any(name in low.facts for name in shared) else ""
    sides = " : ".join(label(group.facts, differing) for group in (low, high))
    return ", ".join(filter(None, [common, sides if differing else ""]))


def _answer(found: Difference, same: float | None) -> Answer:
    if same is None:
        return "yes" if found.high < 0 else "no" if found.low > 0 else "open"
    if -same < found.low and found.high < same:
        return "yes"
    return "no" if found.low > same or found.high < -same else "open"
