"""The page that says what it is worth to know who writes."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Drawn
from numpy.typing import NDArray

from firehose.data.corpus import Corpus
from firehose.experiments.gain_figures import draw_slices, draw_users
from firehose.experiments.gains import Method, Slice, UserGain
from firehose.experiments.jobs import Job
from firehose.experiments.ledger import compute, seconds
from firehose.game import metrics
from firehose.game.live import load
from firehose.game.scoring import Costs
from firehose.game.totals import Measured
from firehose.game.words import WordCost, word_costs
from firehose.report.figures import render
from firehose.report.page import Block, Figure, Heading, Paragraph, Shaded, Word, page
from firehose.report.tables import Table
from firehose.report.words import duration, interval, many, number, perplexity, size
from firehose.storage.files import write_whole

SHOWN = 5  # users, and posts, at either end
FEWEST = 10  # posts of a user who is shown
SHORTEST = 4  # words of a post that is shown, <EOT> included
DARKEST = 12.0  # nats of a word on the darkest ground
GROUPS: dict[str, tuple[str, Callable[[Costs], metrics.Groups], str]] = {
    "By a user's number of earlier posts": (
        "earlier posts",
        metrics.history_groups,
        "How soon it helps: what knowing the user was worth, by how many posts of the user "
        "had come before.",
    ),
    "By the time since the last one": (
        "since the last post",
        metrics.silence_groups,
        "Whether it lasts: by how long ago the user's last post was. First posts are left out.",
    ),
    "By activity": (
        "users by how much they write",
        metrics.activity_groups,
        "For whom: by how much a user writes, in ten groups with as many users each; 0–10 % are "
        "the quietest.",
    ),
}
UNPRETRAINED = (
    "Without pretraining: the corpus has no posts from before its stream, so the model began with "
    "random weights, and what it learns about everybody and about each user is mixed. Prepare it "
    "with --pretrain-before DATE for numbers that can be compared with others'."
)


def write(
    path: Path,
    corpus: Corpus,
    sentence: str,
    is_pretrained: bool,
    methods: Sequence[Method],
    mask: bool,
    command: str,
) -> None:
    """Write the page, whole."""
    best, users = methods[-1], {method.name: method.online.by_user() for method in methods}
    blocks: list[Block] = [] if is_pretrained else [Paragraph(UNPRETRAINED)]
    blocks += [Heading("What was seen"), Paragraph(PERPLEXITY), overview(methods)]
    for title, (axis, groups, caption) in GROUPS.items():
        of_post = groups(best.online.known[0])
        slices = {method.name: method.online.slices(of_post) for method in methods}
        blocks += [Heading(title), _drawn(draw_slices(slices, axis), f"{caption} {BARS}")]
        blocks.append(_slice_table(slices[best.name], axis, f"{best.name}, word perplexity"))
    caption = "Every user, from the one whom it helps least to the one whom it helps most."
    blocks += [Heading("Over users"), Paragraph(_distribution(users[best.name]))]
    blocks += [_drawn(draw_users(users), caption), *_extremes(users[best.name], corpus, mask)]
    blocks += [Heading("Word by word"), *_posts(best, corpus, mask)]
    blocks += [Heading("What it costs"), *_price(methods), Heading("How it was measured")]
    blocks.append(Paragraph(_how(corpus, best)))
    content = page(f"Does personalization help on {corpus.name}?", sentence, blocks, command)
    write_whole(path, content.encode())


PERPLEXITY = (
    "Word perplexity: among how many words, all alike, one would have to choose to be as unsure. "
    "The stream is paid for as it comes, before anything is learned from a post; held-out posts "
    "are paid for by what was learned in the end."
)
BARS = "Bars: 95 % of samples of users."


def _gain(found: Measured) -> list[str]:
    """In percent, and the ends of the interval."""
    value, low, high = interval(*(100 * each for each in (found.value, found.low, found.high)))
    return [f"{value} %", f"{low} to {high} %"]


def overview(methods: Sequence[Method]) -> Table:
    """Perplexities of each method without and with knowing the users, and by what they differ."""
    rows = []
    for method in methods:
        for what, pair in (("the stream", method.online), ("held-out posts", method.test)):
            numbers = map(perplexity, pair.perplexities())
            rows.append([f"{method.name}, {what}", *numbers, *_gain(pair.gain())])
    return Table(["", "users unknown", "users known", "falls by", "95 % of samples"], rows)


def _slice_table(found: Sequence[Slice], axis: str, title: str) -> Table:
    rows = [
        [
            each.name,
            f"{each.posts:,}",
            f"{each.users:,}",
            perplexity(each.unknown),
            perplexity(each.known),
            *_gain(each.gain),
        ]
        for each in found
    ]
    heads = [axis, "posts", "users", "unknown", "known", "falls by", "95 % of samples"]
    return Table(heads, rows, f"{title[0].upper()}{title[1:]}")


def _distribution(users: Sequence[UserGain]) -> str:
    gains = np.array([each.gain for each in users])
    helped = int((gains > 0).sum())
    low, middle, high = (number(100 * each, 0) for each in np.quantile(gains, [0.1, 0.5, 0.9]))
    return (
        f"It helps {helped:,} of {many(len(users), 'user')}. For the one in the middle perplexity "
        f"falls by {middle} %, for one in ten by less than {low} %, for another by more than "
        f"{high} %."
    )


def _extremes(users: Sequence[UserGain], corpus: Corpus, mask: bool) -> list[Block]:
    """The users whom it helps most, and those whom it helps least."""
    often = [each for each in users if each.posts >= FEWEST] or list(users)
    heads = ["user", "posts", "unknown", "known", "falls by"]
    ends = {"most": often[:SHOWN], "least": often[::-1][:SHOWN]}
    tables: list[Block] = []
    for how, found in ends.items():
        rows = [
            [
                _name(each.user, corpus, mask),
                f"{each.posts:,}",
                perplexity(each.unknown),
                perplexity(each.known),
                f"{number(100 * each.gain, 0)} %",
            ]
            for each in found
        ]
        title = f"Whom it helps {how}, of those with at least {FEWEST} posts"
        tables.append(Table(heads, rows, title))
    return tables


def _posts(best: Method, corpus: Corpus, mask: bool) -> list[Block]:
    """The held-out posts on which it helps most and least, with the cost of each word."""
    saved, posts = best.test.saved(), best.test.known[0]
    order = np.argsort(-saved, kind="stable")
    order = order[posts.words[order] >= SHORTEST]
    most = _one_a_user(order, posts.user)
    least = [each for each in _one_a_user(order[::-1], posts.user) if each not in most]
    costs = {
        how: _costs(job, corpus, [*most, *least])
        for how, job in (("unknown", best.unknown[0]), ("known", best.known[0]))
    }
    told = "•" if mask else ""
    blocks: list[Block] = [
        Paragraph(
            "Held-out posts, at most one of each user, and what each word cost in the end. Darker "
            f"words cost more, up to {DARKEST / np.log(2):.0f} bits. <EOT> is the end of the post."
            + " Letters are hidden here."
            * mask
        )
    ]
    for title, places in (("helps most", most), ("helps least", least)):
        for place in places:
            user = _name(int(posts.user[place]), corpus, mask)
            bits = saved[place] / np.log(2)
            how = f"{title}: {number(abs(bits))} bits {'less' if bits > 0 else 'more'} for {user}"
            lines = [(f"users {side}", _words(found[place], told)) for side, found in costs.items()]
            blocks.append(Shaded(f"Where it {how}", lines))
    return blocks


def _one_a_user(order: NDArray[np.int64], users: NDArray[np.int64]) -> list[int]:
    """The first places in an order, at most one of each user."""
    found: dict[int, int] = {}
    for place in order:
        found.setdefault(int(users[place]), int(place))
        if len(found) == SHOWN:
            break
    return list(found.values())


def _costs(job: Job, corpus: Corpus, places: Sequence[int]) -> dict[int, list[WordCost]]:
    """What each word of some test posts costs the final state of a run."""
    trained = load(job.folder, corpus, min_users=1)
    posts = corpus.splits["test"]
    with trained.in_use():
        return {
            place: word_costs(trained.payer, posts.batch([place]), corpus.vocabulary)
            for place in places
        }


def _words(costs: Sequence[WordCost], told: str) -> list[Word]:
    """Words on their grounds; with ``told``, that sign stands for each letter."""
    return [
        Word(
            re.sub(r"\w", told, each.text) if told and each.text != "<EOT>" else each.text,
            each.nats / DARKEST,
            f"{max(each.nats, 0) / np.log(2):.1f} bits",
        )
        for each in costs
    ]


def _name(user: int, corpus: Corpus, mask: bool) -> str:
    return f"user {user + 1:,}" if mask else corpus.users[user]


def _price(methods: Sequence[Method]) -> list[Block]:
    """Time and room of each run; the first seed of each."""
    rows, spent, room = [], {}, {}
    for method in methods:
        for how, job in (("unknown", method.unknown[0]), ("known", method.known[0])):
            found = compute(job)
            spent[method.name, how], room[method.name, how] = seconds(found), _bytes(job)
            posts = len(method.online.known[0].nats)
            rows.append(
                [
                    f"{method.name}, users {how}",
                    duration(seconds(found)),
                    f"{1000 * found['seconds to pay'] / posts:.1f} ms",
                    f"{1000 * seconds(found) / posts:.1f} ms",
                    size(_bytes(job)),
                ]
            )
    best, users = methods[-1], methods[-1].online.users
    longer = spent[best.name, "known"] / spent[best.name, "unknown"]
    more = max(room[best.name, "known"] - room[best.name, "unknown"], 0)
    sentence = (
        f"With {best.name}, knowing who writes takes {longer:.2f} times as long and "
        f"{size(more)} more on disk, {size(more // max(users, 1))} a user."
    )
    heads = ["", "the stream", "to predict a post", "… and learn from it", "on disk"]
    return [Paragraph(sentence), Table(heads, rows)]


def _bytes(job: Job) -> int:
    """Of the final model, with what it remembers."""
    files = (job.folder / "model").rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file())


def _how(corpus: Corpus, best: Method) -> str:
    about, seeds = corpus.manifest, len(best.known)
    before = about.posts.get("pretrain", 0)
    shape = best.known[0].settings.model.shape
    begun = f"after pretraining on {many(before, 'post')}" if before else "without pretraining"
    return (
        f"{many(about.posts['train'], 'post')} of the stream and "
        f"{many(about.posts['test'], 'held-out post')} by {many(about.users, 'user')}; a model "
        f"with {many(shape.layers, 'layer')} of {shape.d_model} and {about.vocabulary.size:,} "
        f"pieces, {begun}; {many(seeds, 'seed')}. Users known: the model has a vector for each "
        "user, and the memories keep each user's posts apart as well as everybody's. Users "
        "unknown: the same without vectors, and with everybody's memory only. Weights are averaged "
        "in all runs. Intervals come from samples of users, the same ones on both sides; slices "
        "with fewer than five users are left out."
    )


def _drawn(figure: Drawn, caption: str) -> Figure:
    return Figure(render(figure, "svg").decode(), caption, caption)
