"""What a run came to, as rows for other tools."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from firehose.game.folder import RunCard
from firehose.game.outcome import Outcome, Result, TaskOutcome, TrainingOutcome
from firehose.game.totals import Measured
from firehose.report.results import Row, write_results

MEASURES = {  # of a game with posts, by the names that recipes have for them
    "online": "online", "validation": "validation", "test": "test",
    "balanced": "test_balanced", "per-token": "test_per_token",
}  # fmt: skip
PARTS = {
    "earlier posts": "by_history",
    "since the last post": "after_silence",
    "activity": "by_activity",
}


def rows_of(
    result: Result,
    run: str,
    seed: int | None,
    varies: Mapping[str, str] = {},
) -> list[Row]:
    """A row for each number of a result; ``seed`` is None where it is of several."""

    def row(measure: str, found: Measured | float, part: str = "") -> Row:
        if not isinstance(found, Measured):
            return Row(run, measure, found, part=part, seed=seed, varies=varies)
        return Row(run, measure, found.value, found.low, found.high, part, seed, varies)

    def numbers() -> Iterator[Row]:
        if isinstance(result, Outcome):
            for measure, name in MEASURES.items():
                yield row(measure, getattr(result, name))
            for part, name in PARTS.items():
                for each, found in getattr(result, name).items():
                    yield row("online", found, f"{part}: {each}")
        elif isinstance(result, TaskOutcome):
            for measure in ("accuracy", "forgetting", "forward"):
                if totals := result.totals(measure):
                    yield row(measure, totals.value())
        elif isinstance(result, TrainingOutcome):
            yield row("validation", result.best().validation)
        for name in ("gradient steps", "tokens trained on"):
            if name in result.compute:
                yield row(name, result.compute[name])

    return list(numbers())


def write_run_results(folder: Path, card: RunCard, result: Any) -> None:
    """Write ``results.csv`` and ``results.parquet`` into the folder of a run."""
    seed = int(card.settings[card.kind]["seed"])
    write_results(folder, rows_of(result, folder.resolve().name, seed))
