"""What a run needs at least, against what there is: refused before anything is allocated."""

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game.settings import Kind, Settings, Training, taking_steps
from firehose.models.sizes import FLOAT, count_kept, count_weights, refuse_beyond_memory
from firehose.parallel.shards import Shards
from firehose.plugins import Choice

MOST_STEPS = 10**11  # a thousand a second for three years
MODEL = "The model, with its gradient and moments,"
COPIES = {"adam": 4, "sgd": 2}  # of each weight: itself, its gradient, and the rule's moments
FIXED = 18  # bytes of a remembered post beside its tokens


def refuse_too_large(kind: Kind, settings: Settings, corpus: Corpus) -> None:
    """Refuse a run that needs more memory than this machine has, or more steps than can be taken.

    What it needs is reckoned from below: a run that is not refused may still be too large.
    """
    needs = _playing(settings, corpus) if kind == "play" else _training(kind, settings, corpus)
    refuse_beyond_memory(needs, "choose smaller numbers")


def refuse_endless(steps: int) -> None:
    """Refuse a run of more steps than anybody can wait for."""
    if steps > MOST_STEPS:
        raise FirehoseError(
            f"{steps:.1e} gradient steps would take years at a thousand a second; choose "
            "fewer steps, rounds or epochs."
        )


def _playing(settings: Settings, corpus: Corpus) -> dict[str, int]:
    """The bytes that a game needs, by what needs them."""
    play, plan, shares = settings.play, settings.model, Shards.here().parts
    tokens = _tokens(corpus, plan.max_tokens)
    weights = count_weights(plan, corpus.vocabulary.size)
    room = buffer_bytes(settings, corpus.manifest.users, corpus.manifest.posts["train"])
    compared = getattr(taking_steps(play.optimizer), "validation_batch", 0)
    copies = COPIES.get(play.rule.kind, 2) + len(getattr(play.optimizer, "horizons", ()))
    batch = min(play.posts, corpus.manifest.posts["train"])
    kept, scored = tokens * count_kept(plan), tokens * plan.shape.d_model  # numbers of a post
    numbers = {
        MODEL: copies * weights,
        f"A step of play.step_size = {play.step_size:,}": play.step_size * kept,
        f"play.optimizer.validation_batch = {compared:,}": compared * scored,
        f"A round of {batch:,} posts": batch * scored,
        "The table of users' vectors": plan.d_user * corpus.manifest.users // shares,
    }
    return {what: int(FLOAT * count) for what, count in numbers.items()} | {
        "The memory (play.memory)": room["memory"] // shares,
        "The buffer of held-back posts (play.optimizer.validation)": room["validation"] // shares,
    }


def _training(kind: Kind, settings: Settings, corpus: Corpus) -> dict[str, int]:
    """The bytes that a training needs, by what needs them."""
    training: Training = getattr(settings, kind)
    plan, posts = settings.model, corpus.manifest.posts
    step = min(training.posts, max(posts.values()))
    tokens, weights = _tokens(corpus, plan.max_tokens), count_weights(plan, corpus.vocabulary.size)
    return {
        MODEL: FLOAT * COPIES["adam"] * weights,
        f"A step of {kind}.posts = {step:,}": FLOAT * int(step * tokens * count_kept(plan)),
    }


def _tokens(corpus: Corpus, most: int) -> float:
    """The mean number of a post's tokens that are trained on, reckoned from below."""
    train = corpus.splits["train"]
    return min(len(train.tokens) / max(len(train), 1), most) / 2


def buffer_bytes(
    settings: Settings, users: int, posts: int, width: int | None = None
) -> dict[str, int]:
    """The bytes of the full buffers of a game: the memory, and what an optimizer holds back.

    ``width`` is that of a post; without it, of one with as many tokens as are trained on.
    """
    play = settings.play
    each = width or 2 * settings.model.max_tokens + FIXED
    held_back = getattr(taking_steps(play.optimizer), "validation", None)
    held = {"memory": play.memory, "validation": held_back}
    return {name: each * _limit(buffer, users, posts) for name, buffer in held.items()}


def _limit(settings: Choice | None, users: int, posts: int) -> int:
    """The posts that a full buffer has room for; there are ``posts`` in the stream."""
    per_user, most = (getattr(settings, name, None) for name in ("per_user", "posts"))
    if most is not None:
        return min(int(most), posts)
    room = int(per_user or 0) * users
    # A row of slots for each user is made at once; others grow with their posts.
    has_rows = settings is not None and settings.kind.startswith("stratified")
    return room if has_rows else min(room, posts)
