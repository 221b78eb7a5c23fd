"""The main job from one end to the other, on a simulated stream."""

from pathlib import Path
from typing import NamedTuple

from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import HERE, Execution, prepare
from firehose.data.stats import describe
from firehose.data.stats_figures import write as write_statistics
from firehose.experiments.compare import compare, write as write_comparison
from firehose.experiments.curves import Comparison, Difference
from firehose.experiments.naming import name_of
from firehose.game.run import play, pretrain
from firehose.game.settings import make_settings
from firehose.progress import announce, say
from firehose.report.words import interval, perplexity

# A population that says much the same for years, and comes back: what is forgotten is missed. The
# rate is high enough for steps on the newest posts alone to harm what was learned before.
POPULATION = {"users": 120, "posts": 9_000, "vocabulary": 800, "drift": 0.1, "personal": 0.6}
BEFORE = "2014-06-01"  # earlier posts are for pretraining
SETTINGS = ("pretrain.epochs=6", "play.rule.rate=0.004", "play.steps=4")
PAIRS = (
    ("mixed-replay", "congrad"),
    ("mixed-replay", "online-gd"),
    ("online-only", "congrad"),
    ("online-only", "online-gd"),
)


class Demonstration(NamedTuple):
    """What the demo made."""

    corpus: Corpus
    comparison: Comparison
    statistics_page: Path
    page: Path
    sentence: str  # what was seen


def demo(out: str | Path, execution: Execution = HERE) -> Demonstration:
    """Simulate a population, prepare its corpus, pretrain, play four ways, and compare them."""
    folder = Path(out)
    source = {"kind": "nature", **POPULATION}
    plan = make_plan(source=source, vocabulary={"size": 800}, split={"pretrain_before": BEFORE})
    (corpus,) = prepare(plan, folder / "nature", execution, replace=True).corpora
    pretrain(corpus, folder / "pretrained", make_settings("demo", SETTINGS), replace=True)
    runs = []
    for learner, optimizer in PAIRS:
        run = folder / "runs" / f"{learner}-{optimizer}"
        say(f"{name_of(learner)} × {name_of(optimizer)}")
        parts = {"learner": learner, "optimizer": optimizer}
        settings = make_settings("demo", SETTINGS, play=parts)
        play(corpus, run, settings, folder / "pretrained", replace=True)
        runs.append(run)
    comparison = compare(runs, baseline=runs[-1])
    sentence = what_was_seen(comparison)
    command = f"firehose demo --out {out}"
    with announce("drawing"):
        statistics, *_ = write_statistics(describe(corpus), folder / "stats", command)
        page = write_comparison(comparison, folder / "game", command, sentence)
    return Demonstration(corpus, comparison, statistics, page, sentence)


def what_was_seen(found: Comparison) -> str:
    """What replay and ConGraD were worth on held-out posts, in one sentence."""
    held_out = [each for each in found.differences if each.measure == "test"]
    both, replay, congrad = (_told(each) for each in held_out)
    best, plain = found.runs[0].outcome.test.value, found.runs[-1].outcome.test.value
    floor = found.floors["test"].personalized
    return (
        "Against descent on the newest posts alone, the perplexity of held-out posts is "
        f"{replay} with replay, {congrad} with ConGraD, and {both} with both: "
        f"{perplexity(best)} instead of {perplexity(plain)}, where {perplexity(floor)} is the "
        "best possible."
    )


def _told(each: Difference) -> str:
    """A difference in words, with its interval; or that there is none to tell."""
    ends = (each.change.value, each.change.low, each.change.high)
    if each.verdict == "undecided":
        return "no different"
    low, high = sorted(abs(100 * end) for end in ends[1:])
    value, low_told, high_told = interval(abs(100 * ends[0]), low, high)
    how = "lower" if each.verdict == "better" else "higher"
    return f"{value} % {how} ({low_told} to {high_told} %)"
