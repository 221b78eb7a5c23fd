"""Against numbers made with the authors' own model code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError
from firehose.generation.decoding import Decoder
from firehose.models.personal import Architecture, ModelPlan, Personal, predictions
from firehose.models.published import adopt, convert, from_release, plan_of, release
from firehose.models.store import load as open_model
from firehose.models.transformer_xl import Shape
from firehose.models.users import NOBODY
from small_models import PERSONAL, TINY, batch_of

FIXTURES = Path(__file__).parent / "parity"
Released = dict[str, torch.Tensor]


def load(name: str) -> tuple[Personal, Batch, dict[str, NDArray[Any]], Released]:
    """Our model with the fixture's weights, its posts, its numbers, and its weights."""
    config = json.loads((FIXTURES / f"{name}.json").read_text())
    numbers = dict(np.load(FIXTURES / f"{name}.npz"))
    sizes = {key: config[key] for key in ("layers", "d_model", "heads", "d_head", "d_inner")}
    plan = ModelPlan(
        architecture=config["kind"],
        shape=Shape(**sizes),
        d_user=config["d_user"],
        mlp=config["mlp_hidden"],
    )
    model = Personal(plan, config["pieces"])
    weights = {
        key.removeprefix("weights/"): torch.from_numpy(value)
        for key, value in numbers.items()
        if key.startswith("weights/")
    }
    adopt(model, weights)
    offsets = np.concatenate([[0], np.cumsum(numbers["lengths"])])
    batch = Batch(
        numbers["posts"].astype(np.uint16),
        offsets,
        numbers["users"].astype(np.int32),
        np.zeros(len(offsets) - 1, np.int64),
        numbers["lengths"].astype(np.int32),
    )
    return model, batch, numbers, weights


