"""The game: played, and gone on with."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firehose.cli.app import Assignments, CorpusPath, Every, Recipe, Replace, app, given, show

if TYPE_CHECKING:
    from firehose.game.outcome import Outcome


@app.command()
def play(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: CorpusPath,
    out: Annotated[Path, typer.Option(help="The folder of the run.")],
    start: Annotated[
        Path | None, typer.Option("--from", help="A pretrained model to begin with.")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(help="online-only, replay-only, mixed-replay, a-gem, or FILE.py:Class."),
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="online-gd, or congrad.")] = None,
    steps: Annotated[int | None, typer.Option(help="Of a round, at most: K (5).")] = None,
    hours: Annotated[
        float | None, typer.Option(help="A round is what comes in so many hours (256 posts).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random (0).")] = None,
    recipe: Recipe = None,
    assignments: Assignments = None,
    replace: Replace = False,
    checkpoint_every: Every = 300,
    tensorboard: Annotated[bool, typer.Option(help="Write curves for TensorBoard, too.")] = False,
) -> None:
    """Play the game on a corpus: predict each batch, pay for it, and only then learn from it.

    Stopped or killed, `firehose resume` goes on from the last checkpoint, to the same bits.

    Example: `firehose play corpus --from pretrained --recipe laptop --learner a-gem --out run`
    """
    from firehose.game.run import play as begin
    from firehose.game.settings import make_settings
    from firehose.models.allocation import keep_memory

    keep_memory()
    told = {"learner": learner, "optimizer": optimizer, "steps": steps, "hours": hours}
    tables = given({"play": told | {"seed": seed}})
    settings = make_settings(recipe, assignments or (), **tables)
    outcome = begin(corpus, out, settings, start, checkpoint_every, replace, tensorboard)
    _report(outcome, out)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    previous: Annotated[
        bool, typer.Option(help="From the checkpoint before the newest, if that is damaged.")
    ] = False,
) -> None:
    """Go on with a run that was stopped or killed, to the same bits as if it never was."""
    from firehose.game.run import resume as go_on
    from firehose.models.allocation import keep_memory

    keep_memory()
    _report(go_on(run, previous), run)


def _report(outcome: "Outcome", run: Path) -> None:
    from firehose.report.tables import terminal

    show(*map(terminal, outcome.tables()), f"All of it is in {run / 'result.json'}")
