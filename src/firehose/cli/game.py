"""The game: played, gone on with, and told to forget somebody."""

from pathlib import Path
from typing import Annotated, Any

import typer

from firehose.cli.app import (
    Assignments,
    CorpusPath,
    Every,
    Recipe,
    Replace,
    Start,
    app,
    given,
    show,
)


@app.command()
def play(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: CorpusPath,
    out: Annotated[Path, typer.Option(help="The folder of the run.")],
    start: Start = None,
    learner: Annotated[
        str | None,
        typer.Option(help="online-only, replay-only, mixed-replay, a-gem, gem, or FILE.py:Class."),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="online-gd, congrad, or FILE.py:Class.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="K: the most gradient steps that a round may take (5).")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="A round is what comes in so many hours (256 posts).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of everything random (0).")] = None,
    recipe: Recipe = None,
    assignments: Assignments = None,
    replace: Replace = False,
    checkpoint_every: Every = 300,
    tensorboard: Annotated[bool, typer.Option(help="Write curves for TensorBoard, too.")] = False,
) -> None:
    """Play the game on a corpus: predict each batch, pay for it, and only then learn from it.

    Stopped or killed, `firehose resume` goes on from the last checkpoint, to the same bits.

    Examples:

    - `firehose play corpus --from pretrained --recipe laptop --learner a-gem --out run`

    - `firehose play corpus --learner my_file.py:Mine --set play.learner.strength=3 --out run`
    """
    from firehose.game.run import play as begin
    from firehose.game.settings import make_settings
    from firehose.models.allocation import keep_memory

    keep_memory()
    told = {"learner": learner, "optimizer": optimizer, "steps": steps, "hours": hours}
    tables = given({"play": told | {"seed": seed}})
    settings = make_settings(recipe, assignments or (), **tables)
    outcome = begin(corpus, out, settings, start, replace, checkpoint_every, tensorboard)
    report_run(outcome, out)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    previous: Annotated[
        bool, typer.Option(help="From the checkpoint before the newest, if that is damaged.")
    ] = False,
    corpus: Annotated[
        Path | None, typer.Option(help="Where the corpus is now, if it was moved.")
    ] = None,
) -> None:
    """Go on with a game or a training that was stopped or killed, to the same bits.

    Example: `firehose resume run`
    """
    from firehose.game.run import resume as go_on
    from firehose.models.allocation import keep_memory

    keep_memory()
    report_run(go_on(run, previous, corpus), run)


@app.command()
def forget(
    path: Annotated[Path, typer.Argument(help="A model, a run, or a corpus.")],
    user: Annotated[str, typer.Option(help="The name of the user to forget.")],
) -> None:
    """Erase a user from a model, a run or a corpus: vector, moments, posts, name and counts.

    Example: `firehose forget run --user alice`
    """
    from firehose.game.forget import forget as erase
    from firehose.report.tables import Table, terminal

    erased = erase(path, user)
    rows = [[what, f"{count:,}"] for what, count in erased.items()]
    show(terminal(Table(["erased", ""], rows)), f"{user} is forgotten in {path}.")


def report_run(outcome: Any, run: Path) -> None:
    """Print what came of a run."""
    from firehose.report.tables import terminal

    show(*map(terminal, outcome.tables()), f"All of it is in {run / 'result.json'}")
