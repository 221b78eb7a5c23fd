"""The commands about data: demo, prepare, stats and check."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firehose.cli.app import CorpusPath, app, given, show

if TYPE_CHECKING:
    from firehose.data.prepare import Prepared


class Runner(StrEnum):
    """Where the processes run."""

    native = "native"
    ray = "ray"


CORES = os.cpu_count() or 1
Workers = Annotated[
    int, typer.Option(min=0, help="Processes that do the work; 0: this one. Default: all cores.")
]
Where = Annotated[
    Runner, typer.Option(help="On this machine, or on a Ray cluster; the corpus is the same.")
]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="A folder for what the demo makes.")] = Path("demo"),
    workers: Workers = CORES,
) -> None:
    """Simulate a population, play the game on its stream four ways, and compare them."""
    from firehose.data.prepare import Execution
    from firehose.experiments.demo import demo
    from firehose.models.allocation import keep_memory
    from firehose.report.tables import terminal

    keep_memory()
    made = demo(out, Execution(workers))
    show(
        terminal(made.comparison.table()),
        f"The corpus is {made.corpus.path}; {made.statistics_page} tells about it.",
        f"Look at {made.page}",
    )


@app.command()
def prepare(  # noqa: PLR0913, PLR0917 (an option each)
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, globs or git repositories; none: the simulated population."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the new corpus.")] = ...,  # type: ignore[assignment]
    source: Annotated[
        str | None,
        typer.Option(
            help="tabular, twitter, git, nature, or FILE.py:Class. Default: what the paths are."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file of settings, as in a corpus.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting, as a.b=value: --set source.columns.user=author"),
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option(help="Published lists of tweets: only these, in the splits they name."),
    ] = None,
    min_posts: Annotated[int | None, typer.Option(help="Drop users with fewer posts (20).")] = None,
    languages: Annotated[
        str | None, typer.Option(help='Languages to keep, as en,de (en); "" keeps all.')
    ] = None,
    mentions: Annotated[str | None, typer.Option(help="keep, or replace by `<MENTION>`.")] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="Number of pieces (32,000, or what the text supports).")
    ] = None,
    vocab_model: Annotated[
        Path | None, typer.Option(help="A SentencePiece .model to use instead of training one.")
    ] = None,
    pretrain_before: Annotated[
        str | None, typer.Option(help="A date: earlier posts become a pretraining set.")
    ] = None,
    small: Annotated[
        float | None, typer.Option(help="Put this share of users into a small corpus of its own.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the choice of held-out posts (0).")
    ] = None,
    workers: Workers = CORES,
    runner: Where = Runner.native,
    strict: Annotated[bool, typer.Option(help="Stop at the first unreadable record.")] = False,
    replace: Annotated[bool, typer.Option(help="Replace an older corpus at --out.")] = False,
) -> None:
    """Make a corpus from any stream of posts.

    The posts are cleaned as in the paper: English posts are kept, retweets and replies are dropped,
    users with fewer than 20 posts are dropped, URLs become `<URL>`, and each post goes from `<SOT>`
    to `<EOT>`. Of each user 3 posts are held out for validation and 3 for testing; the others are
    for training, in time order.

    Examples:

    - `firehose prepare posts.parquet --out corpus`

    - `firehose prepare ~/src/linux ~/src/git --out commits`

    - `firehose prepare twitter-stream-2013-01.tar --ids lists/ --out firehose10m`
    """
    from firehose.data.plan import make_plan
    from firehose.data.prepare import Execution, prepare as make

    tables: dict[str, Any] = {
        "source": {"kind": source, "ids": ids or None},
        "clean": {
            "min_posts": min_posts,
            "languages": None
            if languages is None
            else [name.strip() for name in languages.split(",") if name.strip()],
            "mentions": mentions,
        },
        "split": {"pretrain_before": pretrain_before, "small": small, "seed": seed},
        "vocabulary": {"size": vocab_size, "model": vocab_model},
    }
    plan = make_plan(paths or (), config=config, assignments=assignments or (), **given(tables))
    _report(make(plan, out, Execution(workers, runner.value), strict, replace))


@app.command()
def stats(
    corpus: CorpusPath,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the page and the figures (CORPUS/stats).")
    ] = None,
) -> None:
    """Describe a corpus: the paper's table and four figures, printed and as one HTML page."""
    from firehose.data.corpus import Corpus
    from firehose.data.stats import describe, tables
    from firehose.data.stats_figures import write
    from firehose.progress import announce

    opened = Corpus(corpus)
    with announce("counting"):
        statistics = describe(opened)
    with announce("drawing"):
        page, *_ = write(statistics, out or corpus / "stats", f"firehose stats {corpus}")
    show(*tables(statistics), statistics.lengths.sentence(), f"Look at {page}")


@app.command()
def check(corpus: CorpusPath) -> None:
    """Compare every byte of a corpus with its checksums."""
    from firehose.data.corpus import check as compare
    from firehose.progress import announce

    with announce("reading every byte"):
        opened = compare(corpus)
    show(f"{corpus} is whole: {len(opened.manifest.files)} files as they were written.")


def _report(prepared: "Prepared") -> None:
    from firehose.data.lengths import Lengths
    from firehose.data.stats import cleaning, skipped
    from firehose.report.tables import terminal
    from firehose.report.words import many

    manifest = prepared.corpora[0].manifest
    show(f"{many(manifest.read, 'record')} read, by {many(manifest.read_users, 'user')}.")
    show(terminal(cleaning(manifest)))
    if manifest.skipped:
        show(terminal(skipped(manifest)))
    for reason, where in prepared.examples.items():
        show(f"First of “{reason}”: {where}")
    for corpus in prepared.corpora:
        manifest = corpus.manifest
        posts = ", ".join(f"{count:,} {name}" for name, count in manifest.posts.items())
        show(
            f"{corpus.path}: {many(manifest.users, 'user')}; posts: {posts}; "
            f"{many(manifest.vocabulary.size, 'piece')}.",
            Lengths.of(corpus.splits["train"]).sentence(),
        )
