"""Runs beside each other, or one alone: a page with their tables and curves."""

from collections.abc import Sequence
from pathlib import Path

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.experiments.curves import FIGURES, Comparison
from firehose.experiments.looks import Run
from firehose.experiments.naming import name_of
from firehose.experiments.tables import BY_SLICE, slice_table
from firehose.game.folder import find_corpus, read_run, reading
from firehose.game.outcome import Outcome
from firehose.report.page import Block, Heading, Paragraph, page
from firehose.report.words import many
from firehose.storage.files import write_whole

PAIR = ("learner", "optimizer")


def compare(runs: Sequence[str | Path], corpus: str | Path | None = None) -> Comparison:
    """Read runs that are over; they must have been played on the same corpus.

    ``corpus`` says where that is now, if it was moved. No code that the runs name is run.
    """
    first = Path(runs[0])
    card = read_run(first)
    found = find_corpus(first, card, corpus)
    if not isinstance(found, Corpus):
        raise FirehoseError(f"{first} was played with pictures; `firehose classic` reports it.")
    played = [_read(Path(run), first, card.corpus.seal) for run in runs]
    if len({run.name for run in played}) < len(played):  # then the parts do not tell what differs
        played = [p._replace(name=Path(r).name) for p, r in zip(played, runs, strict=True)]
    return Comparison.of(found, played)


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


def write(found: Comparison, out: Path, command: str) -> Path:
    """Write index.html, and each figure as PNG and SVG; each file whole. Returns the page."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FirehoseError(f"Cannot write into {out}: {error.strerror}.") from None
    blocks: list[Block] = [
        Heading("What each run came to"),
        Paragraph(
            "Word perplexity. Online: what every batch cost when it came, before anything was "
            "learned from it. Test: held-out posts, under the final model; also with every user "
            "counted alike, however much they write, and per token instead of per word."
        ),
        found.table(),
        Heading("Through time, and back"),
        *(kind.show(found, found.runs, out / name) for name, kind in FIGURES.items()),
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
    content = page(f"The game on {found.corpus}", summary, blocks, command)
    write_whole(out / "index.html", content.encode())
    return out / "index.html"


def report(
    run: str | Path, out: str | Path | None = None, corpus: str | Path | None = None
) -> Path:
    """Write a page about one run that is over, to ``out`` or to RUN/report; returns the page.

    ``corpus`` says where the run's corpus is now, if it was moved.
    """
    folder = Path(out) if out else Path(run) / "report"
    return write(compare([run], corpus), folder, f"firehose report {run}")
