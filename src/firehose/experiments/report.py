"""The result of experiments: one page, and every table, figure and run as a file."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from matplotlib.figure import Figure as Drawing

from firehose.data.corpus import Corpus
from firehose.experiments.claims import Checked, check
from firehose.experiments.compare import Comparison, Played
from firehose.experiments.curves import FIGURES
from firehose.experiments.jobs import Job, spelled, with_starts
from firehose.experiments.ledger import Group, compute, groups
from firehose.experiments.naming import label, measure_name
from firehose.experiments.recipe import BENCHMARK, Experiment, Shown
from firehose.experiments.tables import make_details, make_tables
from firehose.experiments.task_curves import TASK_FIGURES, TOGETHER, TaskRun, by_benchmark
from firehose.game.folder import read_result, read_run
from firehose.machine import machine
from firehose.report.figures import save
from firehose.report.page import Block, Figure, Heading, Paragraph, page
from firehose.report.tables import Table, save as save_table
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
        return [made for plan in plans for made in make_tables(plan, found)]

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
        found = groups(self.jobs)
        names = self.experiment.varies("play")
        runs = [Played(*_told(group, names), came) for group in found if (came := group.posts())]
        oracles = [g.value("test") for g in found if g.facts["kind"] == "offline"]
        corpus = self.jobs[0].corpus
        assert isinstance(corpus, Corpus)
        manifest = corpus.manifest
        posts = manifest.posts["train"]
        floors = manifest.floor or {}
        oracle = oracles[0].mean if oracles and oracles[0] else None
        return Comparison(corpus.name, manifest.users, posts, floors, runs, oracle)

    def task_runs(self) -> list[TaskRun]:
        """The games with tasks, to be drawn; each benchmark has a figure or a mark of its own."""
        found = groups(self.jobs)
        names = [name for name in self.experiment.varies("play") if name != BENCHMARK]
        return [TaskRun(*_told(group, names), seeds) for group in found if (seeds := group.tasks())]

    def figures(self) -> Iterator[tuple[str, Drawing, Figure]]:
        """The figures of what is done so far: a file's name, the drawing, and it on a page."""
        for draw in (plan.draw for plan in self.experiment.figures):
            if draw in TASK_FIGURES:
                kind, runs = TASK_FIGURES[draw], self.task_runs()
                split = {"": runs} if draw in TOGETHER and runs else by_benchmark(runs)
                for title, some in split.items():
                    drawing = kind.draw(some)
                    name = "-".join([self.name, draw, *title.lower().split()])
                    yield name, drawing, kind.block(drawing, some)
            elif (found := self.comparison()).runs:
                drawing = FIGURES[draw].draw(found)
                yield f"{self.name}-{draw}", drawing, FIGURES[draw].block(drawing, found)


def _told(group: Group, names: Sequence[str]) -> tuple[str, str, str]:
    """What a group is called by some of its settings, its learner and its optimizer."""
    facts, pair = group.facts, ("play.learner", "play.optimizer")
    return label(facts, names or pair), facts[pair[0]], facts[pair[1]]


def write(out: Path, parts: Sequence[Part], failed: dict[str, str], command: str) -> Path:
    """Write the page and all files; each whole. Returns the page."""
    checked = [(part, part.claims()) for part in parts]
    blocks: list[Block] = [*_about(parts, failed), *_summary(checked)]
    for part, claims in checked:
        title = part.experiment.title if len(parts) > 1 else "What came of it"
        tables, details = part.tables(), part.details()
        blocks += [Heading(title), Paragraph(part.experiment.about), *tables]
        for name, drawing, figure in part.figures():
            blocks.append(figure)
            save(drawing, out / "figures" / name)
        blocks += [*map(_comparisons, claims), *details]
        for number, shown in enumerate([*tables, *details], 1):
            save_table(shown, out / "tables" / f"{part.name}-{number}")
    done = list({job.key: job for part in parts for job in part.jobs if job.is_done}.values())
    for job in with_starts(done):
        write_whole(out / "runs" / f"{job.name}.json", _json(describe(job)))
        write_whole(out / "runs" / f"{job.name}.toml", job.settings.to_toml().encode())
    write_whole(out / "claims.json", _json([_claim(part, c) for part, cs in checked for c in cs]))
    title = parts[0].experiment.title if len(parts) == 1 else "Drinking from a firehose, again"
    content = page(title, _one_line(parts, done), blocks, command)
    write_whole(out / "index.html", content.encode())
    return out / "index.html"


def _one_line(parts: Sequence[Part], jobs: Sequence[Job]) -> str:
    seeds = len({job.seed for job in jobs})
    runs = f"{many(len(jobs), 'run')} with {many(seeds, 'seed')} on"
    corpus = parts[0].jobs[0].corpus
    if not isinstance(corpus, Corpus):
        benchmarks = {job.corpus.name for part in parts for job in part.jobs}
        return f"{runs} {many(len(benchmarks), 'benchmark')}."
    posts, users = corpus.manifest.posts["train"], corpus.manifest.users
    return f"{runs} {corpus.name}: {many(posts, 'post')} by {many(users, 'user')}."


