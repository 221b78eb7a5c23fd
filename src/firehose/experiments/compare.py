"""Runs beside each other, or one alone: a page with their tables and curves."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.experiments.curves import DIFFERENCES, FIGURES, Comparison, Difference
from firehose.experiments.ledger import Group, difference
from firehose.experiments.looks import Run
from firehose.experiments.naming import name_of
from firehose.experiments.tables import BY_SLICE, slice_table
from firehose.game.folder import find_corpus, read_run, reading
from firehose.game.outcome import Outcome
from firehose.game.results import rows_of
from firehose.game.settings import Kind
from firehose.report.page import Block, Heading, Paragraph, page
from firehose.report.results import Row, write_results
from firehose.report.words import many
from firehose.storage.files import write_whole

PAIR = ("learner", "optimizer")


@dataclass(frozen=True)
class Played:
    """A game that is over, wherever it is."""

    folder: Path
    corpus: Corpus
    seed: int
    kind: Kind = "play"


def compare(
    runs: Sequence[str | Path],
    corpus: str | Path | None = None,
    baseline: str | Path | None = None,
) -> Comparison:
    """Read runs that are over; they must have been played on the same corpus.

    ``corpus`` says where that is now, if it was moved. With a ``baseline``, which is one of the
    runs, runs that differ only in their seed are averaged, and each is compared with the baseline,
    user by user. No code that the runs name is run.
    """
    first = Path(runs[0])
    card = read_run(first)
    found = find_corpus(first, card, corpus)
    if not isinstance(found, Corpus):
        raise FirehoseError(f"{first} was played with pictures; `firehose classic` reports it.")
    played = [_read(Path(run), first, card.corpus.seal) for run in runs]
    if len({run.name for run in played}) < len(played):  # then the parts do not tell what differs
        played = [p._replace(name=Path(r).name) for p, r in zip(played, runs, strict=True)]
    if baseline is None:
        return Comparison.of(found, played)
    return _pooled(found, [Path(run) for run in runs], played, Path(baseline))


def _pooled(
    corpus: Corpus, folders: Sequence[Path], played: Sequence[Run[Outcome]], baseline: Path
) -> Comparison:
    """Seeds together, and every group of runs against that of the baseline."""
    known = [folder.resolve() for folder in folders]
    if baseline.resolve() not in known:
        raise FirehoseError(f"{baseline} is not among the runs; name it there, too.")
    pools: dict[str, list[int]] = {}
    for number, folder in enumerate(folders):
        pools.setdefault(_without_seed(folder), []).append(number)
    groups, drawn = [], []
    for numbers in pools.values():
        members = tuple(Played(folders[n], corpus, _seed(folders[n])) for n in numbers)
        if len({each.seed for each in members}) < len(members):
            raise FirehoseError(
                f"{members[0].folder} and another run have the same settings and the same seed; "
                "leave one of them out."
            )
        first = played[numbers[0]]
        groups.append(Group({"kind": "play", "name": first.name}, members))
        outcomes = [played[number].outcome for number in numbers]
        drawn.append(first._replace(outcome=Outcome.mean(outcomes)))
    base = next(g for g in groups if baseline.resolve() in [j.folder.resolve() for j in g.jobs])
    differences = [
        Difference(group.facts["name"], measure, found)
        for group in groups
        if group is not base
        for measure in DIFFERENCES
        if (found := difference(group, base, measure, measure))
    ]
    made = Comparison.of(corpus, drawn)
    return made._replace(groups=groups, baseline=base.facts["name"], differences=differences)


def _without_seed(folder: Path) -> str:
    card = read_run(folder)
    play = {name: value for name, value in card.settings["play"].items() if name != "seed"}
    start = card.start.seal if card.start else None
    return json.dumps([card.settings | {"play": play}, start], sort_keys=True)


def _seed(folder: Path) -> int:
    return int(read_run(folder).settings["play"].get("seed", 0))


def _read(folder: Path, first: Path, corpus: str) -> Run[Outcome]:
    """Read a run that is over; its corpus must have the seal of the first one's."""
    with reading(folder):
        card = read_run(folder)
        if card.corpus.seal != corpus:
            raise FirehoseError(f"{folder} was played on another corpus than {first}.")
        if card.kind != "play":
            raise FirehoseError(f"{folder} is a training; only games can be compared.")
        outcome = Outcome.read(folder)
    try:
        learner, optimizer = (card.settings["play"][part]["kind"] for part in PAIR)
        inner = card.settings["play"]["optimizer"].get("inner")
        told = name_of(optimizer) + (f" of {name_of(inner['kind'])}" if inner else "")
        predictor = card.settings["play"].get("predictor", {}).get("kind", "model")
        told += "" if predictor == "model" else f", {name_of(predictor)}"
    except (KeyError, TypeError):
        raise FirehoseError(f"{folder / 'run.json'} does not say which game was played.") from None
    return Run(f"{name_of(learner)} × {told}", learner, optimizer, outcome)


