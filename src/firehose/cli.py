"""The command line: it parses, calls, and prints. What it calls is in ``firehose`` too."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

import firehose
from firehose.errors import FirehoseError, Stopped

if TYPE_CHECKING:
    from firehose.data.prepare import Prepared
    from firehose.models.store import Trained

app = typer.Typer(
    help="Personalized online language learning: one language model per user, from a stream "
    "of posts, without forgetting.\n\nStart with `firehose demo --out demo`.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Runner(StrEnum):
    """Where the work is done."""

    native = "native"
    ray = "ray"


CORES = os.cpu_count() or 1
STOPPED = 130  # what typer, as a shell, makes of Ctrl-C
Workers = Annotated[
    int, typer.Option(min=0, help="Processes to work in; 0: in this one. Default: all cores.")
]
Where = Annotated[Runner, typer.Option(help="This machine, or a Ray cluster. Same corpus.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="A folder for what the demo makes.")] = Path("demo"),
    workers: Workers = CORES,
) -> None:
    """Simulate a population, prepare its corpus, and show what it looks like."""
    from firehose.data.prepare import Execution
    from firehose.data.stats import tables
    from firehose.demonstration import demo

    corpus, statistics, page = demo(out, Execution(workers))
    _print(*tables(statistics))
    floor = (corpus.manifest.floor or {})["test"]
    _print(
        f"No learner can reach a word perplexity below {floor.personalized:.1f} on the test posts; "
        f"without knowing the user, none below {floor.agnostic:.1f}.",
        f"The corpus is {corpus.path}; look at {page}",
    )


@app.command()
def prepare(  # noqa: PLR0913, PLR0917 (an option each)
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, globs or git repositories; none: the simulated population."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the corpus goes.")] = ...,  # type: ignore[assignment]
    source: Annotated[
        str | None,
        typer.Option(
            help="tabular, twitter, git, nature, or FILE.py:Class. Default: what the paths are."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file, as in a corpus.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting, as a.b=value: --set source.columns.user=author"),
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option(help="Published lists of tweets: only these, in the splits they name."),
    ] = None,
    min_posts: Annotated[int | None, typer.Option(help="Drop users with fewer (20).")] = None,
    languages: Annotated[
        str | None, typer.Option(help='Languages to keep, as en,de (en); "" keeps all.')
    ] = None,
    mentions: Annotated[str | None, typer.Option(help="keep, or replace by `<MENTION>`.")] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="Pieces (32,000, or what the text supports).")
    ] = None,
    vocab_model: Annotated[
        Path | None, typer.Option(help="A SentencePiece .model to use instead.")
    ] = None,
    pretrain_before: Annotated[
        str | None, typer.Option(help="A date: earlier posts become a pretraining set.")
    ] = None,
    small: Annotated[
        float | None, typer.Option(help="Put this share of users into a small corpus of its own.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the choice of held-out posts (0).")] = None,
    workers: Workers = CORES,
    runner: Where = Runner.native,
    strict: Annotated[bool, typer.Option(help="Stop at the first unreadable record.")] = False,
    replace: Annotated[bool, typer.Option(help="Replace an older corpus at --out.")] = False,
) -> None:
    """Make a corpus from any stream of posts.

    The paper's cleaning: detect the language and keep English, drop retweets and replies, drop
    users with fewer than 20 posts, tokenize with URLs as `<URL>`, put `<SOT>` and `<EOT>` around.
    Then 3 posts per user are held out for validation, 3 for testing, and the rest is in time order.

    Examples:

    - `firehose prepare posts.parquet --out corpus`

    - `firehose prepare ~/src/linux ~/src/git --out commits`

    - `firehose prepare twitter-stream-2013-01.tar --ids lists/ --out firehose10m`
    """
    from firehose.data.plan import make_plan
    from firehose.data.prepare import Execution
    from firehose.data.prepare import prepare as make

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
    plan = make_plan(paths or (), config=config, assignments=assignments or (), **_given(tables))
    _report(make(plan, out, Execution(workers, runner.value), strict, replace))


@app.command()
def stats(
    corpus: Annotated[Path, typer.Argument(help="A prepared corpus.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the page and the figures go (CORPUS/stats).")
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
    _print(*tables(statistics), f"Look at {page}")


@app.command()
def check(corpus: Annotated[Path, typer.Argument(help="A prepared corpus.")]) -> None:
    """Compare every byte of a corpus with its checksums."""
    from firehose.data.corpus import check as compare
    from firehose.progress import announce

    with announce("reading every byte"):
        opened = compare(corpus)
    _print(f"{corpus} is whole: {len(opened.manifest.files)} files as they were written.")


Recipe = Annotated[
    str | None,
    typer.Option(help="laptop, paper, or a TOML file; the defaults are the paper's."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting, as a.b=value: --set model.shape.layers=3"),
]
CorpusPath = Annotated[Path, typer.Argument(help="A prepared corpus.")]
ModelOut = Annotated[Path, typer.Option(help="Where the model goes.")]
Replace = Annotated[bool, typer.Option(help="Replace what is at --out, and begin again.")]
Every = Annotated[
    float, typer.Option(min=0, help="Seconds between two checkpoints of the training.")
]


@app.command()
def pretrain(
    corpus: CorpusPath,
    out: ModelOut,
    split: Annotated[
        str, typer.Option(help="The posts to train on: pretrain, or train.")
    ] = "pretrain",
    recipe: Recipe = None,
    assignments: Assignments = None,
    replace: Replace = False,
    checkpoint_every: Every = 300,
) -> None:
    """Train a user-agnostic model, for every later one to begin with.

    Posts come in random order, epoch after epoch, with warm-up and decay; the weights of the
    epoch with the best validation perplexity are kept. Stopped or killed, the same command goes
    on from its last checkpoint, to the same bits.

    Example: `firehose pretrain corpus --out pretrained --recipe laptop --set pretrain.epochs=5`
    """
    from firehose.learning.offline import make_settings
    from firehose.learning.offline import pretrain as train

    settings = make_settings(recipe, assignments or ())
    _trained(train(corpus, out, settings, split, replace, checkpoint_every), out)


@app.command()
def offline(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: CorpusPath,
    out: ModelOut,
    start: Annotated[
        Path | None, typer.Option("--from", help="A pretrained model to begin with.")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="agnostic, encoder, decoder, or adapters (adapters).")
    ] = None,
    recipe: Recipe = None,
    assignments: Assignments = None,
    replace: Replace = False,
    checkpoint_every: Every = 300,
) -> None:
    """Train a personal model on all training posts at once: the oracle no stream can give.

    Many epochs, early stopping on validation posts, resumable as `firehose pretrain` is.

    Example: `firehose offline corpus --from pretrained --recipe laptop --out oracle`
    """
    from firehose.learning.offline import make_settings
    from firehose.learning.offline import offline as train

    tables = _given({"model": {"architecture": architecture}})
    settings = make_settings(recipe, assignments or (), **tables)
    _trained(train(corpus, out, start, settings, replace, checkpoint_every), out)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model's folder.")],
    corpus: CorpusPath,
    split: Annotated[str, typer.Option(help="train, validation, test, or pretrain.")] = "test",
    others: Annotated[
        int, typer.Option(min=0, help="Other users whose vectors each post is scored with, too.")
    ] = 5,
    seed: Annotated[int, typer.Option(help="Of the choice of those users.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="A Parquet file for the values of each user.")
    ] = None,
) -> None:
    """Score a model on held-out posts: perplexity per word and per token, balanced over users.

    A personal model is also scored as if other users had written each post: the farther that is
    from its own value, the more personal it is.

    Example: `firehose evaluate oracle corpus --out users.parquet`
    """
    from firehose.learning.evaluate import evaluate as score
    from firehose.learning.evaluate import write
    from firehose.page import many, terminal

    found = score(model, corpus, split, others, seed)
    _print(terminal(found.table()))
    posts, words = len(found.own.nats), int(found.own.words.sum())
    _print(f"{many(posts, 'post')} of {many(found.users, 'user')}, {many(words, 'word')}.")
    if found.unknown:
        _print(f"{many(found.unknown, 'user')} new to the model got the population's vector.")
    if out:
        write(found, out)
        _print(f"Each user's values are in {out}")


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A .pt file of the release, or a model's folder.")],
    out: Annotated[Path, typer.Option(help="The model's folder, or the .pt file, to make.")],
    vocab_model: Annotated[
        Path | None, typer.Option(help="The SentencePiece .model of the weights in a .pt file.")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="encoder or decoder, which a .pt file does not tell apart.")
    ] = None,
    users: Annotated[
        Path | None, typer.Option(help="The users' names, a line each, in the order of the rows.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace what is at --out.")] = False,
) -> None:
    """Turn weights of the authors' release into a model, or a model into such weights.

    Examples:

    - `firehose convert model.pt --vocab-model Firehose_cased_32000.model --out model`

    - `firehose convert model --out model.pt`
    """
    from firehose.models.published import convert as turn

    turn(source, out, vocab_model, architecture, users, replace)  # type: ignore[arg-type]
    _print(f"Made {out}")


def _trained(trained: "Trained", out: Path) -> None:
    from firehose.page import many

    best = min(trained.origin["history"], key=lambda epoch: epoch["validation"])
    _print(
        f"{out}: {many(len(trained.model.users), 'user')}; word perplexity "
        f"{best['validation']:.1f} on validation posts after epoch {best['number']}."
    )


def _given(tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The tables without what was not given."""
    given = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in tables.items()
    }
    return {name: table for name, table in given.items() if table}


