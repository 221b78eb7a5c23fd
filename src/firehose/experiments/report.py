"""The result of experiments: one page, and every table, figure and run as a file."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from firehose.data.corpus import Corpus
from firehose.experiments.claims import Checked, check, tally
from firehose.experiments.curves import FIGURES, Comparison
from firehose.experiments.jobs import Job, with_starts
from firehose.experiments.ledger import Group, compute, groups, outcome, seconds, totals
from firehose.experiments.looks import Run
from firehose.experiments.naming import label, measure_name
from firehose.experiments.recipe import BENCHMARK, Experiment, Shown
from firehose.experiments.tables import make_details, make_tables
from firehose.experiments.task_curves import TASK_FIGURES, TOGETHER, TaskRun, by_benchmark
from firehose.game.baseline import Baseline, read_baseline
from firehose.game.folder import read_run
from firehose.game.outcome import TrainingOutcome
from firehose.game.result import read_result
from firehose.game.results import rows_of
from firehose.machine import machine
from firehose.report.page import Block, Figure, Heading, Paragraph, page
from firehose.report.results import Row, write_results
from firehose.report.tables import Cell, Table, Verdict, save as save_table
from firehose.report.words import duration, many, signed
from firehose.storage.files import write_whole


@dataclass(frozen=True)
class Part:
    """One experiment of a report, with the runs it has."""

    name: str
    experiment: Experiment
    jobs: list[Job]

    def tables(self) -> list[Table]:
        """With what is done so far."""
        found = groups(self.jobs)
        plans = self.experiment.tables if found else ()
        made = [table for plan in plans for table in make_tables(plan, found)]
        return [*made, priced.table()] if made and (priced := self._baseline()) else made

    def _baseline(self) -> Baseline | None:
        """What the stream costs compressors, where online fit is shown and that was measured."""
        corpus = self.jobs[0].corpus
        shown = {measure for plan in self.experiment.tables for measure in plan.measures}
        drawn = {plan.draw for plan in self.experiment.figures}
        if not isinstance(corpus, Corpus) or not {"online", "online-fit"} & (shown | drawn):
            return None
        return read_baseline(corpus)

    def details(self) -> list[Table]:
        """More tables, for those who have looked at the figures."""
        found = groups(self.jobs)
        return [made for plan in self.experiment.tables for made in make_details(plan, found)]

    def claims(self) -> list[Checked]:
        """What the paper says, and what is seen here."""
        found, varies = groups(self.jobs), self.experiment.varies()
        return [check(plan, found, varies) for plan in self.experiment.claims]

    def comparison(self) -> Comparison:
        """The games with posts, seeds averaged, to be drawn."""
        found, names = groups(self.jobs), self.experiment.varies("play")
        games = [(group, came) for group in found if (came := group.posts())]
        runs = [Run(*_told(group, names), came) for group, came in games]
        oracles = [group.value("test") for group in found if group.facts["kind"] == "offline"]
        corpus = self.jobs[0].corpus
        assert isinstance(corpus, Corpus)
        oracle = next((each.mean for each in oracles if each), None)
        made = Comparison.of(corpus, runs, oracle)
        return made._replace(groups=[group for group, _ in games])

    def task_runs(self) -> list[TaskRun]:
        """The games with tasks, to be drawn; each benchmark has a figure or a mark of its own."""
        found = groups(self.jobs)
        names = [name for name in self.experiment.varies("play") if name != BENCHMARK]
        return [Run(*_told(group, names), seeds) for group in found if (seeds := group.tasks())]

    def figures(self, folder: Path) -> Iterator[Figure]:
        """The figures of what is done so far, each also written to the folder."""
        for draw in (plan.draw for plan in self.experiment.figures):
            stem = folder / f"{self.name}-{draw}"
            if draw in TASK_FIGURES:
                runs = self.task_runs()
                split = {"": runs} if draw in TOGETHER and runs else by_benchmark(runs)
                for title, some in split.items():
                    own = stem.with_name("-".join([stem.name, *title.lower().split()]))
                    yield TASK_FIGURES[draw].show(some, some, own, title)
            elif (found := self.comparison()).runs:
                yield FIGURES[draw].show(found, found.runs, stem)


def _told(group: Group, names: Sequence[str]) -> tuple[str, str, str]:
    """What a group is called by some of its settings, its learner and its optimizer."""
    facts, pair = group.facts, ("play.learner", "play.optimizer")
    return label(facts, names or pair), facts[pair[0]], facts[pair[1]]


def write(
    out: Path,
    parts: Sequence[Part],
    failed: dict[str, str],
    command: str,
    whole: Experiment | None = None,
) -> Path:
    """Write the page and all files; each whole. Returns the page.

    A page of several parts has the title of the ``whole`` and begins with what that is about.
    """
    checked = [(part, part.claims()) for part in parts]
    told = whole if whole and len(parts) > 1 else None
    blocks: list[Block] = [Paragraph(told.about)] if told and told.about else []
    blocks += [*_about(parts, failed), *_summary(checked)]
    for part, claims in checked:
        title = part.experiment.title if len(parts) > 1 else "What came of it"
        tables, details = part.tables(), part.details()
        blocks += [Heading(title), Paragraph(part.experiment.about), *tables]
        blocks += [*part.figures(out / "figures"), *map(_comparisons, claims), *details]
        for number, shown in enumerate([*tables, *details], 1):
            save_table(shown, out / "tables" / f"{part.name}-{number}")
    done = list({job.key: job for part in parts for job in part.jobs if job.is_done}.values())
    for job in with_starts(done):
        write_whole(out / "runs" / f"{job.name}.json", _json(describe(job)))
        write_whole(out / "runs" / f"{job.name}.toml", job.settings.to_toml().encode())
    if older := _older(done):
        title = "Runs of another version of the code, taken as they are (--reuse-older)"
        blocks += [Heading("Older runs"), Table(["run", "code"], older, title, labels=2)]
    write_results(out, results(parts))
    write_whole(out / "claims.json", _json([_claim(part, c) for part, cs in checked for c in cs]))
    title = (told or parts[0].experiment).title
    content = page(title, _one_line(parts, done), blocks, command)
    write_whole(out / "index.html", content.encode())
    return out / "index.html"


def results(parts: Sequence[Part]) -> list[Row]:
    """A row for each number of each run that is done, with what varies in columns of its own."""
    names = list(dict.fromkeys(name for part in parts for name in part.experiment.varies()))
    done = {job.key: job for part in parts for job in part.jobs if job.is_done}
    rows = []
    for job in done.values():
        varies = {name: job.facts[name] for name in names if name in job.facts}
        found = rows_of(
            outcome(job) or TrainingOutcome.read(job.folder), job.name, job.seed, varies
        )
        told = {row.measure for row in found}
        more = {name: totals(job, name) for name in get_args(Shown) if name not in told}
        rows += found + [
            Row(job.name, name, each.value(), seed=job.seed, varies=varies)
            for name, each in more.items()
            if each
        ]
    return rows


def _one_line(parts: Sequence[Part], done: Sequence[Job]) -> str:
    """How much was run, on what."""
    corpus = parts[0].jobs[0].corpus
    if isinstance(corpus, Corpus):
        posts, users = corpus.manifest.posts["train"], corpus.manifest.users
        played = f"{corpus.name}: {many(posts, 'post')} by {many(users, 'user')}"
    else:
        played = many(len({job.corpus.name for part in parts for job in part.jobs}), "benchmark")
    seeds = many(len({job.seed for job in done}), "seed")
    return f"{many(len(done), 'run')} with {seeds} on {played}."


def _about(parts: Sequence[Part], failed: dict[str, str]) -> list[Block]:
    """What was run, where, and what did not work."""
    jobs = {job.key: job for part in parts for job in part.jobs}
    done = [job for job in jobs.values() if job.is_done]
    spent = duration(sum(seconds(compute(job)) for job in done))
    here = next((found for job in done if (found := made(job)["machine"])), machine())
    computed = (
        f"{len(done)} of {many(len(jobs), 'run')}, {spent} of training in all, on "
        f"{here.get('gpu', here['processor'])} with {here['cores']} cores, torch {here['torch']}. "
    )
    has_published = any(plan.published for part in parts for plan in part.experiment.tables)
    explained = Paragraph(computed + _measures(parts[0].jobs[0], has_published))
    blocks: list[Block] = [Heading("What was run"), explained]
    if older := len(_older(done)):
        told = f"{many(older, 'run')} of another version of the code: see the end of the page."
        blocks.append(Paragraph(told))
    if failed:
        rows = [[jobs[key].name, why] for key, why in failed.items() if key in jobs]
        blocks.append(Table(["failed", "why"], rows, "Runs that failed", labels=2))
    return blocks


def _older(done: Sequence[Job]) -> list[list[str]]:
    """The runs that another version of the code has made, and which."""
    return [[job.name, made(job)["code"]] for job in with_starts(list(done)) if job.older]


PUBLISHED = (
    " Published numbers are the paper's, on Firehose10M with 12 layers of 512: their order can be "
    "compared with ours, their size cannot."
)


def _measures(job: Job, has_published: bool) -> str:
    """The model, and what the numbers mean."""
    corpus, settings = job.corpus, job.settings
    if isinstance(corpus, Corpus):
        shape = settings.model.shape
        return (
            f"The model has {many(shape.layers, 'layer')} of {shape.d_model}, the vocabulary "
            f"{corpus.vocabulary.size:,} pieces. Perplexity is per word. ± is the deviation over "
            "seeds." + PUBLISHED * has_published
        )
    hidden = " and ".join(map(str, settings.perceptron.hidden))
    return (
        f"The model is a perceptron with hidden layers of {hidden}. Accuracy is in percent, and "
        "every task counts alike. ± is the deviation over seeds. Published numbers are the "
        "paper's, mean ± deviation of 3 runs."
    )


def verdicts(claims: Sequence[Checked]) -> Table:
    """What each claim came to here."""
    rows: list[list[Cell]] = [[claim.says, Verdict(claim.verdict)] for claim in claims]
    return Table(["claim", "here"], rows, labels=2)


def _summary(checked: Sequence[tuple[Part, list[Checked]]]) -> list[Block]:
    every = [claim for _, claims in checked for claim in claims]
    if not every:
        return []
    explained = (
        "A claim holds where 95 of 100 samples of users (or tasks) and seeds agree with it; it "
        "does not hold where they agree on the opposite; otherwise it is undecided."
    )
    of_paper = all(part.experiment.of_paper for part, claims in checked if claims)
    says = "What the paper says" if of_paper else "What was expected"
    heading = Heading(f"{says}, and what is seen here")
    return [heading, Paragraph(f"{tally(every)}. {explained}"), verdicts(every)]


def _comparisons(claim: Checked) -> Table:
    """The comparisons behind a claim."""
    scale = claim.scale
    rows: list[list[Cell]] = []
    for each in claim.compared:
        found = each.difference
        numbers = (found.value, found.low, found.high)
        change, low, high = (signed(scale.shown * number) for number in numbers)
        rows.append([each.label, change, f"{low} … {high}", Verdict(each.answer)])
    title = f"{claim.says} {claim.verdict[0].upper()}{claim.verdict[1:]}."
    heads = [measure_name(claim.measure, scale), scale.unit, "95 % of samples", "holds"]
    return Table(heads, rows, title)


def made(job: Job) -> dict[str, Any]:
    """With what a run that is done was computed."""
    return read_run(job.folder).model_dump(include={"version", "code", "machine", "device"})


def describe(job: Job) -> dict[str, Any]:
    """Everything about a run that is done, as plain values."""
    own = Group(job.facts, (job,))
    values = {measure: own.value(measure) for measure in get_args(Shown)}
    tables = ("pictures", "perceptron") if job.settings.pictures else ("model",)
    settings = job.settings.public()
    return {
        "name": job.name,
        "kind": job.kind,
        "seed": job.seed,
        **made(job),
        "settings": {name: settings[name] for name in (*tables, job.kind)},
        "begins with": job.start.name if job.start else None,
        "command": shlex.join(["firehose", *job.command()]),
        "compute": compute(job),
        "measures": {name: value.mean for name, value in values.items() if value},
        "result": read_result(job.folder),
    }


def _claim(part: Part, claim: Checked) -> dict[str, Any]:
    compared = []
    for each in claim.compared:
        found = each.difference
        numbers = {"change": found.value, "low": found.low, "high": found.high}
        compared.append({"runs": each.label, "answer": each.answer, **numbers})
    names = {"experiment": part.name, "says": claim.says, "measure": claim.measure}
    return names | {"scale": claim.scale.name, "here": claim.verdict, "compared": compared}


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False) + "\n").encode()