def write(found: Comparison, out: Path, command: str, sentence: str = "") -> Path:
    """Write index.html, and each figure as PNG and SVG; each file whole. Returns the page.

    ``sentence`` is what the page begins with.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FirehoseError(f"Cannot write into {out}: {error.strerror}.") from None
    blocks: list[Block] = [
        Heading("What each run came to"),
        Paragraph(
            "The numbers are perplexities per word. Online: what every batch cost when it came, "
            "before anything was learned from it. Test: what held-out posts cost the final model; "
            "also with every user counted alike, however much they write, and per token."
        ),
        found.table(),
        *_differences(found),
        Heading("Through time, and back"),
        *(FIGURES[name].show(found, found.runs, out / name) for name in _drawn(found)),
        Heading("Slices"),
        *(
            slice_table({run.name: slices(run.outcome) for run in found.runs}, title)
            for title, slices in BY_SLICE.values()
        ),
        slice_table(
            {run.name: run.outcome.by_activity for run in found.runs},
            "Online perplexity by how much the user writes, the quietest first",
        ),
    ]
    if len(found.runs) == 1:
        blocks += [Heading("In full"), *found.runs[0].outcome.tables()]
    posts, users = many(found.posts, "post"), many(found.users, "user")
    summary = f"{many(len(found.runs), 'run')} on a stream of {posts} by {users}."
    summary = f"{sentence} {summary}" if sentence else summary
    write_results(out, results(found))
    content = page(f"The game on {found.corpus}", summary, blocks, command)
    write_whole(out / "index.html", content.encode())
    return out / "index.html"


def _drawn(found: Comparison) -> list[str]:
    """The figures that have something to say: compute only where runs differ in it."""
    spent = {run.outcome.compute["gradient steps"] for run in found.runs}
    ratio = [] if found.baseline is None else ["ratio"]
    rest = [name for name in FIGURES if name not in ("ratio", "compute")]
    return [*ratio, *rest, *(["compute"] if len(spent) > 1 else [])]


def _differences(found: Comparison) -> list[Block]:
    """What the baseline is compared with, where there is one."""
    if found.baseline is None:
        return []
    return [Heading(f"Compared with {found.baseline}"), Paragraph(PAIRED), found.changes()]


PAIRED = (
    "By how much perplexity is lower (−) or higher (+), with the same users and the same seeds on "
    "both sides. A run is better or worse if 95 of 100 samples of users and seeds agree on it."
)


def results(found: Comparison) -> list[Row]:
    """A row for each number: of each run, or of seeds together, and of each difference."""
    rows = []
    for run, group in zip_longest(found.runs, found.groups):
        members = group.jobs if group else ()
        for job in members if len(members) > 1 else ():
            came = Outcome.read(job.folder)
            rows += rows_of(came, run.name, job.seed)
        rows += rows_of(run.outcome, run.name, members[0].seed if len(members) == 1 else None)
    for run, measure, change in found.differences:
        ends = (change.value, change.low, change.high)
        rows.append(Row(run, f"{measure}, change against {found.baseline}", *ends))
    return rows


def report(
    run: str | Path, out: str | Path | None = None, corpus: str | Path | None = None
) -> Path:
    """Write a page about one run that is over, to ``out`` or to RUN/report; returns the page.

    ``corpus`` says where the run's corpus is now, if it was moved.
    """
    folder = Path(out) if out else Path(run) / "report"
    return write(compare([run], corpus), folder, f"firehose report {run}")
