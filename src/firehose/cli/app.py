"""What the commands share: the program, options that several have, and how they print."""

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Personalized online language learning: one language model per user, from a stream "
    "of posts, without forgetting.\n\nStart with `firehose demo --out demo`.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CorpusPath = Annotated[Path, typer.Argument(help="A prepared corpus.")]
Recipe = Annotated[
    str | None,
    typer.Option(help="laptop, paper, or a TOML file; the defaults are the paper's."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting, as a.b=value: --set model.shape.layers=3"),
]
ModelPath = Annotated[Path, typer.Argument(help="A model's folder, or that of its run.")]
Start = Annotated[
    Path | None, typer.Option("--from", help="A pretrained model to begin with, or its run.")
]
Replace = Annotated[bool, typer.Option(help="Replace what is at --out, and begin again.")]
ReuseOlder = Annotated[
    bool,
    typer.Option("--reuse-older", help="Take runs of another version of the code, and mark them."),
]
Every = Annotated[float, typer.Option(min=0, help="Seconds between two checkpoints.")]


def given(tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The tables without what was not given."""
    told = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in tables.items()
    }
    return {name: table for name, table in told.items() if table}


def show(*things: Any) -> None:
    """Print text or tables, as wide as they are."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for thing in things:
        console.print(thing)
