"""The results of runs: how well they predicted, what the final model knows, what they cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from pydantic import Field

from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.game import metrics
from firehose.game.log import summary
from firehose.game.result import read_result, write_result
from firehose.game.scoring import cost_file, read_costs
from firehose.game.totals import ACCURACY, Measured, Totals
from firehose.report.tables import Table
from firehose.report.words import number, perplexity
from firehose.storage.seals import Record

Part = TypeVar("Part", Measured, metrics.Curve, metrics.Retention)


class Result(Record):
    """What is reported of every run: the content of ``result.json``."""

    compute: dict[str, float]  # gradient steps, tokens trained on, seconds

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the result of a run that is over."""
        return cls.model_validate(read_result(folder))

    def public(self) -> dict[str, Any]:
        """As plain values."""
        return self.model_dump(mode="json")

    def write(self, folder: Path) -> None:
        """Write ``result.json``, the last file of a run."""
        write_result(folder, self.public())


@dataclass(frozen=True)
class Epoch:
    """The result of one pass over the posts of a training."""

    number: int
    loss: float  # mean training loss, nats a token
    validation: float  # word perplexity
    tokens: int
    seconds: float

    def sentence(self) -> str:
        """The epoch in one line."""
        return (
            f"epoch {self.number}: {self.loss:.3f} nats a token in training, word perplexity "
            f"{perplexity(self.validation)} on validation posts; "
            f"{self.tokens / max(self.seconds, 1e-9):,.0f} tokens/s, {self.seconds:.0f} s"
        )


class TrainingOutcome(Result):
    """What is reported of a training."""

    history: list[Epoch]

    def best(self) -> Epoch:
        """The epoch whose weights were kept."""
        return min(self.history, key=lambda epoch: epoch.validation)

    def tables(self) -> list[Table]:
        """The tables that show the result."""
        rows = []
        for epoch in self.history:
            kept = "kept" if epoch == self.best() else ""
            rows.append(
                [str(epoch.number), f"{epoch.loss:.3f}", perplexity(epoch.validation), kept]
            )
        return [Table(["epoch", "nats a token, training", "word perplexity, validation", ""], rows)]


class GameResult(Result):
    """What is reported of every game."""

    kept: list[int]  # rounds, by the number of steps that were kept

    def spent(self) -> list[Table]:
        """Tables of the steps kept and of what was computed."""
        steps = [[str(kept), f"{count:,}"] for kept, count in enumerate(self.kept)]
        spent = [[name, f"{value:,.0f}"] for name, value in self.compute.items()]
        return [
            Table(["steps kept", "rounds"], steps, "Steps"),
            Table(["", "in all"], spent, "Compute"),
        ]


