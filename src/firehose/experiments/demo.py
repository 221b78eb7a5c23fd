"""The main job from one end to the other, on a simulated stream."""

from pathlib import Path
from typing import NamedTuple

from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import HERE, Execution, prepare
from firehose.data.stats import describe
from firehose.data.stats_figures import write as write_statistics
from firehose.experiments.compare import compare, write as write_comparison
from firehose.experiments.curves import Comparison
from firehose.experiments.naming import name_of
from firehose.game.run import play
from firehose.game.settings import make_settings
from firehose.progress import announce, say

PAIRS = (
    ("mixed-replay", "congrad"),
    ("mixed-replay", "online-gd"),
    ("online-only", "online-gd"),
    ("replay-only", "online-gd"),
)


class Demonstration(NamedTuple):
    """What the demo made."""

    corpus: Corpus
    comparison: Comparison
    statistics_page: Path
    page: Path


def demo(out: str | Path, execution: Execution = HERE) -> Demonstration:
    """Simulate a population, prepare its corpus, play the game four ways, and compare them."""
    folder = Path(out)
    plan = make_plan(source="nature", vocabulary={"size": 2_000})
    (corpus,) = prepare(plan, folder / "nature", execution, replace=True).corpora
    runs = []
    for learner, optimizer in PAIRS:
        run = folder / "runs" / f"{learner}-{optimizer}"
        say(f"{name_of(learner)} × {name_of(optimizer)}")
        settings = make_settings("demo", play={"learner": learner, "optimizer": optimizer})
        play(corpus, run, settings, replace=True)
        runs.append(run)
    comparison = compare(runs)
    command = f"firehose demo --out {out}"
    with announce("drawing"):
        statistics, *_ = write_statistics(describe(corpus), folder / "stats", command)
        page = write_comparison(comparison, folder / "game", command)
    return Demonstration(corpus, comparison, statistics, page)
