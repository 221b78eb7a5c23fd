"""Runs beside each other, or one alone: a page with their tables and curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from firehose.data.corpus import Corpus, Floor
from firehose.errors import FirehoseError
from firehose.experiments.curves import FIGURES
from firehose.experiments.naming import name_of
from firehose.game.folder import open_corpus_of, read_run, run_settings
from firehose.game.metrics import Slices
from firehose.game.outcome import Outcome
from firehose.report.figures import save
from firehose.report.page import Block, Heading, Paragraph, page
from firehose.report.tables import Table
from firehose.report.words import many
from firehose.storage.files import write_whole


class Played(NamedTuple):
    """A run that is over."""

    name: str
    learner: str
    optimizer: str
    outcome: Outcome


class Comparison(NamedTuple):
    """Runs on one corpus."""

    corpus: str
    users: int
    posts: int
    floors: dict[str, Floor]  # the best possible, where the true model is known
    runs: list[Played]
    oracle: float | None = None  # test perplexity of a model that was trained offline

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Learner and optimizer of each run."""
        return [(run.learner, run.optimizer) for run in self.runs]

    def table(self) -> Table:
        """What each run came to."""
        rows = []
        for run in self.runs:
            came = run.outcome
            numbers = (came.online, came.test, came.test_balanced, came.test_per_token)
            online, test, balanced, per_token = (f"{number.value:.1f}" for number in numbers)
            interval = f"{came.test.low:.1f} – {came.test.high:.1f}"
            spent = f"{came.compute['gradient steps']:,.0f}", f"{_seconds(came):,.0f}"
            rows.append([run.name, online, test, interval, balanced, per_token, *spent])
        for name, row in (
            ("personalized", "best possible, knowing the user"),
            ("agnostic", "best possible, not knowing the user"),
        ):
            if self.floors:
                online, test = (
                    f"{getattr(self.floors[split], name):.1f}" for split in ("train", "test")
                )
                rows.append([row, online, test, "", "", "", "", ""])
        heads = ["", "online", "test", "95 % of samples", "users alike", "per token"]
        return Table([*heads, "steps", "seconds"], rows)


def compare(runs: Sequence[str | Path]) -> Comparison:
    """Read runs that are over; they must have been played on the same corpus."""
    cards = [read_run(Path(run)) for run in runs]
    for run, card in zip(runs, cards, strict=True):
        if card.corpus.seal != cards[0].corpus.seal:
            raise FirehoseError(f"{run} was played on another corpus than {runs[0]}.")
    folder = Path(runs[0])
    corpus = open_corpus_of(folder, cards[0], run_settings(folder, cards[0]))
    if not isinstance(corpus, Corpus):
        raise FirehoseError(f"{folder} was played with pictures; `firehose classic` reports it.")
    played = []
    for run, card in zip(runs, cards, strict=True):
        if card.kind != "play":
            raise FirehoseError(f"{run} is a training; only games can be compared.")
        learner, optimizer = (
            card.settings["play"][name]["kind"] for name in ("learner", "optimizer")
        )
        name = f"{name_of(learner)} × {name_of(optimizer)}"
        played.append(Played(name, learner, optimizer, Outcome.read(Path(run))))
    names = [run.name for run in played]
    if len(set(names)) < len(names):  # then what differs is not to be seen from the parts
        played = [p._replace(name=Path(r).name) for p, r in zip(played, runs, strict=True)]
    posts = corpus.manifest.posts["train"]
    return Comparison(
        corpus.name, corpus.manifest.users, posts, corpus.manifest.floor or {}, played
    )


def write(found: Comparison, out: Path, command: str) -> list[Path]:
    """Write index.html, and each figure as PNG and SVG; each file whole."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FirehoseError(f"Cannot write into {out}: {error.strerror}.") from None
    drawn = {name: figure.draw(found) for name, figure in FIGURES.items()}
    blocks: list[Block] = [
        Heading("What each run came to"),
        Paragraph(
            "Word perplexity. Online: what every batch cost when it came, before anything was "
            "learned from it. Test: held-out posts, under the final model; also with every user "
            "counted alike, however much they write, and per token instead of per word."
        ),
        found.table(),
        Heading("Through time, and back"),
    ]
    blocks += [FIGURES[name].block(figure, found) for name, figure in drawn.items()]
    blocks += [Heading("Slices"), *_slices(found)]
    if len(found.runs) == 1:
        blocks += [Heading("In full"), *found.runs[0].outcome.tables()]
    summary = (
        f"{many(len(found.runs), 'run')} on a stream of {many(found.posts, 'post')} by "
        f"{many(found.users, 'user')}."
    )
    content = page(f"The game on {found.corpus}", summary, blocks, command)
    paths = [out / "index.html"]
    write_whole(paths[0], content.encode())
    for name, figure in drawn.items():
        paths += save(figure, out / name)
    return paths


def _slices(found: Comparison) -> list[Block]:
    titles: dict[str, str] = {
        "after_silence": "Online perplexity by the time since the user's last post",
        "by_activity": "Online perplexity by how much the user writes, the quietest first",
    }
    return [_slice_table(found, name, title) for name, title in titles.items()]


def _slice_table(found: Comparison, name: str, title: str) -> Table:
    slices: list[Slices] = [getattr(run.outcome, name) for run in found.runs]
    rows = [
        [key, f"{part.posts:,}", *(f"{each[key].value:.1f}" for each in slices)]
        for key, part in slices[0].items()
    ]
    return Table(["", "posts", *(run.name for run in found.runs)], rows, title)


def _seconds(outcome: Outcome) -> float:
    return sum(value for name, value in outcome.compute.items() if name.startswith("seconds"))


def report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write a page about one run that is over, to ``out`` or to RUN/report; returns the page."""
    folder = Path(out) if out else Path(run) / "report"
    page, *_ = write(compare([run]), folder, f"firehose report {run}")
    return page
