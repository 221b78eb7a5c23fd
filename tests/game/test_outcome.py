"""What came of games: averaged over seeds, every number of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firehose.errors import FirehoseError
from firehose.game.log import summary
from firehose.game.outcome import Outcome, TaskOutcome, read_outcome
from small_experiments import outcome, task_outcome


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    else:
        yield value


def test_an_average_over_seeds_has_nothing_of_one_seed_alone() -> None:
    mean = Outcome.mean([outcome(20), outcome(80)]).public()
    assert mean.pop("kept") == [2, 4]
    assert list(numbers(mean)) == pytest.approx(
        list(numbers({k: v for k, v in outcome(40).public().items() if k != "kept"}))
    )


def test_a_game_with_tasks_is_read_as_it_was_written(tmp_path: Path) -> None:
    line = {"kept": 2, "taken": 3, "tokens": 5, "seconds": {"pay": 0.5}}
    (tmp_path / "rounds.jsonl").write_text(f"{json.dumps(line)}\n" * 2)
    by_hand = task_outcome()
    measured = {name: getattr(by_hand, name) for name in ("benchmark", "seen", "accuracy", "ends")}
    came = TaskOutcome(**measured, **summary(tmp_path))
    assert came.kept == [0, 0, 2]
    assert came.compute["gradient steps"] == 6 and came.compute["seconds to pay"] == 1
    with pytest.raises(FirehoseError, match="is not over"):
        read_outcome(tmp_path)
    came.write(tmp_path)
    again = read_outcome(tmp_path)
    assert isinstance(again, TaskOutcome) and again.public() == came.public()
    with pytest.raises(FirehoseError, match="has tasks and accuracies"):
        Outcome.read(tmp_path)
    shown = {row[0]: row[1] for made in again.tables()[:2] for row in made.rows}
    assert shown["accuracy"] == "60.0" and shown["forgetting"] == "25.0"
    assert shown["forward transfer"] == "15.0" and shown["task 2"] == "70.0"


def test_seeds_of_a_game_with_tasks_are_averaged() -> None:
    one = task_outcome()
    two = one.model_copy(update={"accuracy": one.accuracy + 0.1, "kept": [1, 1, 1]})
    mean = TaskOutcome.mean([one, two])
    assert mean.accuracy == pytest.approx(one.accuracy + 0.05)
    assert mean.kept == [1, 4, 1]
