"""The main job from one end to the other, on a simulated stream."""

from pathlib import Path

from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import HERE, Execution, prepare
from firehose.data.stats import Statistics, describe
from firehose.data.stats_figures import write
from firehose.progress import announce


def demo(out: str | Path, execution: Execution = HERE) -> tuple[Corpus, Statistics, Path]:
    """Simulate a population, prepare its corpus, describe it, and draw the page about it."""
    folder = Path(out)
    plan = make_plan(source="nature", vocabulary={"size": 2_000})
    (corpus,) = prepare(plan, folder / "nature", execution, replace=True).corpora
    statistics = describe(corpus)
    with announce("drawing"):
        page, *_ = write(statistics, folder / "stats", f"firehose demo --out {out}")
    return corpus, statistics, page
