"""Experiments from their recipes to a report."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.experiments.calibrate import Estimate, estimate
from firehose.experiments.checks import refuse_missing, refuse_too_large, refuse_unclear
from firehose.experiments.execute import execute
from firehose.experiments.jobs import Job, make_jobs, with_starts
from firehose.experiments.recipe import Experiment, known, read_experiments, read_whole
from firehose.experiments.report import Part, write
from firehose.machine import cores, gpus
from firehose.progress import announce, say
from firehose.report.tables import Table
from firehose.report.words import compact, many


class Reproduction(NamedTuple):
    """What was done, and where to look at it."""

    page: Path
    parts: list[Part]
    failed: dict[str, str]  # why, by the job's key


class Schedule(NamedTuple):
    """What is to be done."""

    out: Path  # the folder of the report
    parts: list[Part]
    jobs: list[Job]  # of all parts together, each once
    whole: Experiment  # the recipe, which may name several experiments

    def at_once(self, processes: int = 1) -> int:
        """A job for each GPU, or for each core; or for as many as there are processes of a job."""
        wants = any(job.settings.compute.device != "cpu" for job in self.jobs)
        return max(((len(gpus()) if wants else 0) or cores()) // processes, 1)


def make_schedule(
    name: str | Path | Mapping[str, Experiment],
    corpus: Corpus | str | Path,
    out: str | Path = "reproduced",
    scale: str | Path = "laptop",
    seeds: int = 3,
    reuse_older: bool = False,
    trust: bool = False,
) -> Schedule:
    """The jobs of experiments; whatever is wrong with any of them is refused here.

    With ``reuse_older``, what another version of the code has done is not done again. With
    ``trust``, code that a TOML file names is run as if it were named here.
    """
    experiments = name if isinstance(name, Mapping) else read_experiments(name, trust)
    if seeds < 1:
        raise FirehoseError(f"--seeds {seeds}: at least one is needed.")
    parts = []
    for each, experiment in experiments.items():
        jobs = make_jobs(experiment, corpus, scale, seeds, Path(out) / "runs", trust)
        refuse_unclear(experiment, jobs)
        parts.append(Part(each, experiment, jobs))
    every = with_starts([job for part in parts for job in part.jobs])
    older = {job.key: before for job in every if (before := job.done_before())}
    if reuse_older:
        parts = [replace(p, jobs=[job.with_older(older) for job in p.jobs]) for p in parts]
        every = with_starts([job for part in parts for job in part.jobs])
    elif older:
        is_are = "was" if len(older) == 1 else "were"
        say(
            f"{many(len(older), 'run')} {is_are} done by another version of Firehose and will be "
            "done again; --reuse-older takes them as they are, and marks them."
        )
    refuse_missing(every)
    refuse_too_large(every)
    title = next(iter(experiments)) if isinstance(name, Mapping) else Path(name).stem
    whole = parts[0].experiment if isinstance(name, Mapping) else read_whole(name, trust)
    return Schedule(Path(out) / title, parts, every, whole)


def reproduce(  # noqa: PLR0913, PLR0917 (an option each)
    name: str | Path | Mapping[str, Experiment],
    corpus: Corpus | str | Path,
    out: str | Path = "reproduced",
    scale: str | Path = "laptop",
    seeds: int = 3,
    jobs: int | None = None,
    command: str = "firehose.reproduce(…)",
    reuse_older: bool = False,
    trust: bool = False,
    processes: int = 1,
) -> Reproduction:
    """Run an experiment, by name or from a TOML file, and report on it.

    Runs are kept under ``out/runs`` by what they are: none is done twice, whichever experiment
    needs it, and one that was stopped goes on. The report goes to ``out/NAME``. With ``trust``,
    code that a TOML file names is run as if it were named here. ``jobs`` is how many runs are done
    at a time, and ``processes`` is how many processes play each of them.
    """
    schedule = make_schedule(name, corpus, out, scale, seeds, reuse_older, trust)
    failed = execute(schedule.jobs, jobs or schedule.at_once(processes), processes)
    with announce("drawing"):
        page = write(schedule.out, schedule.parts, failed, command, schedule.whole)
    return Reproduction(page, schedule.parts, failed)


def dry_run(schedule: Schedule, jobs: int | None = None) -> Table:
    """What is left to do, with time and memory from a short measurement."""
    at_once = jobs or schedule.at_once()
    left = [job for job in schedule.jobs if not job.is_done]
    costs = estimate(left, max(cores() // at_once, 1))
    seconds = sum(cost.seconds for cost in costs.values()) / at_once
    most = sum(sorted((cost.memory for cost in costs.values()), reverse=True)[:at_once])
    rows = []
    for job in schedule.jobs:
        cost = costs.get(job.key)
        rows.append([job.name, *(cost.told() if cost else ("done", ""))])
    rows.append([f"all, {at_once} at a time", *Estimate(seconds, most).told()])
    title = f"{many(len(left), 'run')} to do, {len(schedule.jobs) - len(left)} done"
    return Table(["", "time", "MB"], rows, title)


def listing() -> Table:
    """The experiments that come with Firehose."""
    rows = []
    for name, experiment in known().items():
        runs = sum(len(list(grid.combinations())) for grid in experiment.runs)
        rows.append([name, experiment.title, compact(runs) if runs else "of these"])
    return Table(["experiment", "what it shows", "runs a seed"], rows, labels=2)
