"""What does not fit, or is not there, is refused before anything is run."""

from collections import Counter
from collections.abc import Sequence

from firehose.config import nearest
from firehose.data.corpus import Corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.errors import FirehoseError
from firehose.experiments.claims import fits
from firehose.experiments.jobs import Job
from firehose.experiments.naming import label
from firehose.experiments.recipe import Experiment
from firehose.experiments.tables import place
from firehose.game import limits


def refuse_unclear(experiment: Experiment, jobs: Sequence[Job]) -> None:
    """Refuse cells with several different runs, claims about none, and unknown settings."""
    different = {repr(job.facts): job.facts for job in jobs}.values()
    _refuse_unknown(experiment, sorted({name for facts in different for name in facts}))
    for plan in experiment.tables:
        cells = Counter((place(f, plan.rows), place(f, plan.columns)) for f in different)
        if (most := max(cells.values())) > 1:
            raise FirehoseError(
                f"{experiment.title!r}: {most} different runs share one cell of the table "
                f"{plan.title!r}; name all that varies in its rows and columns."
            )
        rows = {place(facts, plan.rows): label(facts, plan.rows) for facts in different}
        (name, times), *_ = Counter(rows.values()).most_common()
        if times > 1:
            raise FirehoseError(
                f"{experiment.title!r}: two different rows of the table {plan.title!r} would "
                f"be called {name!r}; rename one of the classes."
            )
    for claim in experiment.claims:
        for side in (claim.lower, claim.higher):
            if not any(fits(facts, side) for facts in different):
                raise FirehoseError(
                    f"{experiment.title!r}: no run fits {side} of the claim {claim.says!r}."
                )


def refuse_missing(jobs: Sequence[Job]) -> None:
    """Refuse pictures that are missing, or not as published, where they are still needed."""
    corpora = [job.corpus for job in jobs if not job.is_done]
    pictures = [corpus for corpus in corpora if isinstance(corpus, PictureCorpus)]
    for corpus in {corpus.data_name: corpus for corpus in pictures}.values():
        corpus.check()


def refuse_too_large(jobs: Sequence[Job]) -> None:
    """Refuse runs that this machine has no memory for, before the first is begun."""
    for job in jobs:
        if isinstance(job.corpus, Corpus) and not job.is_done:
            limits.refuse_too_large(job.kind, job.settings, job.corpus)


def _refuse_unknown(experiment: Experiment, settings: list[str]) -> None:
    """Refuse names of settings that no run has."""
    shown = [name for plan in experiment.tables for name in (*plan.rows, *plan.columns)]
    claimed = [name for claim in experiment.claims for name in claim.within]
    for name in (*shown, *claimed):
        if name not in settings:
            raise FirehoseError(
                f"{experiment.title!r}: no run has a setting {name!r}: {nearest(name, settings)}"
            )
