"""Games with pictures: they end as a plain loop does, and stopping them changes nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from firehose.batch import Batch
from firehose.data.corpus import Corpus
from firehose.data.pictures.corpus import PictureCorpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.assembly import Game, make_game, open_any
from firehose.game.folder import read_run
from firehose.game.forget import forget
from firehose.game.outcome import Outcome, TaskOutcome, read_outcome
from firehose.game.result import read_result
from firehose.game.round import Round
from firehose.game.run import play, read_progress, resume
from firehose.game.scoring import accuracies
from firehose.game.settings import Settings, make_settings
from firehose.methods.learners import LEARNERS
from firehose.models.perceptron import Perceptron, labels
from small_models import TINY_GAME
from small_pictures import SMALL_BUFFERS, small_mnist, small_mnist_elsewhere

PAIRS = [
    ("distill", "averaged"),
    *((learner, "online-gd") for learner in LEARNERS.built_in),
    *((learner, "congrad") for learner in LEARNERS.built_in if learner != "icarl"),
]


def small(learner: str, optimizer: str = "online-gd", *more: str) -> Settings:
    """The settings of a game that a test can afford."""
    buffers = [each for each in SMALL_BUFFERS if optimizer == "congrad" or "memory" in each]
    own = ["play.memory=exemplars"] if learner == "icarl" else []
    own += ["play.memory.per_user=4"] if learner == "gem" else []
    chosen = [f"play.learner={learner}", f"play.optimizer={optimizer}"]
    benchmark = ["pictures.benchmark=disjoint-mnist", "play.rule.rate=0.1"]
    return make_settings("classic", [*benchmark, *chosen, *buffers, *own, *more])


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with pictures for small benchmarks."""
    return small_mnist(tmp_path / "data", monkeypatch)


def left_behind(run: Path) -> dict[str, Any]:
    """Everything that a game leaves, but how long it took."""
    result = read_result(run)
    result["compute"] = {k: v for k, v in result["compute"].items() if "seconds" not in k}
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    return {
        "result": result,
        "rounds": [{k: v for k, v in line.items() if k != "seconds"} for line in rounds],
        "paid": (run / "paid.f32").read_bytes(),
    }


def test_online_descent_is_a_plain_loop(data: Path, tmp_path: Path) -> None:
    """One step on each batch, by autograd: accuracies, costs and all."""
    settings = small("online-only", "online-gd", "play.steps=1", "play.step_size=10")
    outcome = play(data, tmp_path / "run", settings)
    corpus = open_any(data, settings)
    assert isinstance(corpus, PictureCorpus)
    start = Perceptron(12, 10, (100, 100), seed=0)
    layers = [nn.Linear(12, 100), nn.Linear(100, 100), nn.Linear(100, 10)]
    for layer, (weight, bias) in zip(layers, start.layers, strict=True):
        layer.weight.data, layer.bias.data = weight.clone(), bias.clone()
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    rule = torch.optim.SGD(model.parameters(), lr=0.1)

    def outputs(posts: Batch) -> torch.Tensor:
        tokens = posts.tokens.reshape(len(posts), -1)[:, :-1].astype(np.float32)
        found: torch.Tensor = model(torch.from_numpy(tokens) / 255)
        return found

    def measured() -> list[float]:
        with torch.no_grad():
            found = [outputs(task).argmax(1) == labels(task) for task in corpus.tasks.test]
        return [float(right.float().mean()) for right in found]

    seen, accuracy, paid = [0], [measured()], []
    for batch in (each for task in corpus.tasks.train for each in cut(task, 10)):
        nats = nn.functional.cross_entropy(outputs(batch), labels(batch), reduction="none")
        paid += nats.tolist()
        rule.zero_grad()
        nats.mean().backward()
        rule.step()
        seen.append(seen[-1] + len(batch))
        accuracy.append(measured())
    assert outcome.seen.tolist() == seen  # 21 looks at 20 rounds
    assert outcome.accuracy == pytest.approx(np.array(accuracy), abs=0.5 / 40)
    assert np.fromfile(tmp_path / "run/paid.f32", "<f4") == pytest.approx(paid, rel=1e-3, abs=1e-4)
    assert outcome.seen[outcome.ends].tolist() == [40, 80, 120, 160, 200]
    assert outcome.compute["gradient steps"] == outcome.compute["rounds"] == 20
    assert outcome.kept == [0, 20]


