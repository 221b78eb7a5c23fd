"""What came of a game: how well it predicted, what it knows now, what it cost."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.data.corpus import Corpus
from firehose.game.folder import read_result
from firehose.game.log import read_rounds, spent
from firehose.game.metrics import (
    Curve,
    Retention,
    Slices,
    after_silence,
    by_activity,
    cold_start,
    measured,
    online_fit,
    retention,
)
from firehose.game.scoring import read_costs
from firehose.game.totals import Measured
from firehose.report.tables import Table
from firehose.storage.files import write_whole

NUMBERS = ("online", "validation", "test", "test_balanced", "test_per_token")
SLICES = ("cold_start", "after_silence", "by_activity")


@dataclass(frozen=True)
class Outcome:
    """Everything that is reported of a run; perplexities are per word."""

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
    kept: list[int]  # rounds, by the number of steps that were kept
    compute: dict[str, float]  # gradient steps, tokens trained on, seconds by phase

    @classmethod
    def of(cls, folder: Path, corpus: Corpus) -> "Outcome":
        """From what the run wrote down, and what its final model paid."""
        paid, validation, test, past = (
            read_costs(folder, corpus, measure)
            for measure in ("online", "validation", "test", "past")
        )
        rounds = read_rounds(folder)
        generator = np.random.default_rng(0)
        return cls(
            online=measured(paid, generator),
            validation=measured(validation, generator),
            test=measured(test, generator),
            curve=online_fit(paid),
            retention=retention(past, int(paid.time[0]), int(paid.time[-1])),
            cold_start=cold_start(paid, generator),
            after_silence=after_silence(paid, generator),
            by_activity=by_activity(paid, generator),
            test_balanced=test.totals("user").measured(generator, len(test.nats)),
            test_per_token=test.totals("token").measured(generator, len(test.nats)),
            kept=np.bincount([line["kept"] for line in rounds]).tolist(),
            compute=spent(rounds),
        )

    @classmethod
    def read(cls, folder: Path) -> "Outcome":
        """What a run that is over has left."""
        found = read_result(folder)
        for name in NUMBERS:
            found[name] = Measured(**found[name])
        for name in SLICES:
            found[name] = {key: Measured(**part) for key, part in found[name].items()}
        found["curve"] = Curve(**{k: np.array(v) for k, v in found["curve"].items()})
        found["retention"] = Retention(**{k: np.array(v) for k, v in found["retention"].items()})
        return cls(**found)

    def public(self) -> dict[str, Any]:
        """As plain values."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def tables(self) -> list[Table]:
        """The result for people."""
        steps = [[str(kept), f"{count:,}"] for kept, count in enumerate(self.kept)]
        spent = [[name, f"{value:,.0f}"] for name, value in self.compute.items()]
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
            Table(["steps kept", "rounds"], steps, "Steps"),
            Table(["", "in all"], spent, "Compute"),
        ]

    def write(self, folder: Path) -> None:
        """``rounds.parquet``, then ``result.json``, which says that all is there."""
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


def averaged(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome for several seeds: perplexities averaged as losses, rounds added up."""
    first = outcomes[0]
    kept = np.zeros(max(len(outcome.kept) for outcome in outcomes), int)
    for outcome in outcomes:
        kept[: len(outcome.kept)] += outcome.kept
    means: dict[str, Any] = {
        name: _mean_measured([getattr(outcome, name) for outcome in outcomes]) for name in NUMBERS
    }
    for name in SLICES:
        parts: list[Slices] = [getattr(outcome, name) for outcome in outcomes]
        means[name] = {key: _mean_measured([part[key] for part in parts]) for key in parts[0]}
    curves = [outcome.curve for outcome in outcomes]
    pasts = [outcome.retention for outcome in outcomes]
    return replace(
        first,
        **means,
        curve=Curve(
            first.curve.posts,
            _mean([curve.running for curve in curves]),
            _mean([curve.windowed for curve in curves]),
        ),
        retention=Retention(
            first.retention.days,
            _mean([past.bucket for past in pasts]),
            _mean([past.back_to for past in pasts]),
        ),
        kept=kept.tolist(),
        compute={
            name: float(np.mean([outcome.compute[name] for outcome in outcomes]))
            for name in first.compute
        },
    )


def _mean(perplexities: Sequence[Any]) -> NDArray[np.float64]:
    return np.asarray(np.exp(np.mean(np.log(perplexities), 0)))


def _mean_measured(parts: Sequence[Measured]) -> Measured:
    value, low, high = _mean([part[:3] for part in parts]).tolist()
    return Measured(value, low, high, parts[0].posts)


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
