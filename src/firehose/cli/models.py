"""Models: made, scored, converted, and asked to write."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firehose.cli.app import (
    Assignments,
    CorpusPath,
    Every,
    ModelPath,
    Recipe,
    Replace,
    Start,
    app,
    given,
    show,
)
from firehose.cli.game import report_run

if TYPE_CHECKING:
    from firehose.models.store import Trained


RunOut = Annotated[Path, typer.Option(help="The folder of the run; the model is in it.")]


@app.command()
def pretrain(
    corpus: CorpusPath,
    out: RunOut,
    split: Annotated[
        str, typer.Option(help="The posts to train on: pretrain, or train.")
    ] = "pretrain",
    recipe: Recipe = None,
    assignments: Assignments = None,
    replace: Replace = False,
    checkpoint_every: Every = 300,
) -> None:
    """Train a user-agnostic model, for every later one to begin with.

    Posts come in random order, epoch after epoch, with warm-up and decay; the weights of the
    epoch with the best validation perplexity are kept. Stopped or killed, `firehose resume` goes
    on from the last checkpoint, to the same bits.

    Example: `firehose pretrain corpus --out pretrained --recipe laptop --set pretrain.epochs=5`
    """
    from firehose.game.settings import make_settings
    from firehose.game.training import pretrain as train
    from firehose.models.allocation import keep_memory

    keep_memory()
    settings = make_settings(recipe, assignments or ())
    report_run(train(corpus, out, settings, split, replace, checkpoint_every), out)


@app.command()
def offline(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: CorpusPath,
    out: RunOut,
    start: Start = None,
    architecture: Annotated[
        str | None, typer.Option(help="agnostic, encoder, decoder, or adapters (adapters).")
    ] = None,
    recipe: Recipe = None,
    assignments: Assignments = None,
    replace: Replace = False,
    checkpoint_every: Every = 300,
) -> None:
    """Train a personal model on all training posts at once: the oracle no stream can give.

    Many epochs; the best one on validation posts is kept. Resumable as `firehose pretrain` is.

    Example: `firehose offline corpus --from pretrained --recipe laptop --out oracle`
    """
    from firehose.game.settings import make_settings
    from firehose.game.training import offline as train
    from firehose.models.allocation import keep_memory

    keep_memory()
    tables = given({"model": {"architecture": architecture}})
    settings = make_settings(recipe, assignments or (), **tables)
    report_run(train(corpus, out, settings, start, replace, checkpoint_every), out)


@app.command()
def evaluate(
    model: ModelPath,
    corpus: CorpusPath,
    split: Annotated[str, typer.Option(help="train, validation, test, or pretrain.")] = "test",
    others: Annotated[
        int, typer.Option(min=0, help="Other users whose vectors each post is scored with, too.")
    ] = 5,
    seed: Annotated[int, typer.Option(help="Of the choice of those users.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, or cuda:0 and so on.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="A Parquet file for the values of each user.")
    ] = None,
) -> None:
    """Score a model on held-out posts: perplexity per word and per token, balanced over users.

    A personal model is also scored as if other users had written each post: the farther that is
    from its own value, the more personal it is.

    Example: `firehose evaluate oracle corpus --out users.parquet`
    """
    from firehose.game.evaluate import evaluate as score, write
    from firehose.report.tables import terminal
    from firehose.report.words import many

    found = score(model, corpus, split, others, seed, device)
    show(terminal(found.table()))
    posts, words = len(found.own.nats), int(found.own.words.sum())
    show(f"{many(posts, 'post')} of {many(found.users, 'user')}, {many(words, 'word')}.")
    if found.unknown:
        show(f"{many(found.unknown, 'user')} new to the model got the population's vector.")
    if out:
        write(found, out)
        show(f"Each user's values are in {out}")


User = Annotated[str | None, typer.Option(help="Who goes on; without, the population does.")]
Prompt = Annotated[str, typer.Option(help="How the post begins.")]


@app.command()
def generate(  # noqa: PLR0913, PLR0917 (an option each)
    model: ModelPath,
    prompt: Prompt,
    user: User = None,
    temperature: Annotated[
        float, typer.Option(min=0, help="Under 1 more cautious, over 1 more daring; 0: greedy.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="From the k likeliest pieces; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="From the likeliest with this share.")] = 1.0,
    beam: Annotated[int, typer.Option(min=1, help="Over 1: the likeliest text of a search.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="So many texts.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The same one gives the same texts.")] = 0,
) -> None:
    """Write posts as a user would go on from a prompt.

    Example: `firehose generate oracle --user alice --prompt "fix the" --temperature 0.7 --count 3`
    """
    from firehose.generation.generate import generate as write
    from firehose.generation.sampling import Sampling
    from firehose.models.store import load

    values = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "beam": beam}
    sampling = Sampling.of(values | {"seed": seed}, "the options")
    trained = load(model)
    _tell_if_unknown(trained, model, user)
    for text in write(trained, prompt, user, sampling, count):
        show(text.text if text.finished else f"{text.text} …")


@app.command()
def suggest(
    model: ModelPath,
    prompt: Prompt,
    user: User = None,
    k: Annotated[int, typer.Option("-k", min=1, help="So many words.")] = 5,
) -> None:
    """Show the most probable next words of a user, with their probabilities.

    Example: `firehose suggest oracle --user alice --prompt "fix the" -k 3`
    """
    from firehose.generation.suggest import suggest as look
    from firehose.models.store import load
    from firehose.report.tables import Table, terminal

    trained = load(model)
    _tell_if_unknown(trained, model, user)
    words = look(trained, prompt, user, k)
    show(terminal(Table(["word", "probability"], [[w, f"{p:.1%}"] for w, p in words])))


def _tell_if_unknown(trained: "Trained", model: Path, user: str | None) -> None:
    if user is not None and trained.model.is_personal and not trained.knows(user):
        typer.echo(f"{model} does not know {user}: this is the population's text.", err=True)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A .pt file of the release, or a model's folder.")],
    out: Annotated[Path, typer.Option(help="The model's folder, or the .pt file, to make.")],
    vocab_model: Annotated[
        Path | None, typer.Option(help="The SentencePiece .model of the weights in a .pt file.")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="encoder or decoder, which a .pt file does not tell apart.")
    ] = None,
    users: Annotated[
        Path | None, typer.Option(help="The users' names, a line each, in the order of the rows.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace what is at --out.")] = False,
) -> None:
    """Turn weights of the authors' release into a model, or a model into such weights.

    Examples:

    - `firehose convert model.pt --vocab-model Firehose_cased_32000.model --out model`

    - `firehose convert model --out model.pt`
    """
    from firehose.models.published import convert as turn

    turn(source, out, vocab_model, architecture, users, replace)  # type: ignore[arg-type]
    show(f"Made {out}")
