"""What the commands share: the program, options that several have, and how they print."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from firehose.errors import FirehoseError

TRACEBACK = "FIREHOSE_TRACEBACK"  # if set, whatever goes wrong shows where
PLACES = ("out", "run", "path", "corpus", "model", "source")  # what a command is at work on


class Command(TyperCommand):
    """A command that says in a sentence what the system, or a user's own code, did not do."""

    def invoke(self, ctx: Any) -> Any:
        """Carry it out; only a defect of ours is raised as it is."""
        try:
            return super().invoke(ctx)
        except (FirehoseError, BrokenPipeError):
            raise
        except Exception as error:
            from firehose.faults import told  # not before it is needed: that takes time

            where = next((ctx.params[name] for name in PLACES if ctx.params.get(name)), "")
            sentence = None if os.environ.get(TRACEBACK) else told(error, where)
            if sentence is None:
                raise
            raise FirehoseError(sentence) from None


class App(typer.Typer):
    """Commands that fail in sentences."""

    def command(self, name: str | None = None, **more: Any) -> Callable[..., Any]:
        """Make a function a command."""
        return super().command(name, cls=Command, **more)


app = App(
    help="Personalized online language learning: one language model per user, from a stream "
    "of posts, without forgetting.\n\nStart with `firehose demo --out demo`.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=True,
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
    bool, Option("--trust", help="Run the code that a file names, and trust it from now on.")
]
Seeds = Annotated[
    int, Option(min=1, max=1_000, help="How many times each run is done, with another seed each.")
]
Jobs = Annotated[
    int | None, Option(min=1, help="How many runs at a time (default: one for each GPU, or core).")
]
Processes = Annotated[
    int,
    Option(
        min=1,
        help="How many processes on this machine share the work. Each computes a part of every "
        "batch. The result is the same. For several machines, start the command with torchrun.",
    ),
]
ShardUsers = Annotated[
    bool,
    Option(
        "--shard-users",
        help="Let each process keep only its share: users' vectors, moments and posts, counts.",
    ),
]
ReuseOlder = Annotated[
    bool,
    Option("--reuse-older", help="Do not repeat runs of another version of the code; mark them."),
]

AsJson = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]


@contextmanager
def together(processes: int, shard_users: bool = False) -> Iterator[None]:
    """Do what is inside with several processes, which are started here if torchrun has not.

    This one then only watches them, and ends as they do. With ``shard_users``, each of them holds
    a share of what is kept of users.
    """
    from firehose.parallel.launch import launch
    from firehose.parallel.place import Place, is_one_of_several

    if is_one_of_several():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # what is lost, we say; before torch
        size = Place.here().size
        if processes not in (1, size):
            raise FirehoseError(
                f"torchrun has started {size} processes, but --processes says {processes}; "
                "leave out --processes."
            )
        from firehose.parallel.joining import joined

        with joined(shard_users):
            yield
    elif processes > 1:
        raise SystemExit(launch(processes))
    else:
        yield


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

    from firehose.errors import visible_lines
    from firehose.report.tables import Table, terminal

    if sys.stdout is None:  # it was closed before we began
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with console.capture() as captured:  # rich would end the program where nobody reads
        for thing in things:
            is_table = isinstance(thing, Table)
            console.print(terminal(thing) if is_table else visible_lines(str(thing)))
    try:
        sys.stdout.write(captured.get())
        sys.stdout.flush()
    except BrokenPipeError:  # as after `| head -1`; the work is still to be done
        quiet()
    except OSError as error:
        error.filename = "The output"
        raise


def show_json(values: Any) -> None:
    """Print plain values for other programs: one JSON document, and nothing else."""
    import json

    typer.echo(json.dumps(values, ensure_ascii=False, indent=1))


def quiet() -> None:
    """Let what is printed from now on go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
