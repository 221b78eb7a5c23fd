"""What came of a game: how well it predicted, what it knows now, what it cost."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game.folder import read_result
from firehose.game.log import read_rounds, spent
from firehose.game.metrics import (
    Curve,
    Retention,
    Slices,
    after_silence,
    by_activity,
    cold_start,
    forgetting,
    forward_transfer,
    online_fit,
    retention,
)
from firehose.game.scoring import read_costs
from firehose.game.totals import ACCURACY, Measured, Totals
from firehose.report.tables import Table
from firehose.report.words import number
from firehose.storage.files import write_whole

NUMBERS = ("online", "validation", "test", "test_balanced", "test_per_token")
SLICES = ("cold_start", "after_silence", "by_activity")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is reported of every game."""

    kept: list[int]  # rounds, by the number of steps that were kept
    compute: dict[str, float]  # gradient steps, tokens trained on, seconds by phase

    @classmethod
    def restore(cls, found: dict[str, Any]) -> Self:
        """From what ``public`` returned."""
        return cls(**found)

    def public(self) -> dict[str, Any]:
        """As plain values."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def write(self, folder: Path) -> None:
        """Write ``rounds.parquet``, then ``result.json``, which says that all is there."""
        flat = [
            {key: value for key, value in line.items() if key != "seconds"}
            | {f"seconds_{phase}": value for phase, value in line["seconds"].items()}
            for line in read_rounds(folder)
        ]
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(flat), buffer)
        write_whole(folder / "rounds.parquet", buffer.getvalue().to_pybytes())
        text = json.dumps(self.public(), indent=1) + "\n"
        write_whole(folder / "result.json", text.encode())

    def spent(self) -> list[Table]:
        """Steps kept and compute, for people."""
        steps = [[str(kept), f"{count:,}"] for kept, count in enumerate(self.kept)]
        spent = [[name, f"{value:,.0f}"] for name, value in self.compute.items()]
        return [
            Table(["steps kept", "rounds"], steps, "Steps"),
            Table(["", "in all"], spent, "Compute"),
        ]


@dataclass(frozen=True, kw_only=True)
class Outcome(Result):
    """Everything that is reported of a game with posts; perplexities are per word."""

    online: Measured  # over the whole stream
    validation: Measured  # of the final model, on held-out posts that settings are chosen by
    test: Measured  # of the final model, on other held-out posts
    test_balanced: Measured  # the same, with every user counted alike
    test_per_token: Measured
    curve: Curve
    retention: Retention
    cold_start: Slices
    after_silence: Slices
    by_activity: Slices

    @classmethod
    def of(cls, folder: Path, corpus: Corpus) -> Self:
        """From what the run wrote down, and what its final model paid."""
        paid, validation, test, past = (
            read_costs(folder, corpus, measure)
            for measure in ("online", "validation", "test", "past")
        )
        generator = np.random.default_rng(0)
        return cls(
            online=paid.measured(generator),
            validation=validation.measured(generator),
            test=test.measured(generator),
            curve=online_fit(paid),
            retention=retention(past, int(paid.time[0]), int(paid.time[-1])),
            cold_start=cold_start(paid, generator),
            after_silence=after_silence(paid, generator),
            by_activity=by_activity(paid, generator),
            test_balanced=test.measured(generator, "user"),
            test_per_token=test.measured(generator, "token"),
            **_rounds(folder),
        )

    @classmethod
    def restore(cls, found: dict[str, Any]) -> Self:
        """From what ``public`` returned."""
        for name in NUMBERS:
            found[name] = Measured(**found[name])
        for name in SLICES:
            found[name] = {key: Measured(**part) for key, part in found[name].items()}
        found["curve"] = Curve(**{k: np.array(v) for k, v in found["curve"].items()})
        found["retention"] = Retention(**{k: np.array(v) for k, v in found["retention"].items()})
        return super().restore(found)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What a run with posts that is over has left."""
        found = read_outcome(folder)
        if not isinstance(found, cls):
            raise FirehoseError(f"{folder} has tasks and accuracies, not posts and perplexities.")
        return found

    def tables(self) -> list[Table]:
        """The result for people."""
        heads = ["", "perplexity", "95 % of samples of users"]
        main = {
            "stream": self.online,
            "validation": self.validation,
            "test": self.test,
            "test, every user counted alike": self.test_balanced,
            "test, per token": self.test_per_token,
        }
        return [
            Table(heads, _rows(main), "Perplexity, per word if not said otherwise"),
            Table(heads, _rows(self.cold_start), "By a user's number of earlier posts"),
            Table(heads, _rows(self.after_silence), "By the time since a user's last post"),
            *self.spent(),
        ]

    @classmethod
    def mean(cls, outcomes: Sequence[Self]) -> Self:
        """One outcome for several seeds: perplexities averaged as losses, rounds added up."""
        first = outcomes[0]
        means: dict[str, Any] = {
            name: _mean_measured([getattr(outcome, name) for outcome in outcomes])
            for name in NUMBERS
        }
        for name in SLICES:
            parts: list[Slices] = [getattr(outcome, name) for outcome in outcomes]
            means[name] = {key: _mean_measured([part[key] for part in parts]) for key in parts[0]}
        curves = [outcome.curve for outcome in outcomes]
        pasts = [outcome.retention for outcome in outcomes]
        return cls(
            **means,
            curve=first.curve._replace(
                running=_mean([curve.running for curve in curves]),
                windowed=_mean([curve.windowed for curve in curves]),
            ),
            retention=first.retention._replace(
                bucket=_mean([past.bucket for past in pasts]),
                back_to=_mean([past.back_to for past in pasts]),
            ),
            **_together(outcomes),
        )