def cut(posts: Batch, size: int) -> list[Batch]:
    places = np.split(np.arange(len(posts)), range(size, len(posts), size))
    return [posts.select(part) for part in places]


@pytest.mark.parametrize(("learner", "optimizer"), PAIRS)
def test_a_game_in_a_folder_is_its_rounds_and_looks_between_them(
    data: Path, tmp_path: Path, learner: str, optimizer: str
) -> None:
    settings = small(learner, optimizer, "play.posts=15")
    outcome = play(data, tmp_path / "run", settings)
    corpus = open_any(data, settings)
    assert isinstance(corpus, PictureCorpus)
    game = make_game(corpus, settings)
    model: Any = game.memory if learner == "icarl" else game.model
    seen, accuracy = [0], [accuracies(model.classify, corpus.tasks.test)]
    stream = [batch for task in corpus.tasks.train for batch in cut(task, 15)]
    taken = 0
    for played in game.rounds(stream):
        seen.append(seen[-1] + len(played.batch))
        with game.predictor.in_use():
            accuracy.append(accuracies(model.classify, corpus.tasks.test))
        taken += played.steps.taken
    looks = np.searchsorted(seen, outcome.seen)
    assert np.array(seen)[looks].tolist() == outcome.seen.tolist()
    assert np.array(accuracy)[looks].tolist() == outcome.accuracy.tolist()
    assert [seen[n] for n in looks[outcome.ends]] == [40, 80, 120, 160, 200]
    assert outcome.compute["gradient steps"] == taken > 0
    assert read_progress(tmp_path / "run") == 1
    again = read_outcome(tmp_path / "run")
    assert isinstance(again, TaskOutcome) and again.public() == outcome.public()


def test_accuracies_are_those_of_the_average(data: Path, tmp_path: Path) -> None:
    settings = small("online-only", "averaged", "play.optimizer.horizons=[0.5]")
    outcome = play(data, tmp_path / "run", settings)
    corpus = open_any(data, settings)
    assert isinstance(corpus, PictureCorpus)
    game = make_game(corpus, settings)
    for _ in game.rounds(corpus.stream(settings.play.posts)):
        pass
    model, test = game.model, corpus.tasks.test
    assert isinstance(model, Perceptron)
    raw = accuracies(model.classify, test)
    with game.predictor.in_use():
        assert outcome.accuracy[-1].tolist() == accuracies(model.classify, test) != raw


def test_who_remembers_does_not_forget(data: Path, tmp_path: Path) -> None:
    def forgets(learner: str, steps: int) -> tuple[float, float]:
        settings = small(learner, "online-gd", "play.rule.rate=0.5", f"play.steps={steps}")
        outcome = play(data, tmp_path / learner, settings)
        final, forgotten = outcome.totals("accuracy"), outcome.totals("forgetting")
        return final.value(), forgotten.value()

    final, forgotten = forgets("online-only", 3)
    for learner in ("gem", "icarl", "replay-only", "mixed-replay"):
        ours, lost = forgets(learner, 3)
        assert ours > final + 20 and lost < forgotten, learner


def stop_after(monkeypatch: pytest.MonkeyPatch, *rounds: int) -> None:
    """Ask a game to stop when it has played so many rounds."""
    whole = Game.rounds

    def interrupted(self: Game, stream: Iterable[Batch]) -> Iterator[Round]:
        for played in whole(self, stream):
            if self.played in rounds:
                os.kill(os.getpid(), signal.SIGTERM)
            yield played

    monkeypatch.setattr(Game, "rounds", interrupted)


