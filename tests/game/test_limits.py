"""Absurd settings: refused at once, with what they would need."""

import json
import shutil
from pathlib import Path

import pytest

from firehose.config import read_toml
from firehose.data.corpus import Corpus, check
from firehose.errors import FirehoseError
from firehose.game.folder import read_run
from firehose.game.limits import buffer_bytes, refuse_endless
from firehose.game.run import play, pretrain
from firehose.game.settings import make_settings
from firehose.models.store import read_card
from small_models import TINY_GAME

LARGE = "1000000000000"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.shape.d_model=15000000", "The model, with its gradient and moments, needs"),
        (f"model.max_tokens={LARGE}", r"The memory \(play.memory\) needs"),
        ("play.memory.per_user=1000000000", r"The memory \(play.memory\) needs"),
        ("play.optimizer.validation.per_user=1000000000", "The buffer of held-back posts"),
        (f"play.optimizer.validation_batch={LARGE}", "validation_batch = 1,000,000,000,000 needs"),
        (f"play.step_size={LARGE}", "A step of play.step_size = 1,000,000,000,000 needs"),
        (f"play.steps={LARGE}", "gradient steps would take years"),
    ],
)
def test_a_game_that_this_machine_cannot_play_is_not_begun(
    small_corpus: Corpus, tmp_path: Path, setting: str, sentence: str
) -> None:
    settings = make_settings(assignments=[*TINY_GAME, setting])
    with pytest.raises(FirehoseError, match=sentence):
        play(small_corpus, tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


def test_a_training_that_this_machine_cannot_do_is_not_begun(
    small_corpus: Corpus, tmp_path: Path
) -> None:
    for setting, sentence in (
        ("model.shape.d_model=15000000", "The model, with its gradient and moments, needs"),
        (f"pretrain.epochs={LARGE}", "gradient steps would take years"),
    ):
        settings = make_settings(assignments=[*TINY_GAME, setting])
        with pytest.raises(FirehoseError, match=sentence):
            pretrain(small_corpus, tmp_path / "run", settings, "train")
    refuse_endless(10**11)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("play.hours=inf", "play.hours = inf in the settings: input should be a finite number"),
        ("play.hours=nan", "finite number"),
        ("play.hours=1e300", "less than or equal to"),
        ("play.rule.rate=nan", "rate = nan in the update rule 'adam'"),
        ("pretrain.rate=inf", "finite number"),
        ("model.shape.dropout=nan", "finite number"),
        ("play.seed=" + "9" * 30, "play in the settings: seed has 30 digits"),
        ("play.seed=" + "9" * 5000, "Exceeds the limit"),
        ("play.seed=-1", "greater than or equal to 0"),
        ("play.x=" + "[" * 100_000, "recursion"),
        ("perceptron.hidden=[-5]", "greater than or equal to 1"),
    ],
)
def test_numbers_without_an_end_are_refused(setting: str, sentence: str) -> None:
    with pytest.raises(FirehoseError, match=sentence) as error:
        make_settings(assignments=[setting])
    assert len(str(error.value)) < 500


def test_a_buffer_has_no_more_room_than_there_are_posts() -> None:
    def room(*memory: str) -> int:
        settings = make_settings(assignments=[f"play.memory.{each}" for each in memory])
        return buffer_bytes(settings, users=10, posts=100, width=2)["memory"]

    assert room("posts=50") == 2 * 50
    assert room("posts=5000") == 2 * 100
    assert room("kind=fifo", "per_user=1000") == 2 * 100
    assert room("kind=stratified", "per_user=1000") == 2 * 10_000  # a row for each user
    assert buffer_bytes(make_settings(), users=10, posts=100, width=2)["validation"] == 2 * 10
    around = make_settings(assignments=["play.optimizer.kind=averaged"])
    assert buffer_bytes(around, users=10, posts=100, width=2)["validation"] == 0
    around = make_settings(
        assignments=["play.optimizer.kind=averaged", "play.optimizer.inner=congrad"]
    )
    assert buffer_bytes(around, users=10, posts=100, width=2)["validation"] == 2 * 10


@pytest.mark.parametrize("name", ["run.json", "model.json", "manifest.json", "recipe.toml"])
def test_files_that_are_nested_without_an_end_are_refused(
    small_corpus: Corpus, tmp_path: Path, name: str
) -> None:
    if name == "manifest.json":
        shutil.copytree(small_corpus.path, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_text(
        '{"a":' * 100_000 if name.endswith("json") else "a = " + "[" * 100_000
    )
    read = {"run.json": read_run, "model.json": read_card, "manifest.json": check}
    with pytest.raises(FirehoseError, match=name):
        if name == "recipe.toml":
            read_toml(tmp_path / name)
        else:
            read[name](tmp_path)


def test_a_card_with_absurd_sizes_is_refused(small_corpus: Corpus, tmp_path: Path) -> None:
    from firehose.models.store import load

    settings = make_settings(assignments=[*TINY_GAME, "pretrain.epochs=1"])
    pretrain(small_corpus, tmp_path / "run", settings, "train")
    card = tmp_path / "run" / "model" / "model.json"
    body = json.loads(card.read_text())
    body["model"]["shape"]["layers"] = 10**9
    card.write_text(json.dumps(body))
    with pytest.raises(FirehoseError):
        load(tmp_path / "run")