def _about(parts: Sequence[Part], failed: dict[str, str]) -> list[Block]:
    """What was run, where, and what did not work."""
    jobs = {job.key: job for part in parts for job in part.jobs}
    done = [job for job in jobs.values() if job.is_done]
    spent = duration(sum(map(_seconds, done)))
    known = [found for job in done if (found := made(job)["machine"])]
    here = known[0] if known else machine()
    computed = (
        f"{len(done)} of {many(len(jobs), 'run')}, {spent} of training in all, on "
        f"{here.get('gpu', here['processor'])} with {here['cores']} cores, torch {here['torch']}. "
    )
    corpus, settings = parts[0].jobs[0].corpus, parts[0].jobs[0].settings
    hidden = " and ".join(map(str, settings.perceptron.hidden))
    explained = (
        f"The model is a perceptron with hidden layers of {hidden}. Accuracy is in percent, and "
        "every task counts alike. ± is the deviation over seeds. Published numbers are the "
        "paper's, mean ± deviation of 3 runs."
    )
    if isinstance(corpus, Corpus):
        some = settings.model.shape
        explained = (
            f"The model has {many(some.layers, 'layer')} of {some.d_model}, the vocabulary "
            f"{corpus.vocabulary.size:,} pieces. Perplexity is per word. ± is the deviation over "
            "seeds. Published numbers are the paper's, on Firehose10M with 12 layers of 512: "
            "their order can be compared with ours, their size cannot."
        )
    blocks: list[Block] = [Heading("What was run"), Paragraph(computed + explained)]
    if older := [job for job in with_starts(done) if job.older]:
        rows = [[job.name, made(job)["code"]] for job in older]
        title = "Runs of another version of the code, taken as they are (--reuse-older)"
        blocks.append(Table(["run", "code"], rows, title, labels=2))
    if failed:
        rows = [[jobs[key].name, why] for key, why in failed.items() if key in jobs]
        blocks.append(Table(["failed", "why"], rows, "Runs that failed", labels=2))
    return blocks


def _summary(checked: Sequence[tuple[Part, list[Checked]]]) -> list[Block]:
    rows = [[claim.says, claim.verdict] for _, claims in checked for claim in claims]
    if not rows:
        return []
    explained = Paragraph(
        "A claim holds where 95 of 100 samples of users (or tasks) and seeds agree with it; it "
        "does not hold where they agree on the opposite; otherwise it is undecided."
    )
    return [
        Heading("What the paper says, and what is seen here"),
        explained,
        Table(["claim", "here"], rows, labels=2),
    ]


def _comparisons(claim: Checked) -> Table:
    """The comparisons behind a claim."""
    scale = claim.scale
    rows = []
    for each in claim.compared:
        found = each.difference
        numbers = (found.value, found.low, found.high)
        change, low, high = (signed(scale.shown * number) for number in numbers)
        rows.append([each.label, change, f"{low} … {high}", each.answer])
    title = f"{claim.says} {claim.verdict[0].upper()}{claim.verdict[1:]}."
    heads = [measure_name(claim.measure, scale), scale.unit, "95 % of samples", "holds"]
    return Table(heads, rows, title)


def made(job: Job) -> dict[str, Any]:
    """With what a run that is done was computed."""
    card = read_run(job.folder)
    return {name: getattr(card, name) for name in ("version", "code", "machine", "device")}


def describe(job: Job) -> dict[str, Any]:
    """Everything about a run that is done, as plain values."""
    own = Group(job.facts, (job,))
    values = {measure: own.value(measure) for measure in get_args(Shown)}
    return {
        "name": job.name,
        "kind": job.kind,
        "seed": job.seed,
        **made(job),
        "settings": _settings(job),
        "begins with": job.start.name if job.start else None,
        "command": spelled(job.command()),
        "compute": compute(job),
        "measures": {name: value.mean for name, value in values.items() if value},
        "result": read_result(job.folder),
    }


def _settings(job: Job) -> dict[str, Any]:
    """The tables of settings that a run depends on."""
    pictures = ("pictures", "perceptron") if job.settings.pictures else ("model",)
    tables = job.settings.public()
    return {name: tables[name] for name in (*pictures, job.kind)}


def _claim(part: Part, claim: Checked) -> dict[str, Any]:
    compared = [
        {
            "runs": each.label,
            "answer": each.answer,
            "change": each.difference.value,
            "low": each.difference.low,
            "high": each.difference.high,
        }
        for each in claim.compared
    ]
    return {
        "experiment": part.name,
        "says": claim.says,
        "measure": claim.measure,
        "scale": claim.scale.name,
        "here": claim.verdict,
        "compared": compared,
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False) + "\n").encode()


def _seconds(job: Job) -> float:
    return sum(v for name, v in compute(job).items() if name.startswith("seconds"))
