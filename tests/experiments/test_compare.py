"""Runs beside each other."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from conftest import prepared, simple_posts
from firehose.data.corpus import Corpus, Floor
from firehose.errors import FirehoseError
from firehose.experiments.compare import compare, write
from firehose.experiments.curves import FIGURES
from firehose.game.outcome import Outcome
from firehose.game.run import play
from firehose.game.scoring import read_costs
from firehose.game.settings import make_settings
from firehose.report.words import perplexity
from small_commands import Commands
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
        assert shown[head] == perplexity(number.value)


def test_the_page_shows_every_run_and_the_floor(runs: list[Path], tmp_path: Path) -> None:
    found = compare(runs)
    floor = Floor(personalized=12.3, agnostic=45.6)
    found = found._replace(floors={"train": floor, "test": floor})
    page = write(found, tmp_path / "page", "firehose compare")
    text = page.read_text()
    spent = {run.outcome.compute["gradient steps"] for run in found.runs}
    assert text.count("<svg") == 4 + (len(spent) > 1)  # compute, where they differ in it
    for run in found.runs:
        assert run.name in text
    assert "12.3" in text and "45.6" in text
    kinds = {path.suffix for path in page.parent.iterdir()}
    assert kinds == {".html", ".png", ".svg", ".csv", ".parquet"}
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


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory, small_corpus: Corpus) -> list[Path]:
    """Two ways to play with two seeds each: few steps at a low rate, and more at a higher one."""
    folder, made = tmp_path_factory.mktemp("seeds"), []
    for name, changes in (("slow", ["play.steps=1", "play.rule.rate=1e-5"]), ("fast", [])):
        for seed in range(2):
            settings = make_settings(assignments=[*TINY_GAME, *changes, f"play.seed={seed}"])
            made.append(folder / f"{name}-{seed}")
            play(small_corpus, made[-1], settings)
    return made


def test_seeds_are_taken_together_and_compared_with_the_baseline(
    seeds: list[Path], small_corpus: Corpus, tmp_path: Path
) -> None:
    found = compare(seeds, baseline=seeds[1])
    assert [run.name for run in found.runs] == ["slow-0", "fast-0"]
    assert found.baseline == "slow-0" and {each.run for each in found.differences} == {"fast-0"}
    online = next(each for each in found.differences if each.measure == "online")
    paid = [np.log(read_costs(run, small_corpus, "online").perplexity()) for run in seeds]
    assert online.change.value == pytest.approx(np.expm1(np.mean(paid[2:]) - np.mean(paid[:2])))
    assert online.change.low <= online.change.value <= online.change.high
    assert online.verdict == "better"  # the others have learned nothing
    for axes in FIGURES["ratio"].draw(found).axes:  # the curve is within its band
        (band,), line = axes.collections, axes.lines[0].get_xydata()
        (shape,) = band.get_paths()
        assert shape.contains_points(np.asarray(line)[1:-1], radius=1e-3).mean() > 0.9
    page = write(found, tmp_path / "page", "firehose compare")
    assert "Compared with slow-0" in page.read_text()
    rows = pq.read_table(page.parent / "results.parquet").to_pylist()
    told = [row for row in rows if row["measure"] == "online" and not row["part"]]
    each = [(run, seed) for run in ("slow-0", "fast-0") for seed in (0, 1, None)]
    assert [(row["run"], row["seed"]) for row in told] == each
    change = [row for row in rows if row["measure"] == "online, change against slow-0"]
    assert [row["value"] for row in change] == [online.change.value]


def test_a_baseline_must_be_one_of_the_runs(seeds: list[Path]) -> None:
    with pytest.raises(FirehoseError, match="is not among the runs"):
        compare(seeds[:2], baseline=seeds[3])
    with pytest.raises(FirehoseError, match="the same settings and the same seed"):
        compare([seeds[0], seeds[0]], baseline=seeds[0])


def test_a_run_leaves_its_numbers_for_other_tools(seeds: list[Path]) -> None:
    rows = pq.read_table(seeds[1] / "results.parquet").to_pylist()
    came = Outcome.read(seeds[1])
    (test,) = [row for row in rows if row["measure"] == "test"]
    assert (test["run"], test["seed"]) == ("slow-1", 1)
    assert (test["value"], test["low"], test["high"]) == (
        came.test.value, came.test.low, came.test.high
    )  # fmt: skip
    slices = [row for row in rows if row["part"] == "earlier posts: none"]
    assert [row["value"] for row in slices] == [came.by_history["none"].value]


@pytest.fixture
def firehose(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(monkeypatch, capsys)


def test_what_is_printed_can_be_read_by_programs(
    seeds: list[Path], tmp_path: Path, firehose: Commands
) -> None:
    done = firehose("compare", *seeds, "--baseline", seeds[0], "--out", tmp_path / "a", "--json")
    values = json.loads(done.out)
    assert {row["run"] for row in values["results"]} == {"slow-0", "fast-0"}
    shown = firehose("compare", *seeds, "--baseline", seeds[0], "--out", tmp_path / "a").out
    assert "Perplexity against slow-0" in shown and "better" in shown
