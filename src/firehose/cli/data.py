"""The commands about data: demo, prepare, stats, check and baseline."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from firehose.cli.app import AsJson, Assignments, CorpusPath, Trust, app, given, show, show_json
from firehose.models.allocation import keep_memory

if TYPE_CHECKING:
    from firehose.data.corpus import Corpus
    from firehose.data.prepare import Prepared


class Runner(StrEnum):
    """Where the processes run."""

    native = "native"
    ray = "ray"


CORES = os.cpu_count() or 1
Workers = Annotated[int, Option(min=0, help="How many processes do the work; 0: only this one.")]


@app.command()
def demo(
    out: Annotated[Path, Option(help="A folder for what the demo makes.")] = Path("demo"),
    workers: Workers = CORES,
    as_json: AsJson = False,
) -> None:
    """Simulate a population, play the game on its stream four ways, and compare them.

    Two of the four replay remembered posts. Two use ConGraD, which goes back to the weights that
    were best on held-back posts. The page says how much replay and ConGraD have helped.
    """
    from firehose.data.prepare import Execution
    from firehose.experiments.compare import results
    from firehose.experiments.demo import demo
    from firehose.report.results import table_of

    keep_memory()
    made = demo(out, Execution(workers))
    if as_json:
        rows = table_of(results(made.comparison))
        show_json({"corpus": str(made.corpus.path), "page": str(made.page), "results": rows})
        return
    show(
        made.comparison.table(),
        made.sentence,
        f"The corpus is {made.corpus.path}; {made.statistics_page} tells about it.",
        f"Look at {made.page}",
    )


@app.command()
def prepare(  # noqa: PLR0913, PLR0917 (an option each)
    paths: Annotated[
        list[str] | None,
        Argument(help="Files, folders, globs or git repositories; none: a simulated population."),
    ] = None,
    out: Annotated[Path, Option(help="The folder of the new corpus.")] = ...,  # type: ignore[assignment]
    source: Annotated[
        str | None,
        Option(
            help="tabular, twitter, git, mbox, inbox, nature, or FILE.py:Class (default: by path)."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        Option(help="For files of a known origin: reddit, hackernews or stackexchange."),
    ] = None,
    config: Annotated[
        Path | None, Option(help="A TOML file of settings, such as config.toml of a corpus.")
    ] = None,
    assignments: Assignments = None,
    ids: Annotated[
        list[str] | None,
        Option(
            help="Published lists of tweets: keep only these, in the splits that the lists name."
        ),
    ] = None,
    min_posts: Annotated[
        int | None, Option(help="Drop users with fewer posts (default: 20).")
    ] = None,
    languages: Annotated[
        str | None, Option(help='Languages to keep, as en,de (default: en); "" keeps all.')
    ] = None,
    mentions: Annotated[str | None, Option(help="keep, or replace by `<MENTION>`.")] = None,
    vocab_size: Annotated[
        int | None,
        Option(
            help="Number of pieces (default: 500 to 32,000, depending on how much text there is)."
        ),
    ] = None,
    vocab_model: Annotated[
        Path | None, Option(help="A SentencePiece .model to use instead of training one.")
    ] = None,
    pretrain_before: Annotated[
        str | None, Option(help="A date: earlier posts become a pretraining set.")
    ] = None,
    small: Annotated[
        float | None, Option(help="Put this share of the users into a small corpus of its own.")
    ] = None,
    seed: Annotated[
        int | None, Option(help="The seed by which posts are split (default: 0).")
    ] = None,
    workers: Workers = CORES,
    runner: Annotated[
        Runner, Option(help="native: this machine; ray: a Ray cluster. The corpus is the same.")
    ] = Runner.native,
    trust: Trust = False,
    strict: Annotated[bool, Option(help="Stop at the first unreadable record.")] = False,
    replace: Annotated[bool, Option(help="Replace an older corpus at --out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a corpus from any stream of posts.

    The posts are cleaned as in the paper: English posts are kept, retweets and replies are dropped,
    users with fewer than 20 posts are dropped, URLs become `<URL>`, and each post goes from `<SOT>`
    to `<EOT>`. For each user, 3 posts are held out for validation and 3 for testing. The others
    are for training, in the order of time.

    Examples:

    - `firehose prepare posts.parquet --set source.columns.user=author --out corpus`

    - `firehose prepare RC_2019-04.zst --preset reddit --out comments`

    - `firehose prepare ~/src/linux ~/src/git --out commits`

    - `firehose prepare twitter-stream-2013-01.tar --ids lists/ --out firehose10m`
    """
    from firehose.data.plan import make_plan
    from firehose.data.prepare import Execution, prepare as make

    kept = None if languages is None else languages.replace(",", " ").split()
    tables: dict[str, Any] = {
        "source": {"kind": source, "ids": ids or None},
        "clean": {"min_posts": min_posts, "languages": kept, "mentions": mentions},
        "split": {"pretrain_before": pretrain_before, "small": small, "seed": seed},
        "vocabulary": {"size": vocab_size, "model": vocab_model},
    }
    told = {
        "config": config,
        "preset": preset,
        "assignments": assignments or (),
        "trust": trust,
        **given(tables),
    }
    plan = make_plan(paths or (), **told)
    made = make(plan, out, Execution(workers, runner.value), strict, replace)
    if as_json:
        show_json([_described(corpus) for corpus in made.corpora])
        return
    _report(made)


