"""Reports: on one run, on several, on the experiments of the paper and any others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from firehose.cli.app import (
    AsJson,
    CorpusPath,
    Jobs,
    Moved,
    Processes,
    ReuseOlder,
    RunPath,
    Seeds,
    Trust,
    app,
    show,
    show_json,
)

if TYPE_CHECKING:
    from firehose.experiments.reproduce import Reproduction


@app.command()
def compare(
    runs: Annotated[list[Path], Argument(help="Folders of runs on one corpus.")],
    out: Annotated[Path, Option(help="A folder for the page and its figures.")],
    baseline: Annotated[
        Path | None, Option(help="The run that all others are compared with.")
    ] = None,
    corpus: Moved = None,
    as_json: AsJson = False,
) -> None:
    """Put runs beside each other: a table, and one HTML page with curves.

    With `--baseline`, runs that differ only in their seed are averaged, and each is compared with
    the baseline: the difference is shown with its interval over users and seeds. All numbers are
    in `results.csv` and `results.parquet` beside the page.

    Examples:

    - `firehose compare runs/* --out comparison`

    - `firehose compare a-0 a-1 b-0 b-1 --baseline a-0 --out comparison`
    """
    against = f" --baseline {baseline}" if baseline else ""
    command = f"firehose compare {' '.join(map(str, runs))}{against} --out {out}"
    _compare(runs, out, command, corpus, baseline, as_json)


@app.command()
def report(
    run: RunPath,
    out: Annotated[
        Path | None, Option(help="A folder for the page and its figures (default: RUN/report).")
    ] = None,
    corpus: Moved = None,
    as_json: AsJson = False,
) -> None:
    """Show one run: an HTML page with its tables and curves.

    Example: `firehose report run`
    """
    _compare([run], out or run / "report", f"firehose report {run}", corpus, None, as_json)


def _compare(
    runs: list[Path],
    out: Path,
    command: str,
    corpus: Path | None,
    baseline: Path | None = None,
    as_json: bool = False,
) -> None:
    from firehose.experiments.compare import compare as read, results, write
    from firehose.progress import announce
    from firehose.report.results import table_of

    found = read(runs, corpus, baseline)
    with announce("drawing"):
        page = write(found, out, command)
    if as_json:
        show_json({"page": str(page), "results": table_of(results(found))})
        return
    show(found.table(), *([found.changes()] if baseline else []), f"Look at {page}")


@app.command()
def personalize(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: CorpusPath,
    out: Annotated[Path, Option(help="A folder for the page and its runs.")] = Path("personalized"),
    scale: Annotated[str, Option(help="laptop, paper, or a recipe of your own.")] = "laptop",
    seeds: Seeds = 1,
    jobs: Jobs = None,
    mask: Annotated[
        bool,
        Option("--mask", help="Show no words and no names, so that the page can be published."),
    ] = False,
    reuse_older: ReuseOlder = False,
    as_json: AsJson = False,
) -> None:
    """Say whether personalization helps on a corpus, by how much, for whom, and what it costs.

    The same stream is played without and with knowing who writes: once by a model alone, and once
    by the best method (averaged weights beside memories). If the corpus has posts from before its
    stream (`firehose prepare --pretrain-before`), a model is pretrained on them first. If the
    command is stopped or killed, give it again and it goes on.

    Example: `firehose personalize corpus --out personalized`
    """
    from firehose.experiments.personalize import personalize as answer

    command = f"firehose personalize {corpus} --scale {scale} --seeds {seeds}{' --mask' * mask}"
    found = answer(corpus, out, scale, seeds, jobs, mask, reuse_older, command)
    if as_json:
        show_json(found.public())
        return
    show(found.table(), found.sentence, f"Look at {found.page}")


@app.command()
def reproduce(  # noqa: PLR0913, PLR0917 (an option each)
    name: Annotated[str, Argument(help="The name of an experiment, a TOML file, all, or list.")],
    corpus: Annotated[Path | None, Option(help="A prepared corpus.")] = None,
    out: Annotated[Path, Option(help="A folder for runs and reports.")] = Path("reproduced"),
    scale: Annotated[str, Option(help="laptop, paper, or a recipe of your own.")] = "laptop",
    seeds: Seeds = 3,
    jobs: Jobs = None,
    reuse_older: ReuseOlder = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only show which runs are left, and how long they may take.")
    ] = False,
    trust: Trust = False,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the paper on any corpus, and show the result beside the published one.

    Runs are shared between experiments, and none is done twice. If the command is stopped or
    killed, give it again and it goes on. If a run fails, the report says so, and the others go on.

    Examples:

    - `firehose reproduce list`

    - `firehose reproduce steps --corpus corpus --seeds 2 --dry-run`

    - `firehose reproduce all --corpus corpus --seeds 2 --jobs 2 --out results`
    """
    from firehose.errors import FirehoseError
    from firehose.experiments import reproduce as experiments

    if name == "list":
        show(experiments.listing())
        return
    if corpus is None:
        raise FirehoseError("Name the corpus to play on: --corpus DIR, from `firehose prepare`.")
    if dry_run:
        schedule = experiments.make_schedule(name, corpus, out, scale, seeds, reuse_older, trust)
        show(experiments.dry_run(schedule, jobs))
        return
    more = f" --processes {processes}" * (processes > 1) + " --reuse-older" * reuse_older
    command = f"firehose reproduce {name} --corpus {corpus} --scale {scale} --seeds {seeds}{more}"
    options = (scale, seeds, jobs, command, reuse_older, trust, processes)
    found = experiments.reproduce(name, corpus, out, *options)
    report_experiment(found, as_json)


def report_experiment(found: "Reproduction", as_json: bool = False) -> None:
    """Print the tables and verdicts of an experiment, and where its page is."""
    from firehose.errors import FirehoseError
    from firehose.experiments.claims import tally
    from firehose.experiments.report import results, verdicts
    from firehose.report.results import table_of
    from firehose.report.words import many

    claims = [(part, part.claims()) for part in found.parts]
    every = [claim for _, checked in claims for claim in checked]
    if as_json:
        told = {claim.says: claim.verdict for claim in every}
        rows = table_of(results(found.parts))
        show_json({"page": str(found.page), "claims": told, "results": rows})
    else:
        for part in found.parts:
            show(*part.tables())
        show(
            *(
                [verdicts(every), f"Of {many(len(every), 'claim')}: {tally(every)}."]
                if every
                else []
            )
        )
        show(f"Look at {found.page}")
    if found.failed:
        raise FirehoseError(
            f"{many(len(found.failed), 'run')} failed, and the report says why; "
            "give the same command again to repeat only these."
        )
