"""Against numbers made with the authors' own model code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.errors import FirehoseError
from firehose.models.attention import Grid
from firehose.models.personal import ModelPlan, Personal, predictions
from firehose.models.published import adopt, release
from firehose.models.transformer_xl import Shape

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
    inputs, _, lengths = predictions(batch)
    grid = Grid(lengths)
    with torch.no_grad():
        adapt = model._adapter(model.users.take(batch.user, learn=False), grid)
        hidden, _ = model.shared(inputs, grid, adapt)
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