@app.command()
def stats(
    corpus: CorpusPath,
    out: Annotated[
        Path | None, Option(help="A folder for the page and its figures (default: CORPUS/stats).")
    ] = None,
    as_json: AsJson = False,
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
    if as_json:
        show_json(statistics.model_dump(mode="json"))
        return
    show(*tables(statistics), statistics.lengths.sentence(), f"Look at {page}")


@app.command()
def check(corpus: CorpusPath, as_json: AsJson = False) -> None:
    """Compare every byte of a corpus with its checksums."""
    from firehose.data.corpus import check as compare
    from firehose.progress import announce

    with announce("reading every byte"):
        opened = compare(corpus)
    if as_json:
        show_json({"corpus": str(corpus), "whole": True, "files": len(opened.manifest.files)})
        return
    show(f"{corpus} is undamaged: all {len(opened.manifest.files)} files are as they were written.")


@app.command()
def baseline(
    corpus: CorpusPath,
    out: Annotated[
        Path | None, Option(help="A JSON file for the prices (default: CORPUS/baseline.json).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Price the stream of a corpus by compressors, and by memories without a model.

    The price says how well a predictor does that sees the stream once and knows no users. It is
    the bits for pretraining posts and stream together, less the bits for the pretraining posts,
    divided by the words of the stream. The prices are kept in the folder of the corpus, and
    reports on the corpus show them. PPMd needs `pip install firehose-poll[baselines]`, and zpaq
    needs the program of that name.

    Example: `firehose baseline corpus`
    """
    from firehose.game.baseline import FILE, baseline as price

    found = price(corpus, out)
    if as_json:
        typer.echo(found.to_json(), nl=False)
    else:
        show(found.table(), f"The prices are in {out or corpus / FILE}")


def _described(corpus: "Corpus") -> dict[str, Any]:
    """What there is to know of a new corpus, as plain values."""
    from firehose.data.advice import advice

    about = corpus.manifest.model_dump(mode="json", exclude={"config", "files", "words"})
    return {"corpus": str(corpus.path), **about, "advice": advice(corpus)}


def _report(prepared: "Prepared") -> None:
    from firehose.data.advice import advice
    from firehose.data.stats import Lengths, cleaning, skipped
    from firehose.report.words import many

    manifest = prepared.corpora[0].manifest
    show(
        f"{many(manifest.read, 'record')} read, by {many(manifest.read_users, 'user')}.",
        cleaning(manifest),
        *([skipped(manifest)] if manifest.skipped else []),
    )
    for reason, where in prepared.examples.items():
        show(f"First of “{reason}”: {where}")
    for corpus in prepared.corpora:
        manifest = corpus.manifest
        posts = ", ".join(f"{count:,} {name}" for name, count in manifest.posts.items())
        show(
            f"{corpus.path}: {many(manifest.users, 'user')}; posts: {posts}; "
            f"{many(manifest.vocabulary.size, 'piece')}.",
            Lengths.of(corpus.splits["train"]).sentence(),
            *advice(corpus),
        )
