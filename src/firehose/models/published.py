"""Weights of the authors' release ↔ ours.

The release keeps a padding row 0 in the word embedding and in the output layer, so its row
i + 1 is our piece i; and it stores the tied matrix twice.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from firehose.errors import FirehoseError
from firehose.models.personal import Personal
from firehose.models.transformer_xl import frequencies

SHARED = {
    "queries_keys_values.weight": "dec_attn.qkv_net.weight",
    "positions.weight": "dec_attn.r_net.weight",
    "out.weight": "dec_attn.o_net.weight",
    "norm.weight": "dec_attn.layer_norm.weight",
    "norm.bias": "dec_attn.layer_norm.bias",
}
FEED_FORWARD = {
    "rise.weight": "pos_ff.CoreNet.0.weight",
    "rise.bias": "pos_ff.CoreNet.0.bias",
    "fall.weight": "pos_ff.CoreNet.3.weight",
    "fall.bias": "pos_ff.CoreNet.3.bias",
    "norm.weight": "pos_ff.layer_norm.weight",
    "norm.bias": "pos_ff.layer_norm.bias",
}
MLP = {
    "inward.weight": "0.weight",
    "inward.bias": "0.bias",
    "outward.weight": "3.weight",
    "outward.bias": "3.bias",
    "norm.weight": "5.weight",
    "norm.bias": "5.bias",
}


def names(model: Personal) -> dict[str, str]:
    """Our name of each weight that both sides store alike, and the release's."""
    pairs = {}
    for layer in range(model.plan.shape.layers):
        for ours, theirs in SHARED.items():
            pairs[f"shared.attention.{layer}.{ours}"] = f"layers.{layer}.{theirs}"
        for ours, theirs in FEED_FORWARD.items():
            pairs[f"shared.feed_forward.{layer}.{ours}"] = f"layers.{layer}.{theirs}"
    for number, place in enumerate(model.mlps):
        for ours, theirs in MLP.items():
            pairs[f"mlps.{place}.{ours}"] = f"mtl_layers.{number}.{theirs}"
    if model.is_personal:
        pairs["projection.weight"] = "user_emb.emb_projs.0"
    return pairs


@torch.no_grad()
def adopt(model: Personal, released: Mapping[str, Tensor]) -> None:
    """Load released weights, all or none; every user row becomes a user of that number."""
    own = model.state_dict()
    matrix = released.get("word_emb.emb_layers.0.weight")
    if matrix is None or len(matrix) != model.shared.pieces + 1:
        rows = "no" if matrix is None else f"{len(matrix) - 1:,}"
        raise FirehoseError(
            f"The released weights have {rows} pieces and this model {model.shared.pieces:,}; "
            "give it the vocabulary of the release."
        )
    for ours, theirs in names(model).items():
        if theirs not in released:
            raise FirehoseError(f"The released weights have no {theirs}: another architecture?")
        if released[theirs].shape != own[ours].shape:
            raise FirehoseError(
                f"{theirs} is {tuple(released[theirs].shape)} in the released weights and "
                f"{tuple(own[ours].shape)} in this model; give it the sizes of the release."
            )
    for ours, theirs in names(model).items():
        own[ours].copy_(released[theirs])
    own["shared.embedding"].copy_(matrix[1:])
    own["shared.output_bias"].copy_(released["out_layer.bias"][1:])
    own["shared.biases"].copy_(torch.stack([released["r_w_bias"], released["r_r_bias"]]))
    if model.is_personal:
        vectors = released["user_emb.emb_layers.0.weight"]
        taken = model.users.take(np.arange(len(vectors)), learn=True)
        model.users.put(taken.rows, vectors.float())


@torch.no_grad()
def release(model: Personal) -> dict[str, Tensor]:
    """The weights under their released names; the padding row is zeros."""
    own = model.state_dict()
    released = {theirs: own[ours].clone() for ours, theirs in names(model).items()}
    released["r_w_bias"], released["r_r_bias"] = own["shared.biases"].clone()
    for name in ("word_emb.emb_layers.0.weight", "out_layer.weight"):
        released[name] = functional.pad(own["shared.embedding"], (0, 0, 1, 0))
    released["out_layer.bias"] = functional.pad(own["shared.output_bias"], (1, 0))
    d_model = model.plan.shape.d_model
    released["pos_emb.inv_freq"] = frequencies(d_model)
    if model.is_personal:
        numbers = np.arange(int(model.users.user_of[: len(model.users)].max(initial=-1)) + 1)
        taken = model.users.take(numbers, learn=False)
        released["user_emb.emb_layers.0.weight"] = taken.vectors[taken.which].clone()
    return released