class Outcome(GameResult):
    """Everything that is reported of a game with posts; perplexities are per word."""

    online: Measured  # over the whole stream
    validation: Measured  # of the final model, on held-out posts that settings are chosen by
    test: Measured  # of the final model, on other held-out posts
    test_balanced: Measured  # the same, with every user counted alike
    test_per_token: Measured
    curve: metrics.Curve
    retention: metrics.Retention
    retention_left_out: metrics.Retention | None = None  # of memories, without the posts asked for
    cold_start: metrics.Slices
    by_history: metrics.Slices = Field(default={})  # older results do not have it
    after_silence: metrics.Slices
    by_activity: metrics.Slices

    @classmethod
    def of(cls, folder: Path, corpus: Corpus) -> Self:
        """Compute it from the log of a run, and from what its final model paid.

        These files were written, or checked, just now: there is no result yet that seals them.
        """
        paid, validation, test, past = (
            read_costs(folder, corpus, measure, is_sealed=False)
            for measure in ("online", "validation", "test", "past")
        )
        ends = int(paid.time[0]), int(paid.time[-1])
        left_out = None
        if (folder / cost_file("past-left-out")).is_file():
            left_out = read_costs(folder, corpus, "past-left-out", is_sealed=False)
        generator = np.random.default_rng(0)
        return cls(
            online=paid.measured(generator),
            validation=validation.measured(generator),
            test=test.measured(generator),
            curve=metrics.online_fit(paid),
            retention=metrics.retention(past, *ends),
            retention_left_out=metrics.retention(left_out, *ends) if left_out else None,
            cold_start=metrics.cold_start(paid, generator),
            by_history=metrics.by_history(paid, generator),
            after_silence=metrics.after_silence(paid, generator),
            by_activity=metrics.by_activity(paid, generator),
            test_balanced=test.measured(generator, "user"),
            test_per_token=test.measured(generator, "token"),
            **summary(folder),
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the result of a game with posts that is over."""
        found = read_outcome(folder)
        if not isinstance(found, cls):
            raise FirehoseError(f"{folder} has tasks and accuracies, not posts and perplexities.")
        return found

    def public(self) -> dict[str, Any]:
        """As plain values; what it does not have is not there."""
        found = super().public()
        return {name: value for name, value in found.items() if value is not None}

    def tables(self) -> list[Table]:
        """The tables that show the result."""
        heads = ["", "perplexity", "95 % of samples of users"]
        main = {
            "stream": self.online,
            "validation": self.validation,
            "test": self.test,
            "test, every user counted alike": self.test_balanced,
            "test, per token": self.test_per_token,
        }
        return [
            Table(heads, _rows(main), "Perplexity, per word unless said otherwise"),
            Table(heads, _rows(self.by_history), "By a user's number of earlier posts"),
            Table(heads, _rows(self.after_silence), "By the time since a user's last post"),
            *self.spent(),
        ]

    @classmethod
    def mean(cls, outcomes: Sequence[Self]) -> Self:
        """One outcome for several seeds: perplexities averaged as losses, rounds added up."""
        means: dict[str, Any] = _together(outcomes)
        for name in cls.model_fields.keys() - means.keys():
            parts = [getattr(outcome, name) for outcome in outcomes]
            if any(part is None for part in parts):
                means[name] = None
            elif isinstance(parts[0], dict):
                means[name] = {key: _mean([part[key] for part in parts]) for key in parts[0]}
            else:
                means[name] = _mean(parts)
        return cls(**means)


class TaskOutcome(GameResult):
    """Everything that is reported of a game in which tasks come one after another."""

    benchmark: str  # its title
    seen: metrics.Array[np.int64]  # [points], pictures of the stream
    accuracy: metrics.Array[np.float64]  # [points, tasks], the share that is named rightly
    ends: metrics.Array[np.int64]  # [tasks], the point at which each task was over

    def totals(self, measure: str) -> Totals | None:
        """Accuracy in the end, forgetting or forward transfer by task; None: another measure.

        Every task counts alike, as in the published numbers.
        """
        match measure:
            case "accuracy":
                tasks, values = slice(None), self.accuracy[-1]
            case "forgetting":
                tasks, values = slice(-1), metrics.forgetting(self.accuracy, self.ends)
            case "forward":
                tasks, values = slice(1, None), metrics.forward_transfer(self.accuracy, self.ends)
            case _:
                return None
        amount, count = np.zeros((2, 1, len(self.ends)))
        amount[0, tasks], count[0, tasks] = values, 1
        return Totals(amount, count, ACCURACY) if len(values) else None

    def tables(self) -> list[Table]:
        """The tables that show the result."""
        names = {"accuracy": "accuracy", "forgetting": "forgetting", "forward": "forward transfer"}
        found = {name: self.totals(measure) for measure, name in names.items()}
        rows = [[name, number(each.value())] for name, each in found.items() if each]
        last = enumerate(self.accuracy[-1], 1)
        tasks = [[f"task {task}", number(100 * share)] for task, share in last]
        return [
            Table(["", "percent or points"], rows, self.benchmark),
            Table(["", "accuracy, %"], tasks, "Accuracy on each task in the end"),
            *self.spent(),
        ]

    @classmethod
    def mean(cls, outcomes: Sequence[Self]) -> Self:
        """One outcome for several seeds: accuracies averaged, rounds added up."""
        accuracy = np.mean([outcome.accuracy for outcome in outcomes], 0)
        return outcomes[0].model_copy(update={"accuracy": accuracy, **_together(outcomes)})


def read_outcome(folder: Path) -> Outcome | TaskOutcome:
    """Read the result of a game that is over, with posts or with tasks."""
    found = read_result(folder)
    return (TaskOutcome if "accuracy" in found else Outcome).model_validate(found)


def _together(outcomes: Sequence[GameResult]) -> dict[str, Any]:
    """Rounds by steps kept added up over seeds, and the average of what was computed."""
    kept = zip_longest(*(outcome.kept for outcome in outcomes), fillvalue=0)
    spent = {name: [each.compute[name] for each in outcomes] for name in outcomes[0].compute}
    compute = {name: float(np.mean(values)) for name, values in spent.items()}
    return {"kept": [sum(rounds) for rounds in kept], "compute": compute}


def _mean(parts: Sequence[Part]) -> Part:
    """One part of an outcome for several seeds: perplexities averaged as losses.

    What is no perplexity is the same for all seeds.
    """
    same = ("posts", "days")
    names = [name for name in vars(parts[0]) if name not in same]
    logs = {name: np.log([getattr(part, name) for part in parts]) for name in names}
    return replace(parts[0], **{name: np.exp(np.mean(log, 0)) for name, log in logs.items()})


def _rows(slices: metrics.Slices) -> list[list[str]]:
    return [
        [name, perplexity(s.value), f"{perplexity(s.low)} – {perplexity(s.high)}"]
        for name, s in slices.items()
    ]
