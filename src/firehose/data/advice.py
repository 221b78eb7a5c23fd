"""What keeps a first number on a corpus from being good, and what to do about it."""

from datetime import UTC, datetime

from firehose.data.corpus import Corpus
from firehose.report.words import many, percent

FEW = 5_000  # posts: with fewer, little is learned, and intervals are wide
CUT = 0.2  # of the posts
MAX_TOKENS = 50  # of a post that models learn from, where nothing else is said
EARLIEST = 0.2  # the share of the posts that a date for pretraining is proposed for


def advice(corpus: Corpus) -> list[str]:
    """Sentences about a corpus, each with a remedy; none, where nothing is in the way."""
    about, train = corpus.manifest, corpus.splits["train"]
    found = []
    if not about.posts.get("pretrain"):
        remedy = "prepare posts from before the stream, too, with --pretrain-before DATE"
        if early := _early_date(corpus):
            remedy = f"--pretrain-before {early} keeps the earliest fifth of these posts for that"
        found.append(
            "There is nothing to pretrain on: a model begins with random weights, and its numbers "
            f"are worse than they need be; {remedy}."
        )
    if about.posts["train"] < FEW:
        found.append(
            f"{many(about.posts['train'], 'post')} to learn from are few: intervals will be wide. "
            "Take more of them, or more users with a lower --min-posts."
        )
    if (share := train.share_longer(MAX_TOKENS)) > CUT:
        found.append(
            f"Models learn from the first {MAX_TOKENS} tokens of a post, if not told otherwise, "
            f"which cuts {percent(round(share * len(train)), len(train))} of these; give them "
            f"--set model.max_tokens={train.tokens_covering()}, or --recipe laptop, which has 160."
        )
    return found


def unpretrained(corpus: Corpus) -> str:
    """What to do about a game that began with random weights, in a sentence."""
    remedy = "prepare the corpus with --pretrain-before DATE, then `firehose pretrain`"
    if corpus.manifest.posts.get("pretrain"):
        remedy = f"`firehose pretrain {corpus.path} --out pretrained`"
    return (
        "The model began with random weights, so that these numbers are worse than they need be: "
        f"{remedy}, then play with --from pretrained."
    )


def _early_date(corpus: Corpus) -> str | None:
    """The day before which the earliest fifth of the stream lies; None: all is of one day."""
    time = corpus.splits["train"].time
    if not len(time):
        return None
    first, early, last = (
        datetime.fromtimestamp(int(each) / 1000, UTC).date()
        for each in (time[0], time[int(EARLIEST * len(time))], time[-1])
    )
    return early.isoformat() if first < early < last else None