def _report(prepared: "Prepared") -> None:
    from firehose.data.stats import cleaning, skipped
    from firehose.page import many, terminal

    manifest = prepared.corpora[0].manifest
    _print(f"{many(manifest.read, 'record')} read, by {many(manifest.read_users, 'user')}.")
    _print(terminal(cleaning(manifest)))
    if manifest.skipped:
        _print(terminal(skipped(manifest)))
    for reason, where in prepared.examples.items():
        _print(f"First of “{reason}”: {where}")
    for corpus in prepared.corpora:
        manifest = corpus.manifest
        posts = ", ".join(f"{count:,} {name}" for name, count in manifest.posts.items())
        _print(
            f"{corpus.path}: {many(manifest.users, 'user')}; posts: {posts}; "
            f"{many(manifest.vocabulary.size, 'piece')}."
        )


def _print(*things: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for thing in things:
        console.print(thing)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        _print(firehose.__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run a command. What the user can mend is one sentence on stderr, and status 1 or 2."""
    try:
        status = app(standalone_mode=False)
    except Stopped as stopped:
        _fail(str(stopped), STOPPED)
    except FirehoseError as error:
        _fail(str(error), 1)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        sentence = error.format_message() if hasattr(error, "format_message") else str(error)
        _fail(f"{sentence.rstrip('.')}{where}.", 2)
    except KeyboardInterrupt:
        status = STOPPED
    if status == STOPPED:
        _fail("Stopped; nothing was written.", STOPPED)
    sys.exit(status)


def _fail(sentence: str, status: int) -> NoReturn:
    typer.secho("Error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(sentence, err=True)
    sys.stdout.flush()
    # Not sys.exit: the threads of an engine that was stopped midway must not have a last word.
    os._exit(status)
