"""What predicts is what pays, is scored, is saved, and writes: with averages, the first of them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.game.live import load
from firehose.game.run import play
from firehose.game.scoring import costs, read_costs
from firehose.game.settings import make_settings
from firehose.generation.generate import generate
from firehose.generation.suggest import suggest
from firehose.methods.optimizers.averaged import Averaged
from firehose.models.store import load as load_model, save
from firehose.storage.checkpoints import Checkpoints
from small_models import TINY_GAME, trained_on

AVERAGED = ["play.optimizer=averaged", "play.optimizer.horizons=[0.3, 5]"]


def test_the_saved_and_scored_model_is_the_average(tmp_path: Path, small_corpus: Corpus) -> None:
    run = tmp_path / "run"
    play(small_corpus, run, make_settings(assignments=TINY_GAME + AVERAGED))
    checkpoint = Checkpoints(run / "checkpoints").latest()
    assert checkpoint is not None
    state = checkpoint.state
    saved = load_model(run, small_corpus).model
    average = state["optimizer"]["averages"]["0"]["shared"]
    raw = state["model"]["weights"]
    for name, weight in saved.state_dict().items():
        assert torch.equal(weight, average[name])
        assert not weight.dim() or not torch.equal(weight, raw[name]) or not weight.any()
    assert not torch.equal(saved.users.vectors, state["model"]["users"]["vectors"])
    for split in ("test", "validation"):
        expected = costs(saved, small_corpus.splits[split]).nats
        assert read_costs(run, small_corpus, split).nats == pytest.approx(expected, rel=1e-5)


def test_a_live_model_pays_writes_and_is_saved_with_its_average(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    save(trained_on(small_corpus), tmp_path / "model")
    settings = [*AVERAGED, "play.rule.rate=0.05", "play.rule.warmup=0"]
    model = load(tmp_path / "model", playing=make_settings("laptop", settings).play)
    posts = [Post("zoe", "the quick brown fox"), Post("yan", "jumps over a lazy dog")]
    assert model.pay(posts).nats.tolist() == model.learn(posts).nats.tolist()
    for _ in range(3):
        before = model.pay(posts).nats.tolist()
        assert model.learn(posts).nats.tolist() == before
    raw = model.model.pay(model.encoder.encode(posts, model.users, grow=False)).nats
    save(model, tmp_path / "learned")
    again = load_model(tmp_path / "learned")
    assert again.pay(posts).nats == pytest.approx(model.pay(posts).nats, rel=1e-5)
    assert np.abs(raw - model.pay(posts).nats).min() > 0.01
    assert isinstance(model.game.optimizer, Averaged)
    for prompt, user in (("the", "zoe"), ("jumps", None)):
        found = suggest(model, prompt, user, 2)
        assert [each.word for each in found] == [x.word for x in suggest(again, prompt, user, 2)]
        assert found[0].probability == pytest.approx(suggest(again, prompt, user, 1)[0].probability)
        (written,), (expected,) = (generate(each, prompt, user) for each in (model, again))
        assert written.tokens == expected.tokens
        assert written.nats == pytest.approx(expected.nats)
