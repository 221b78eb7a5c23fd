"""Methods: what they are made of, and those that are not the paper's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firehose.classic import experiment
from firehose.classic.experiment import Cell, play_all
from firehose.classic.methods import HIDDEN, METHODS, Protocol, in_order, make_parts
from firehose.classic.run import run
from firehose.methods.optimizers.all import ConGraD, OnlineGD
from typer.testing import CliRunner

from firehose.cli.app import app
from firehose.data.pictures.tasks import make_tasks
from firehose.errors import FirehoseError
from firehose.methods.learners.gem import GEM
from firehose.methods.learners.icarl import ICaRL
from firehose.models.perceptron import Perceptron, PixelScale
from firehose.optim.sgd import SGD
from small_pictures import DATA, QUICK, SMALL, stay_at_home

OWN = """
from firehose.methods.learners.all import MixedReplay

class Mine(MixedReplay):
    pass

class Odd(MixedReplay):
    def __init__(self):
        pass
"""


CHOSEN = Protocol(
    pixels="standard",
    weights="torch",
    posts=4,
    step_size=6,
    memory=20,
    validation=5,
    steps=3,
    online_steps=2,
    zero=False,
    gem_memory=2,
    gem_margin=0.25,
    icarl_pace=0.5,
    icarl_strength=3.0,
    rate=0.3,
)


@pytest.mark.parametrize("method", METHODS)
def test_parts_are_what_the_protocol_says(method: str) -> None:
    tasks = make_tasks(SMALL, DATA, seed=0)
    model, learner, optimizer, memory, _ = make_parts(SMALL, tasks, method, 0, CHOSEN)
    alone = ("GEM", "iCaRL", "GD online", "ConGraD online")
    assert getattr(learner, "step_size") == (4 if method in alone else 6)  # noqa: B009
    assert isinstance(optimizer, ConGraD if method.startswith("ConGraD") else OnlineGD)
    assert optimizer.steps == (2 if method in ("GEM", "GD online") else 3)
    assert isinstance(optimizer.rule, SGD)
    assert optimizer.rule.rate == (0.15 if method == "iCaRL" else 0.3)
    start = Perceptron(12, 10, HIDDEN, 0, PixelScale.standard(DATA.train.pixels), "torch")
    assert model.pixel_scale == start.pixel_scale and model.weights.equal(start.weights)
    generator = np.random.default_rng(0)
    for batch in tasks.stream(CHOSEN.posts):
        memory.push(optimizer.admit(batch, generator), generator)
    assert len(memory) == (2 * 5 if method == "GEM" else 20)
    if isinstance(optimizer, ConGraD):
        assert len(optimizer.validation) == optimizer.posts == 5 and not optimizer.zero
    if isinstance(learner, GEM):
        assert learner.margin == 0.25
    if isinstance(learner, ICaRL):
        assert learner.strength == 3


def test_a_benchmark_has_its_own_rate() -> None:
    tasks = make_tasks(SMALL, DATA, seed=0)
    optimizer = make_parts(SMALL, tasks, "GD mixed", 0, Protocol()).optimizer
    assert isinstance(optimizer, OnlineGD) and isinstance(optimizer.rule, SGD)
    assert optimizer.rule.rate == SMALL.rate


def test_wrong_names_are_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    with pytest.raises(FirehoseError, match="did you mean 'disjoint-mnist'"):
        play_all(["disjoint-mnits"], tmp_path, tmp_path)
    with pytest.raises(FirehoseError, match="has no train-images-idx3-ubyte"):
        play_all(["disjoint-mnist"], tmp_path, tmp_path)
    with pytest.raises(FirehoseError, match="no method 'GD mix': did you mean 'GD mixed'"):
        play_all(["disjoint-mnist"], tmp_path, tmp_path, methods=["GD mix"])
    for method, sentence in (
        ("GD", "no method 'GD'"),
        ("Adam a-gem", "no method 'Adam a-gem'"),
        ("GD a-gm", "did you mean 'GD a-gem'"),
        ("GD none.py:Mine", "none.py does not exist"),
        ("GD :", "There is no module ''"),
        ("GD builtins:int", "builtins:int is not a learner: it has no method gradient"),
        (f"GD {tmp_path}/mine.py:Odd", "Odd cannot be made from the posts of a step"),
        ("ConGraD icarl", "ConGraD holds some back: use 'iCaRL'"),
    ):
        with pytest.raises(FirehoseError, match=sentence):
            play_all(["disjoint-mnist"], tmp_path, tmp_path, methods=[method])
    (tmp_path / "other.py").write_text(OWN)
    twins = [f"GD {tmp_path}/{name}.py:Mine" for name in ("mine", "other")]
    with pytest.raises(FirehoseError, match="Two methods would be called the same"):
        play_all(["disjoint-mnist"], tmp_path, tmp_path, methods=twins)


def test_a_method_has_one_name() -> None:
    asked = ["GD a-gem", "GD mixed-replay", "GD gem", "GEM", "GD a-gem"]
    assert in_order(asked) == ["GEM", "GD mixed", "GD a-gem"]


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Games are small, and played in this process."""
    stay_at_home(monkeypatch)