@dataclass(frozen=True, kw_only=True)
class TaskOutcome(Result):
    """Everything that is reported of a game in which tasks come one after another."""

    benchmark: str  # its title
    seen: NDArray[np.int64]  # [points], pictures of the stream
    accuracy: NDArray[np.float64]  # [points, tasks], the share that is named rightly
    ends: NDArray[np.int64]  # [tasks], the point at which each task was over

    @classmethod
    def of(cls, folder: Path, **measured: Any) -> Self:
        """From what the run wrote down, and what was measured on the way: the other fields."""
        return cls(**measured, **_rounds(folder))

    @classmethod
    def restore(cls, found: dict[str, Any]) -> Self:
        """From what ``public`` returned."""
        arrays = {name: np.array(found[name]) for name in ("seen", "accuracy", "ends")}
        return super().restore(found | arrays)

    def totals(self, measure: str) -> Totals | None:
        """Accuracy in the end, forgetting or forward transfer by task; None: another measure.

        Every task counts alike, as in the published numbers.
        """
        match measure:
            case "accuracy":
                tasks, values = slice(None), self.accuracy[-1]
            case "forgetting":
                tasks, values = slice(-1), forgetting(self.accuracy, self.ends)
            case "forward":
                tasks, values = slice(1, None), forward_transfer(self.accuracy, self.ends)
            case _:
                return None
        amount, count = np.zeros((2, 1, len(self.ends)))
        amount[0, tasks], count[0, tasks] = values, 1
        return Totals(amount, count, ACCURACY) if len(values) else None

    def tables(self) -> list[Table]:
        """The result for people."""
        names = {"accuracy": "accuracy", "forgetting": "forgetting", "forward": "forward transfer"}
        found = {name: self.totals(measure) for measure, name in names.items()}
        rows = [[name, number(each.value())] for name, each in found.items() if each]
        tasks = [
            [f"task {task + 1}", f"{100 * share:.1f}"]
            for task, share in enumerate(self.accuracy[-1])
        ]
        return [
            Table(["", "percent or points"], rows, self.benchmark),
            Table(["", "accuracy, %"], tasks, "Accuracy on each task in the end"),
            *self.spent(),
        ]

    @classmethod
    def mean(cls, outcomes: Sequence[Self]) -> Self:
        """One outcome for several seeds: accuracies averaged, rounds added up."""
        accuracy = np.mean([outcome.accuracy for outcome in outcomes], 0)
        return replace(outcomes[0], accuracy=accuracy, **_together(outcomes))


def read_outcome(folder: Path) -> Outcome | TaskOutcome:
    """What a run that is over has left, with posts or with tasks."""
    found = read_result(folder)
    return (TaskOutcome if "accuracy" in found else Outcome).restore(found)


def _together(outcomes: Sequence[Result]) -> dict[str, Any]:
    """Rounds by steps kept added up over seeds, and the average of what it cost."""
    kept = np.zeros(max(len(outcome.kept) for outcome in outcomes), int)
    for outcome in outcomes:
        kept[: len(outcome.kept)] += outcome.kept
    compute = {
        name: float(np.mean([outcome.compute[name] for outcome in outcomes]))
        for name in outcomes[0].compute
    }
    return {"kept": kept.tolist(), "compute": compute}


def _mean(perplexities: Sequence[Any]) -> NDArray[np.float64]:
    return np.asarray(np.exp(np.mean(np.log(perplexities), 0)))


def _mean_measured(parts: Sequence[Measured]) -> Measured:
    value, low, high = _mean([part[:3] for part in parts]).tolist()
    return Measured(value, low, high, parts[0].posts)


def _rounds(folder: Path) -> dict[str, Any]:
    """Steps kept and compute, from the log of the rounds."""
    rounds = read_rounds(folder)
    kept = np.bincount([line["kept"] for line in rounds]).tolist()
    return {"kept": kept, "compute": spent(rounds)}


def _rows(slices: Slices) -> list[list[str]]:
    return [[name, f"{s.value:.1f}", f"{s.low:.1f} – {s.high:.1f}"] for name, s in slices.items()]


def _plain(value: Any) -> Any:
    """Numbers, texts, lists and tables only."""
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list) else value
