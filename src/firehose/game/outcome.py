"""What came of a game: how well it predicted, what it knows now, what it cost."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game.account import account
from firehose.game.log import read_rounds
from firehose.game.metrics import (
    Curve,
    Retention,
    Slice,
    after_silence,
    by_activity,
    cold_start,
    interval,
    online_fit,
    retention,
)
from firehose.game.scoring import Costs
from firehose.report.tables import Table
from firehose.storage.files import write_whole


@dataclass(frozen=True)
class Outcome:
    """Everything that is reported of a run."""

    online: Slice  # over the whole stream
    validation: Slice  # of the final model, on held-out posts that settings are chosen by
    test: Slice  # of the final model, on other held-out posts
    test_balanced: float  # every user counted alike
    test_per_token: float
    curve: Curve
    retention: Retention
    cold_start: list[Slice]
    after_silence: list[Slice]
    by_activity: list[Slice]
    kept: list[int]  # rounds, by the number of steps that were kept
    compute: dict[str, float]  # gradient steps, tokens trained on, seconds by phase

    @classmethod
    def of(cls, folder: Path, corpus: Corpus) -> "Outcome":
        """From what the run wrote down, and what its final model paid."""
        paid, validation, test, past = (
            account(folder, corpus, measure) for measure in ("online", "validation", "test", "past")
        )
        rounds = read_rounds(folder)
        generator = np.random.default_rng(0)
        return cls(
            online=_all("stream", paid, generator),
            validation=_all("validation", validation, generator),
            test=_all("test", test, generator),
            test_balanced=test.balanced(),
            test_per_token=test.per_token(),
            curve=online_fit(paid),
            retention=retention(past, int(paid.time[0]), int(paid.time[-1])),
            cold_start=cold_start(paid, generator),
            after_silence=after_silence(paid, generator),
            by_activity=by_activity(paid, generator),
            kept=np.bincount([line["kept"] for line in rounds]).tolist(),
            compute=_compute(rounds),
        )

    @classmethod
    def read(cls, folder: Path) -> "Outcome":
        """What a run that is over has left."""
        file = folder / "result.json"
        if not file.is_file():
            raise FirehoseError(f"{folder} is not over; go on with `firehose resume {folder}`.")
        found = json.loads(file.read_text(encoding="utf-8"))
        for name in ("online", "validation", "test"):
            found[name] = Slice(**found[name])
        for name in ("cold_start", "after_silence", "by_activity"):
            found[name] = [Slice(**part) for part in found[name]]
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
        return [
            Table(heads, _rows([self.online, self.validation, self.test]), "Word perplexity"),
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


def _all(name: str, paid: Costs, generator: np.random.Generator) -> Slice:
    return Slice(name, len(paid.nats), paid.per_word(), *interval(paid, generator))


def _compute(rounds: list[dict[str, Any]]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for line in rounds:
        for phase, value in line["seconds"].items():
            seconds[f"seconds to {phase}"] = seconds.get(f"seconds to {phase}", 0.0) + value
    taken, tokens = (sum(line[name] for line in rounds) for name in ("taken", "tokens"))
    return {"rounds": len(rounds), "gradient steps": taken, "tokens trained on": tokens} | seconds


def _rows(slices: list[Slice]) -> list[list[str]]:
    return [[s.name, f"{s.perplexity:.1f}", f"{s.low:.1f} – {s.high:.1f}"] for s in slices]


def _plain(value: Any) -> Any:
    """Numbers, texts, lists and tables only."""
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list) else value
