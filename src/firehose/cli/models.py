"""Models: scored, asked to write, and converted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from firehose.cli.app import (
    AsJson,
    CorpusPath,
    ModelPath,
    Processes,
    Trust,
    app,
    show,
    show_json,
    together,
)
from firehose.parallel.place import Place

if TYPE_CHECKING:
    from firehose.game.evaluate import Evaluation
    from firehose.game.live import Trained


@app.command()
def evaluate(  # noqa: PLR0913, PLR0917 (an option each)
    model: ModelPath,
    corpus: CorpusPath,
    split: Annotated[str, Option(help="train, validation, test, or pretrain.")] = "test",
    others: Annotated[
        int, Option(min=0, help="Score each post also as if this many other users had written it.")
    ] = 5,
    seed: Annotated[int, Option(min=0, help="The seed that chooses those users.")] = 0,
    device: Annotated[str, Option(help="auto, cpu, cuda, or cuda:N.")] = "auto",
    out: Annotated[Path | None, Option(help="A Parquet file for the values of each user.")] = None,
    trust: Trust = False,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Score a model on held-out posts: perplexity per word and per token, balanced over users.

    A personal model is also scored as if other users had written each post. The more this raises
    the perplexity, the more the model knows about its users.

    Example: `firehose evaluate oracle corpus --out users.parquet`
    """
    with together(processes):
        from firehose.game.evaluate import evaluate as score, write
        from firehose.parallel.group import first

        found = score(model, corpus, split, others, seed, device, trust)
        if as_json and Place.here().speaks:
            show_json(found.public())
        elif not as_json:
            _show(found)
        if out:
            first(write, found, out)
            if not as_json:
                show(f"Each user's values are in {out}")


def _show(found: "Evaluation") -> None:
    """Print how well a model did."""
    from firehose.report.words import many

    posts, words = len(found.own.nats), int(found.own.words.sum())
    show(
        found.table(),
        f"{many(posts, 'post')} of {many(found.users, 'user')}, {many(words, 'word')}.",
    )
    if found.unknown:
        show(f"{many(found.unknown, 'user')} whom the model does not know got the average vector.")


User = Annotated[str | None, Option(help="The user who writes (default: nobody in particular).")]
Prompt = Annotated[str, Option(help="How the post begins.")]
MinUsers = Annotated[
    int,
    Option(min=1, help="Tell what others wrote only if at least this many users have written it."),
]


@app.command()
def generate(  # noqa: PLR0913, PLR0917 (an option each)
    model: ModelPath,
    prompt: Prompt,
    user: User = None,
    temperature: Annotated[
        float, Option(min=0, help="Below 1 is more cautious, above 1 more daring, 0 greedy.")
    ] = 1.0,
    top_k: Annotated[
        int, Option(min=0, help="Draw only from the k most probable pieces; 0: all.")
    ] = 0,
    top_p: Annotated[
        float,
        Option(help="Draw only from the most probable pieces, which together have this share."),
    ] = 1.0,
    beam: Annotated[int, Option(min=1, help="The width of a beam search; 1: no search.")] = 1,
    count: Annotated[int, Option(min=1, max=100_000, help="How many texts to write.")] = 1,
    seed: Annotated[int, Option(min=0, help="The same seed gives the same texts.")] = 0,
    min_users: MinUsers = 3,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Write posts as a user would go on from a prompt.

    Example: `firehose generate oracle --user alice --prompt "fix the" --temperature 0.7 --count 3`
    """
    from firehose.generation.generate import generate as write
    from firehose.generation.sampling import Sampling

    values = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "beam": beam}
    sampling = Sampling.of(values | {"seed": seed}, "the options")
    texts = write(_load(model, user, min_users, trust), prompt, user, sampling, count)
    if as_json:
        show_json([{"text": text.text, "finished": text.finished} for text in texts])
        return
    for text in texts:
        show(text.text if text.finished else f"{text.text} …")


@app.command()
def suggest(
    model: ModelPath,
    prompt: Prompt,
    user: User = None,
    k: Annotated[int, Option("-k", min=1, max=1_000, help="How many words to show.")] = 5,
    min_users: MinUsers = 3,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Show the most probable next words of a user, with their probabilities.

    Example: `firehose suggest oracle --user alice --prompt "fix the" -k 3`
    """
    from firehose.generation.suggest import suggest as look
    from firehose.report.tables import Table

    words = look(_load(model, user, min_users, trust), prompt, user, k)
    if as_json:
        show_json([{"word": word, "probability": share} for word, share in words])
        return
    show(Table(["word", "probability"], [[w, f"{p:.1%}"] for w, p in words]))


def _load(path: Path, user: str | None, min_users: int, trust: bool) -> "Trained":
    """Load a model; say so where it does not know the user, or a part of it may not speak."""
    from firehose.game.live import load

    trained = load(path, min_users=min_users, trust=trust)
    is_personal = trained.model.is_personal or trained.is_mixed
    if user is not None and is_personal and not trained.knows(user):
        typer.echo(f"{path} does not know {user}: this is the population's text.", err=True)
    if trained.is_silent:
        typer.echo(
            f"{path} has not counted how many users wrote what it remembers, so it tells nothing "
            "that others wrote; --min-users 1 lets it tell everything.",
            err=True,
        )
    return trained


@app.command()
def convert(
    source: Annotated[Path, Argument(help="A .pt file of the release, or a model's folder.")],
    out: Annotated[Path, Option(help="The model's folder, or the .pt file, to make.")],
    vocab_model: Annotated[
        Path | None, Option(help="The SentencePiece .model of the weights in a .pt file.")
    ] = None,
    architecture: Annotated[
        str | None,
        Option(help="encoder or decoder: a .pt file does not say which of the two it is."),
    ] = None,
    users: Annotated[
        Path | None,
        Option(
            help="A file with the users' names, one on each line, in the order of their vectors."
        ),
    ] = None,
    replace: Annotated[bool, Option(help="Replace what is at --out.")] = False,
) -> None:
    """Turn weights of the authors' release into a model, or a model into such weights.

    Examples:

    - `firehose convert model.pt --vocab-model Firehose_cased_32000.model --out model`

    - `firehose convert model --out model.pt`
    """
    from firehose.models.published import convert as turn

    turn(source, out, vocab_model, architecture, users, replace)  # type: ignore[arg-type]
    show(f"Made {out}")