@pytest.mark.parametrize(
    ("method", "wrong", "sentence"),
    [
        ("iCaRL", {"memory": 9}, "memory = 9 is too little, choose 10"),
        ("GEM", {"rate": 1e19}, "choose a smaller rate"),
    ],
)
@pytest.mark.usefixtures("at_home")
def test_games_that_cannot_be_played_are_told(
    tmp_path: Path, method: str, wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FirehoseError, match=sentence):
        play_all(["disjoint-mnist"], tmp_path, tmp_path, 1, Protocol(**wrong), methods=[method])


def test_any_learner_goes_with_any_optimizer(tmp_path: Path) -> None:
    tasks = make_tasks(SMALL, DATA, seed=0)
    (tmp_path / "mine.py").write_text(OWN)
    for optimizer in ("GD", "ConGraD"):
        expected = run(SMALL, tasks, f"{optimizer} mixed", 0, QUICK)
        for learner in ("mixed-replay", f"{tmp_path}/mine.py:Mine"):
            played = run(SMALL, tasks, f"{optimizer} {learner}", 0, QUICK)
            assert (played.accuracy == expected.accuracy).all()
        for learner in ("a-gem", "gem"):
            played = run(SMALL, tasks, f"{optimizer} {learner}", 0, QUICK)
            assert played.final > 0.1 and (played.accuracy != expected.accuracy).any()
    assert (
        run(SMALL, tasks, "GD icarl", 0, QUICK).final == run(SMALL, tasks, "iCaRL", 0, QUICK).final
    )


@pytest.mark.usefixtures("at_home")
def test_a_learner_of_one_s_own_is_shown_beside_the_paper_s(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    method = f"ConGraD {tmp_path}/mine.py:Mine"
    arguments = ["classic", "run", "disjoint-mnist", "--out", str(tmp_path), "--seeds", "1"]
    done = CliRunner().invoke(app, [*arguments, "--method", method, "--method", "GD a-gem"])
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "disjoint-mnist/tables/differences.md").exists()  # nothing is published
    done = CliRunner().invoke(app, [*arguments, "--method", method, "--method", "GD mixed"])
    made = (tmp_path / "disjoint-mnist/tables/accuracy.md").read_text()
    assert made.index("GD mixed") < made.index("ConGraD Mine")
    assert "ConGraD" not in (tmp_path / "disjoint-mnist/tables/differences.md").read_text()
    files = {path.name.rpartition("-")[0] for path in (tmp_path / "runs").iterdir()}
    assert files == {f"disjoint-mnist-{n}-seed-0" for n in ("gd-mixed", "gd-a-gem", "congrad-mine")}
    cell = Cell("disjoint-mnist", method, 0)
    before = experiment._name(cell, QUICK)
    (tmp_path / "mine.py").write_text(f"{OWN}    step = 2\n")
    assert experiment._name(cell, QUICK) != before
