"""The main job from one end to the other, on a simulated stream."""

from pathlib import Path

from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import HERE, Execution, prepare
from firehose.data.stats import stats
from firehose.progress import announce


def demo(out: str | Path, execution: Execution = HERE) -> tuple[Corpus, Path]:
    """Simulate a population, prepare its corpus, describe it: the corpus and its page."""
    folder = Path(out)
    plan = make_plan(source="nature", vocabulary={"size": 2_000})
    (corpus,) = prepare(plan, folder / "nature", execution, replace=True).corpora
    with announce("drawing"):
        page, *_ = stats(corpus, folder / "stats", command=f"firehose demo --out {out}")
    return corpus, page
