"""Runs: games and trainings, begun and gone on with; and forgetting somebody in them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from firehose.cli.app import (
    AsJson,
    Assignments,
    CorpusPath,
    Moved,
    Processes,
    RunPath,
    ShardUsers,
    Trust,
    app,
    given,
    show,
    show_json,
    together,
)
from firehose.models.allocation import keep_memory
from firehose.parallel.place import Place

if TYPE_CHECKING:
    from firehose.game.settings import Settings

RunOut = Annotated[Path, Option(help="The folder of the new run.")]
Start = Annotated[Path | None, Option("--from", help="A pretrained model, or its run.")]
Recipe = Annotated[
    str | None, Option(help="laptop, paper, or a TOML file (default: the paper's settings).")
]
Replace = Annotated[bool, Option(help="Remove what is at --out, and begin again.")]
Every = Annotated[float, Option(min=0, help="Seconds between two checkpoints.")]


@app.command()
def pretrain(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: CorpusPath,
    out: RunOut,
    split: Annotated[str, Option(help="The posts to train on: pretrain, or train.")] = "pretrain",
    recipe: Recipe = None,
    assignments: Assignments = None,
    trust: Trust = False,
    replace: Replace = False,
    checkpoint_every: Every = 300,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Train a user-agnostic model, with which later models and games begin.

    Posts come in random order, epoch after epoch, with warm-up and decay. The weights of the epoch
    with the best validation perplexity are kept. If the training is stopped or killed, `firehose
    resume` goes on from its last checkpoint, to the same bits as if it had never stopped.

    Example: `firehose pretrain corpus --out pretrained --recipe laptop --set pretrain.epochs=5`
    """
    with together(processes):
        from firehose.game.run import pretrain as train

        keep_memory()
        settings = _settings(recipe, assignments, trust)
        _report(train(corpus, out, settings, split, replace, checkpoint_every), out, as_json)


@app.command()
def offline(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: CorpusPath,
    out: RunOut,
    start: Start = None,
    architecture: Annotated[
        str | None, Option(help="agnostic, encoder, decoder, or adapters (the default).")
    ] = None,
    recipe: Recipe = None,
    assignments: Assignments = None,
    trust: Trust = False,
    replace: Replace = False,
    checkpoint_every: Every = 300,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Train a personal model on all training posts, many times over: an oracle to compare with.

    No model that learns from a stream can do this. The weights of the epoch that is best on
    validation posts are kept. If the training is stopped or killed, `firehose resume` goes on.

    Example: `firehose offline corpus --from pretrained --recipe laptop --out oracle`
    """
    with together(processes):
        from firehose.game.run import offline as train

        keep_memory()
        settings = _settings(recipe, assignments, trust, model={"architecture": architecture})
        _report(train(corpus, out, settings, start, replace, checkpoint_every), out, as_json)


@app.command()
def play(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: CorpusPath,
    out: RunOut,
    start: Start = None,
    learner: Annotated[
        str | None,
        Option(
            help="online-only, replay-only, mixed-replay, a-gem, gem, online-ewc, der, mir, "
            "distill, or FILE.py:Class."
        ),
    ] = None,
    optimizer: Annotated[
        str | None, Option(help="online-gd, congrad, averaged, frozen, or FILE.py:Class.")
    ] = None,
    predictor: Annotated[
        str | None,
        Option(help="model, mixture (the model and memories of posts), or FILE.py:Class."),
    ] = None,
    steps: Annotated[
        int | None, Option(help="At most this many steps in a round (K; default: 5).")
    ] = None,
    hours: Annotated[
        float | None, Option(help="A round is the posts of this many hours, instead of 256 posts.")
    ] = None,
    seed: Annotated[
        int | None, Option(help="The seed of everything that is random (default: 0).")
    ] = None,
    recipe: Recipe = None,
    assignments: Assignments = None,
    trust: Trust = False,
    replace: Replace = False,
    checkpoint_every: Every = 300,
    processes: Processes = 1,
    shard_users: ShardUsers = False,
    tensorboard: Annotated[bool, Option(help="Also write curves for TensorBoard.")] = False,
    as_json: AsJson = False,
) -> None:
    """Play the game on a corpus: predict each batch, pay for it, and only then learn from it.

    If the game is stopped or killed, `firehose resume` goes on from its last checkpoint, to the
    same bits as if it had never stopped.

    Examples:

    - `firehose play corpus --from pretrained --recipe laptop --learner a-gem --out run`

    - `firehose play corpus --recipe laptop --optimizer averaged --predictor mixture --out best`

    - `firehose play corpus --learner my_file.py:Mine --set play.learner.strength=3 --out run`

    - `firehose play corpus --from pretrained --processes 2 --shard-users --out run`
    """
    parts = {"learner": learner, "optimizer": optimizer, "predictor": predictor}
    told = parts | {"steps": steps, "hours": hours, "seed": seed}
    with together(processes, shard_users):
        from firehose.game.run import play as begin

        keep_memory()
        settings = _settings(recipe, assignments, trust, play=told)
        outcome = begin(corpus, out, settings, start, replace, checkpoint_every, tensorboard)
        _report(outcome, out, as_json)
        if start is None and not as_json and settings.pictures is None:
            from firehose.data.advice import unpretrained
            from firehose.data.corpus import Corpus

            show(unpretrained(Corpus(corpus)))


@app.command()
def resume(
    run: RunPath,
    previous: Annotated[
        bool, Option(help="Go on from the second newest checkpoint, because the newest is damaged.")
    ] = False,
    corpus: Moved = None,
    trust: Trust = False,
    processes: Processes = 1,
    shard_users: ShardUsers = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a game or a training that was stopped or killed, to the same bits.

    You may choose another number of processes than before. Then the last bits differ.

    Examples:

    - `firehose resume run`

    - `firehose resume run --processes 2`
    """
    with together(processes, shard_users):
        from firehose.game.run import resume as go_on

        keep_memory()
        _report(go_on(run, previous, corpus, trust), run, as_json)


@app.command()
def forget(
    path: Annotated[Path, Argument(help="A model, a run, or a corpus.")],
    user: Annotated[str, Option(help="The name of the user to forget.")],
    corpus: Moved = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Erase a user from a model, a run or a corpus: vector, moments, posts, name and counts.

    Example: `firehose forget run --user alice`
    """
    from firehose.game.forget import forget as erase
    from firehose.report.tables import Table

    erased = erase(path, user, corpus, trust)
    if as_json:
        show_json(erased)
        return
    rows = [[what, f"{count:,}"] for what, count in erased.items()]
    show(Table(["erased", ""], rows), f"{user} is forgotten in {path}.")


def _settings(
    recipe: str | None, assignments: list[str] | None, trust: bool, **tables: dict[str, Any]
) -> "Settings":
    """The settings that a command was given: flags win over --set, and --set over the recipe."""
    from firehose.game.settings import make_settings

    return make_settings(recipe, assignments or (), trust, **given(tables))


def _report(outcome: Any, run: Path, as_json: bool) -> None:
    """Print what came of a run; of several processes, only the first is heard."""
    if as_json:
        if Place.here().speaks:
            show_json(outcome.public())
        return
    show(*outcome.tables(), f"All numbers are in {run / 'result.json'} and in results.csv")
