"""The command line: it parses, calls, and prints. What it calls is in ``firehose`` too."""

import os
import sys
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

import firehose
from firehose.cli import classic, data, experiments, models, runs
from firehose.cli.app import app, show
from firehose.errors import FirehoseError, Stopped, visible_lines

__all__ = ["classic", "data", "experiments", "main", "models", "runs"]

STOPPED = 130  # what typer, as a shell, makes of Ctrl-C


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        show(firehose.__version__)
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
    typer.echo(visible_lines(sentence), err=True)
    sys.stdout.flush()
    # Not sys.exit: the threads of an engine that was stopped midway must not have a last word.
    os._exit(status)