@pytest.mark.parametrize(("learner", "optimizer"), PAIRS)
def test_stopped_and_resumed_it_ends_with_the_same_bits(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learner: str, optimizer: str
) -> None:
    settings = small(learner, optimizer)
    play(data, tmp_path / "whole", settings)
    stop_after(monkeypatch, 3, 14)  # within the first task, and within the fourth
    with pytest.raises(Stopped, match="after round 3; `firehose resume"):
        play(data, tmp_path / "run", settings)
    data.rename(tmp_path / "moved")
    with pytest.raises(Stopped, match="after round 14"):
        resume(tmp_path / "run", corpus=tmp_path / "moved")
    resume(tmp_path / "run", corpus=tmp_path / "moved")
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


@pytest.mark.parametrize(("learner", "optimizer"), [("icarl", "online-gd"), ("gem", "congrad")])
def test_killed_it_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learner: str, optimizer: str
) -> None:
    data = small_mnist_elsewhere(tmp_path / "data", monkeypatch)
    settings = small(learner, optimizer, "play.posts=1")  # 200 rounds
    play(data, tmp_path / "whole", settings)
    (tmp_path / "game.toml").write_text(settings.to_toml())
    run = tmp_path / "run"
    arguments = [str(data), "--recipe", str(tmp_path / "game.toml"), "--checkpoint-every", "0"]
    command = [sys.executable, "-m", "firehose", "play", *arguments, "--out", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for _ in range(6000):
        if process.poll() is not None or list(run.glob("checkpoints/state-*3?")):
            break
        time.sleep(0.005)
    process.kill()
    _, said = process.communicate()
    assert not (run / "result.json").exists(), said
    assert 0 < read_progress(run) < 1 or not (run / "progress.json").exists()
    resume(run)
    assert left_behind(run) == left_behind(tmp_path / "whole")


def test_what_cannot_be_played_is_told(
    data: Path, tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = [each for each in TINY_GAME if "memory" not in each] + ["play.optimizer=online-gd"]
    for settings, sentence in (
        (small("icarl", "congrad"), "ConGraD holds some back: choose Online GD"),
        (small("icarl", "online-gd", "play.memory.kind=fifo"), "iCaRL needs exemplars"),
        (make_settings(assignments=[*tiny, "play.learner=icarl"]), "iCaRL needs classes, and post"),
        (
            make_settings(assignments=[*tiny, "play.memory={ kind = 'exemplars', posts = 20 }"]),
            "Exemplars are pictures of a class",
        ),
        (small("gem", "online-gd", "play.rule.rate=1e19"), "is not a finite number"),
    ):
        corpus = data if settings.pictures else small_corpus.path
        with pytest.raises(FirehoseError, match=sentence):
            play(corpus, tmp_path / "run", settings)
        assert (tmp_path / "run").exists() == ("finite" in sentence)
    with pytest.raises(FirehoseError, match="greater than or equal to 10"):
        small("icarl", "online-gd", "play.memory.posts=9")
    with pytest.raises(FirehoseError, match="no benchmark 'disjoint-minst': did you mean"):
        small("gem", "online-gd", "pictures.benchmark=disjoint-minst")


def test_a_run_with_pictures_has_no_users_and_no_perplexities(data: Path, tmp_path: Path) -> None:
    outcome = play(data, tmp_path / "run", small("mixed-replay"))
    with pytest.raises(FirehoseError, match="tasks and accuracies, not posts"):
        Outcome.read(tmp_path / "run")
    with pytest.raises(FirehoseError, match="was played with pictures, which have no users"):
        forget(tmp_path / "run", "0")
    main, tasks, *_ = outcome.tables()
    assert main.caption == "Small"
    assert [row[0] for row in main.rows] == ["accuracy", "forgetting", "forward transfer"]
    assert main.rows[0][1] == f"{100 * outcome.accuracy[-1].mean():.1f}"
    assert len(tasks.rows) == 5
    card = read_run(tmp_path / "run")
    assert card.settings["pictures"]["benchmark"] == "disjoint-mnist"
