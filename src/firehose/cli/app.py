"""What the commands share: the program, options that several have, and how they print."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

app = typer.Typer(
    help="Personalized online language learning: one language model per user, from a stream "
    "of posts, without forgetting.\n\nStart with `firehose demo --out demo`.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CorpusPath = Annotated[Path, Argument(help="A prepared corpus.")]
ModelPath = Annotated[Path, Argument(help="The folder of a model, or of the run that made it.")]
RunPath = Annotated[Path, Argument(help="The folder of a run.")]
Assignments = Annotated[
    list[str] | None, Option("--set", help="Change any setting: a.b=value; may be repeated.")
]
Moved = Annotated[
    Path | None, Option("--corpus", help="Where the corpus of the run is now, if it was moved.")
]
Trust = Annotated[
    bool, Option("--trust", help="Run the code that files name, and remember it as yours.")
]
Seeds = Annotated[int, Option(min=1, help="How many seeds each run is done with.")]
Jobs = Annotated[
    int | None, Option(min=1, help="Runs at a time (default: one for each GPU, or core).")
]
ReuseOlder = Annotated[
    bool, Option("--reuse-older", help="Take runs of another version of the code, and mark them.")
]


def given(tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The tables without the values that were not given."""
    told = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in tables.items()
    }
    return {name: table for name, table in told.items() if table}


def show(*things: Any) -> None:
    """Print texts and tables, as wide as they are."""
    from rich.console import Console

    from firehose.report.tables import Table, terminal

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for thing in things:
        console.print(terminal(thing) if isinstance(thing, Table) else thing)
