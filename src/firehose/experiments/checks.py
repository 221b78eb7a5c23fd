"""Tables and claims that do not fit the runs are refused before anything is run."""

from collections.abc import Sequence
from typing import Any

from firehose.config import nearest
from firehose.errors import FirehoseError
from firehose.experiments.claims import fits
from firehose.experiments.jobs import Job
from firehose.experiments.recipe import Experiment
from firehose.experiments.tables import place


def refuse_unclear(experiment: Experiment, jobs: Sequence[Job]) -> None:
    """Refuse cells with several different runs, claims about none, and unknown settings."""
    different = {repr(job.facts): job.facts for job in jobs}.values()
    _refuse_unknown(experiment, sorted({name for facts in different for name in facts}))
    for plan in experiment.tables:
        cells: dict[Any, int] = {}
        for facts in different:
            cell = place(facts, plan.rows), place(facts, plan.columns)
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
