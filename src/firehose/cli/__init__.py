"""The command line: it parses, calls, and prints. What it calls is in ``firehose`` too."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

import firehose
from firehose.cli import classic, data, experiments, models, runs, serving
from firehose.cli.app import TRACEBACK, app, show
from firehose.errors import FirehoseError, Stopped, visible_lines
from firehose.interrupts import end_with_parent, interrupt_when_terminated, status
from firehose.parallel.place import LOST, LostError, Place

__all__ = ["classic", "data", "experiments", "main", "models", "runs", "serving"]

INTERRUPTED = 130  # what typer returns after a KeyboardInterrupt
BROKEN_PIPE = 141  # as if SIGPIPE had ended us


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
        interrupt_when_terminated()  # from here on, so that no moment is without its sentence
        end_with_parent()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a locale or a name may lack a character
                stream.reconfigure(errors="replace")
        _refuse_odd_names(sys.argv[1:])
        code = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except Stopped as stopped:
        _fail(str(stopped), status())
    except FirehoseError as error:
        if os.environ.get(TRACEBACK):
            raise
        if isinstance(error, LostError) and Place.here().is_launched:
            os._exit(LOST)  # the parent tells what became of the other
        _fail("\n".join([str(error), *_lines_behind(error)]), 1)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        sentence = error.format_message() if hasattr(error, "format_message") else str(error)
        _fail(f"{sentence.rstrip('.')}{where}.", 2)
    except BrokenPipeError:
        os._exit(BROKEN_PIPE)
    except OSError as error:
        from firehose.faults import told

        _fail(told(error, "the output") or str(error), 1)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        _fail("Stopped; the same command begins again.", status())
    sys.exit(code)


def _lines_behind(error: FirehoseError) -> list[str]:
    """The lines of a file of the user's that could not be loaded."""
    from firehose.faults import own_lines  # not before it is needed: that takes time

    return own_lines(error.__cause__) if error.__cause__ else []


def _refuse_odd_names(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8: neither settings nor pages can name such files."""
    for argument in arguments:
        if argument.encode(errors="replace") != argument.encode(errors="surrogateescape"):
            raise FirehoseError(f"{os.fsencode(argument)!r} is not UTF-8; rename the file.")


def _fail(sentence: str, code: int) -> NoReturn:
    if not Place.here().speaks:  # the first process of this machine does
        os._exit(code)
    with contextlib.suppress(OSError):  # nobody may be listening any more
        typer.secho("Error: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(visible_lines(sentence), err=True)
        if sys.stdout is not None:
            sys.stdout.flush()
    # Not sys.exit: the threads of an engine that was stopped midway must not have a last word.
    os._exit(code)