@pytest.mark.parametrize("name", ["agnostic", "adapters"])
def test_log_probabilities_are_those_of_the_release(name: str) -> None:
    model, batch, numbers, _ = load(name)
    model.eval()
    inputs, _, grid = predictions(batch)
    with torch.no_grad():
        adapt = model.adapter(model.users.take(batch.user, learn=False), grid)
        hidden = model.shared(inputs, grid, adapt)
        logits = hidden @ model.shared.embedding.T + model.shared.output_bias
    found = logits.log_softmax(1).numpy()
    np.testing.assert_allclose(found, numbers["log_probabilities"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["agnostic", "adapters"])
def test_posts_cost_what_they_cost_in_the_release_alone_or_together(name: str) -> None:
    model, batch, numbers, _ = load(name)
    np.testing.assert_allclose(model.pay(batch).nats, numbers["nll"], rtol=0, atol=1e-3)
    for post in range(len(batch)):
        start, stop = batch.offsets[post : post + 2]
        alone = Batch(
            batch.tokens[start:stop],
            np.array([0, stop - start]),
            batch.user[post : post + 1],
            batch.time[post : post + 1],
            batch.words[post : post + 1],
        )
        assert model.pay(alone).nats[0] == pytest.approx(numbers["nll"][post], abs=1e-3)


@pytest.mark.parametrize("name", ["agnostic", "adapters"])
def test_weights_go_back_as_they_came(name: str) -> None:
    model, _, _, weights = load(name)
    returned = release(model)
    assert set(returned) == set(weights)
    for key, value in weights.items():
        # Row 0 is padding, of which we keep nothing.
        rows = slice(1, None) if key.startswith(("word_emb", "out_layer")) else slice(None)
        assert torch.equal(returned[key][rows], value[rows]), key


def test_weights_of_another_size_are_refused_by_name() -> None:
    model, _, _, weights = load("adapters")
    other = Personal(model.plan.model_copy(update={"mlp": 7}), 50)
    with pytest.raises(FirehoseError, match=r"mtl_layers\.0\.0\.weight is \(16, 64\) .* \(7, 64\)"):
        adopt(other, weights)
    agnostic = {key: value for key, value in weights.items() if "mtl" not in key}
    with pytest.raises(FirehoseError, match="have no mtl_layers"):
        adopt(model, agnostic)
    larger = Personal(model.plan, 51)
    with pytest.raises(FirehoseError, match="have 50 pieces and this model 51"):
        adopt(larger, weights)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary; byte fallback alone needs more pieces than the fixtures have."""
    counts = [(f"{a}{b}", 5) for a in "abcdefgh" for b in "abcdefgh"]
    vocabulary = Vocabulary.train(counts)
    path = tmp_path_factory.mktemp("words") / "vocabulary.model"
    path.write_bytes(vocabulary.model)
    return path


def resized(weights: Released, pieces: int) -> Released:
    """The same weights with another number of pieces."""
    changed = dict(weights)
    for name in ("word_emb.emb_layers.0.weight", "out_layer.weight", "out_layer.bias"):
        rows = torch.arange(pieces + 1) % len(weights[name])
        changed[name] = weights[name][rows].clone()
    return changed


@pytest.mark.parametrize("name", ["agnostic", "adapters"])
def test_a_released_file_becomes_a_model_and_a_file_again(
    name: str, tmp_path: Path, words: Path
) -> None:
    model, _, _, weights = load(name)
    wide = resized(weights, Vocabulary.load(words).size)
    # As a model that was trained on several devices is saved.
    torch.save({f"module.{key}": value for key, value in wide.items()}, tmp_path / "model.pt")
    convert(tmp_path / "model.pt", tmp_path / "model", words)
    opened = open_model(tmp_path / "model")
    assert opened.model.plan.architecture == name
    assert opened.model.plan.shape == model.plan.shape
    assert opened.known() == [str(number) for number in range(len(model.users))]
    convert(tmp_path / "model", tmp_path / "again.pt")
    returned = torch.load(tmp_path / "again.pt", weights_only=True)
    assert set(returned) == set(wide)
    for key, value in wide.items():
        rows = slice(1, None) if key.startswith(("word_emb", "out_layer")) else slice(None)
        assert torch.equal(returned[key][rows], value[rows]), key


@pytest.mark.parametrize("architecture", PERSONAL)
def test_weights_without_a_projection_of_users_are_as_with_the_identity(
    architecture: Architecture, tmp_path: Path, words: Path
) -> None:
    vocabulary = Vocabulary.load(words)
    plan = ModelPlan(
        architecture=architecture, shape=TINY, d_user=TINY.d_model, project_users=False, mlp=8
    )
    weights = release(_awake_and_wide(Personal(plan, vocabulary.size)))
    assert not any("emb_projs" in name for name in weights)
    torch.save(weights, tmp_path / "model.pt")
    convert(tmp_path / "model.pt", tmp_path / "model", words, architecture)
    found = open_model(tmp_path / "model")
    assert not found.model.plan.project_users
    assert found.model.plan.architecture == architecture
    by_hand = Personal(plan.model_copy(update={"project_users": True}), vocabulary.size)
    adopt(by_hand, weights | {"user_emb.emb_projs.0": torch.eye(TINY.d_model)})
    batch = batch_of([[1, 4, 5, 2], [1, 9, 2], [1, 7, 7, 7, 2]], [3, 0, NOBODY])
    expected = by_hand.pay(batch).nats
    np.testing.assert_allclose(found.model.pay(batch).nats, expected, rtol=0, atol=1e-5)
    pair = (found.model, by_hand)
    ours, theirs = (Decoder(model, user=3).advance(torch.tensor([[1, 4]])) for model in pair)
    torch.testing.assert_close(ours, theirs)
    assert not np.allclose(by_hand.pay(replace(batch, user=batch.user + 1)).nats, expected)
    convert(tmp_path / "model", tmp_path / "again.pt")
    returned = torch.load(tmp_path / "again.pt", weights_only=True)
    assert set(returned) == set(weights)
    assert all(torch.equal(returned[name], weights[name]) for name in weights)


def test_a_projection_that_the_release_has_no_room_for_is_applied() -> None:
    plan = ModelPlan(shape=TINY, d_user=TINY.d_model, mlp=8)
    model = _awake_and_wide(Personal(plan, 50))
    weights = release(model)
    found = Personal(plan_of(weights, None), 50)
    adopt(found, weights)
    assert not found.plan.project_users
    batch = batch_of([[1, 4, 5, 2], [1, 9, 2]], [3, 0])
    np.testing.assert_allclose(found.pay(batch).nats, model.pay(batch).nats, rtol=0, atol=1e-5)


def test_a_projection_is_left_out_only_where_it_is_not_needed() -> None:
    _, _, _, weights = load("adapters")
    without = {key: value for key, value in weights.items() if "emb_projs" not in key}
    with pytest.raises(FirehoseError, match=r"have no user_emb\.emb_projs\.0"):
        adopt(Personal(plan_of(without, None), 50), without)
    with pytest.raises(FirehoseError, match="d_user = 4 must be d_model = 16; make them equal"):
        Personal(ModelPlan(shape=TINY, d_user=4, project_users=False), 50)


def _awake_and_wide(model: Personal) -> Personal:
    """Residual MLPs that say something, and users whose vectors are as wide as hidden ones."""
    torch.manual_seed(0)
    for mlp in model.mlps.values():
        torch.nn.init.normal_(mlp.norm.weight)  # type: ignore[union-attr, arg-type]
    model.users.enter(np.arange(5), torch.randn(5, model.plan.d_user))
    return model


def test_one_residual_mlp_may_stand_before_or_after_the_layers() -> None:
    _, _, _, weights = load("adapters")
    single = {key: value for key, value in weights.items() if not key.startswith("mtl_layers.1")}
    assert plan_of(single, "decoder").architecture == "decoder"
    with pytest.raises(FirehoseError, match="say which with --architecture encoder or decoder"):
        plan_of(single, None)


class Malicious:
    """Would make a file, if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_bad_files_are_refused_and_never_run(tmp_path: Path, words: Path) -> None:
    _, _, _, weights = load("adapters")
    vocabulary = Vocabulary.load(words)
    path = tmp_path / "model.pt"
    torch.save({"word_emb": Malicious(tmp_path / "touched")}, path)
    with pytest.raises(FirehoseError, match="nothing of it was run"):
        from_release(path, vocabulary)
    assert not (tmp_path / "touched").exists()
    torch.save(weights, path)
    whole = path.read_bytes()
    with pytest.raises(FirehoseError, match=r"have 50 pieces and this model \d+"):
        from_release(path, vocabulary)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FirehoseError, match="or it is cut"):
        from_release(path, vocabulary)
    torch.save({"r_w_bias": torch.zeros(2, 2)}, path)
    with pytest.raises(FirehoseError, match="have no word_emb"):
        from_release(path, vocabulary)
    torch.save(weights | {"r_w_bias": torch.full((4, 8), float("nan"))}, path)
    with pytest.raises(FirehoseError, match="r_w_bias holds values that are not finite"):
        from_release(path, vocabulary)
    torch.save(resized(weights, vocabulary.size), path)
    with pytest.raises(FirehoseError, match="has 7 users, and there are 1 names"):
        from_release(path, vocabulary, names=["a"])
    with pytest.raises(FirehoseError, match="two users 'a'"):
        from_release(path, vocabulary, names=[*"abcdef", "a"])
    with pytest.raises(FirehoseError, match="name it with --vocab-model"):
        convert(path, tmp_path / "model")
    assert not (tmp_path / "model").exists()
