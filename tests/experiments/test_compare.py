"""Runs beside each other."""

import re
from pathlib import Path

import numpy as np
import pytest

from conftest import prepared, simple_posts
from firehose.data.corpus import Corpus, Floor
from firehose.errors import FirehoseError
from firehose.experiments.compare import compare, write
from firehose.game.outcome import Outcome
from firehose.game.run import play
from firehose.game.settings import make_settings
from small_models import TINY_GAME


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, small_corpus: Corpus) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = []
    for learner, optimizer in [("a-gem", "online-gd"), ("mixed-replay", "congrad")]:
        choice = {"learner": learner, "optimizer": optimizer}
        made.append(folder / learner)
        play(small_corpus, made[-1], make_settings(assignments=TINY_GAME, play=choice))
    return made


def test_what_is_read_is_what_was_written(runs: list[Path]) -> None:
    found = compare(runs)
    assert [run.name for run in found.runs] == ["A-GEM × Online GD", "mixed replay × ConGraD"]
    first = Outcome.read(runs[0])
    assert found.runs[0].outcome.public() == first.public()
    shown = dict(zip(found.table().columns, found.table().rows[0], strict=True))
    assert shown[""] == "A-GEM × Online GD"
    for head, number in (
        ("online", first.online),
        ("test", first.test),
        ("users alike", first.test_balanced),
        ("per token", first.test_per_token),
    ):
        assert shown[head] == f"{number.value:.1f}"


def test_the_page_shows_every_run_and_the_floor(runs: list[Path], tmp_path: Path) -> None:
    found = compare(runs)
    floor = Floor(personalized=12.3, agnostic=45.6)
    found = found._replace(floors={"train": floor, "test": floor})
    page = write(found, tmp_path / "page", "firehose compare")
    text = page.read_text()
    assert text.count("<svg") == 5
    for run in found.runs:
        assert run.name in text
    assert "12.3" in text and "45.6" in text
    assert {path.suffix for path in page.parent.iterdir()} == {".html", ".png", ".svg"}
    assert not re.search(r"(src|href)=\"(?!#)", text)  # nothing from elsewhere


def test_runs_that_differ_in_nothing_but_settings_are_told_apart(
    runs: list[Path], small_corpus: Corpus, tmp_path: Path
) -> None:
    settings = make_settings(assignments=[*TINY_GAME, "play.steps=1"])
    play(small_corpus, tmp_path / "one-step", settings)
    found = compare([runs[1], tmp_path / "one-step"])
    assert [run.name for run in found.runs] == ["mixed-replay", "one-step"]
    write(found, tmp_path / "page", "firehose compare")


def test_what_cannot_be_compared_is_refused(runs: list[Path], tmp_path: Path) -> None:
    other = prepared(tmp_path, simple_posts(users=4))
    play(other, tmp_path / "other", make_settings(assignments=TINY_GAME))
    with pytest.raises(FirehoseError, match="was played on another corpus"):
        compare([runs[0], tmp_path / "other"])
    (tmp_path / "other" / "result.json").unlink()
    with pytest.raises(FirehoseError, match="is not over; go on with `firehose resume"):
        compare([tmp_path / "other"])
    with pytest.raises(FirehoseError, match="does not exist; begin one"):
        compare([tmp_path / "none"])
    assert np.isfinite(Outcome.read(runs[0]).online.value)
