"""Conversion between weights of the authors' release and ours.

The release keeps a padding row 0 in the word embedding and in the output layer, so its row
i + 1 is our piece i; and it stores the tied matrix twice.
"""

import io
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from firehose.data.encoder import Encoder
from firehose.data.registry import UserRegistry
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError
from firehose.models.personal import Architecture, ModelPlan, Personal
from firehose.models.store import Trained, load, save
from firehose.models.transformer_xl import Shape, frequencies
from firehose.storage.files import write_whole
from firehose.storage.tensors import refuse_not_finite
from firehose.storage.workspace import refuse_existing

UP = "layers.0.pos_ff.CoreNet.0.weight"
WORDS, VECTORS = "word_emb.emb_layers.0.weight", "user_emb.emb_layers.0.weight"
PROJECTION = "user_emb.emb_projs.0"  # where user vectors are of another size than hidden ones

# The release's names of our modules, those of a layer after its number.
ATTENTION = {
    "queries_keys_values": "dec_attn.qkv_net", "positions": "dec_attn.r_net",
    "out": "dec_attn.o_net", "norm": "dec_attn.layer_norm",
}  # fmt: skip
FEED_FORWARD = {"up": "pos_ff.CoreNet.0", "down": "pos_ff.CoreNet.3", "norm": "pos_ff.layer_norm"}
MLP = {"up": "0", "down": "3", "norm": "5"}


def names(model: Personal) -> dict[str, str]:
    """The release's name of each weight that both sides store alike, by our name."""
    modules = {}
    for layer in range(model.plan.shape.layers):
        for ours, theirs in ATTENTION.items():
            modules[f"shared.attention.{layer}.{ours}"] = f"layers.{layer}.{theirs}"
        for ours, theirs in FEED_FORWARD.items():
            modules[f"shared.feed_forward.{layer}.{ours}"] = f"layers.{layer}.{theirs}"
    for number, place in enumerate(model.mlps):
        for ours, theirs in MLP.items():
            modules[f"mlps.{place}.{ours}"] = f"mtl_layers.{number}.{theirs}"
    weights = (name.rpartition(".") for name in model.state_dict())
    pairs = {f"{m}.{kind}": f"{modules[m]}.{kind}" for m, _, kind in weights if m in modules}
    if model.is_personal and model.plan.project_users:
        pairs["projection.weight"] = PROJECTION
    return pairs


@torch.no_grad()
def adopt(model: Personal, released: Mapping[str, Tensor]) -> None:
    """Load released weights, all or none; row i of the user embedding becomes user i."""
    own = model.state_dict()
    matrix = released.get(WORDS)
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
        vectors = released[VECTORS]
        taken = model.users.take(np.arange(len(vectors)), learn=True)
        model.users.put(taken.rows, vectors.float())


@torch.no_grad()
def release(model: Personal) -> dict[str, Tensor]:
    """The weights under their names in the release; padding rows are zeros."""
    own = model.state_dict()
    released = {theirs: own[ours].clone() for ours, theirs in names(model).items()}
    released["r_w_bias"], released["r_r_bias"] = own["shared.biases"].clone()
    for name in (WORDS, "out_layer.weight"):
        released[name] = functional.pad(own["shared.embedding"], (0, 0, 1, 0))
    released["out_layer.bias"] = functional.pad(own["shared.output_bias"], (1, 0))
    d_model = model.plan.shape.d_model
    released["pos_emb.inv_freq"] = frequencies(d_model)
    if model.is_personal:
        numbers = np.arange(int(model.users.numbers().max(initial=-1)) + 1)
        taken = model.users.take(numbers, learn=False)
        released[VECTORS] = taken.vectors[taken.which].clone()
        if PROJECTION in released and model.plan.d_user == d_model:
            # The authors' code projects vectors of another size only: these are sent projected.
            released[VECTORS] @= released.pop(PROJECTION).T.to(released[VECTORS])
    return released


def read(path: Path) -> dict[str, Tensor]:
    """Read the state dict in a ``.pt`` file; nothing but tensors is ever unpickled."""
    content = _content(path)
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError, KeyError):
        raise FirehoseError(
            f"{path} is not a state dict of tensors, or it is cut; nothing of it was run."
        ) from None
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        raise FirehoseError(
            f"{path} is not a state dict: save the model's state_dict() alone with torch.save."
        )
    released = {str(name).removeprefix("module."): value for name, value in found.items()}
    refuse_not_finite(released, path)
    return released


def _content(path: str | Path) -> bytes:
    """The content of a file; raises an error where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FirehoseError(f"Cannot read {path}: {error.strerror}.") from None


def _names(path: str | Path) -> list[str]:
    """The lines of a file of names."""
    try:
        return _content(path).decode().splitlines()
    except UnicodeDecodeError:
        raise FirehoseError(f"{path} is not a text in UTF-8; give one name on each line.") from None


def plan_of(released: Mapping[str, Tensor], architecture: Architecture | None) -> ModelPlan:
    """The plan of the model that released weights are of.

    One residual MLP may stand before or after the layers: then ``architecture`` must say it.
    """
    for name in (WORDS, "r_w_bias", UP):
        if name not in released:
            raise FirehoseError(f"The released weights have no {name}: another kind of model.")
    places = [re.match(r"(layers|mtl_layers)\.(\d+)\.", name) for name in released]
    layers = 1 + max(int(m[2]) for m in places if m and m[1] == "layers")
    mlps = 1 + max((int(m[2]) for m in places if m and m[1] == "mtl_layers"), default=-1)
    if architecture is None:
        if mlps == 1:
            raise FirehoseError(
                "The released weights have one residual MLP, before or after the layers: "
                "say which with --architecture encoder or decoder."
            )
        architecture = "adapters" if mlps else "agnostic"
    heads, d_head = released["r_w_bias"].shape
    d_model, d_inner = released[WORDS].shape[1], len(released[UP])
    shape = Shape(layers=layers, d_model=d_model, heads=heads, d_head=d_head, d_inner=d_inner)
    if not mlps:
        return ModelPlan(architecture=architecture, shape=shape)
    d_user, mlp = released[VECTORS].shape[1], len(released["mtl_layers.0.0.weight"])
    projects = PROJECTION in released or d_user != d_model
    return ModelPlan(
        architecture=architecture, shape=shape, d_user=d_user, project_users=projects, mlp=mlp
    )


def from_release(
    path: str | Path,
    vocabulary: Vocabulary,
    architecture: Architecture | None = None,
    names: Sequence[str] | None = None,
) -> Trained:
    """Make a model from the weights of a ``.pt`` file; ``names`` are those of its users, by row."""
    released = read(Path(path))
    model = Personal(plan_of(released, architecture), vocabulary.size)
    adopt(model, released)
    users = len(model.users)
    if names is not None and len(names) != users:
        raise FirehoseError(f"{path} has {users:,} users, and there are {len(names):,} names.")
    origin = {"kind": "published", "file": Path(path).name}
    registry = UserRegistry(names or map(str, range(users)))
    return Trained(model.eval(), Encoder(vocabulary), registry, origin)


def convert(
    source: str | Path,
    out: str | Path,
    vocabulary: str | Path | None = None,
    architecture: Architecture | None = None,
    users: str | Path | None = None,
    replace: bool = False,
) -> None:
    """Turn a model's folder into a ``.pt`` file for the authors' code, or such a file into one."""
    if Path(source).is_dir():
        refuse_existing(Path(out), replace)
        buffer = io.BytesIO()
        torch.save(release(load(source).model), buffer)
        write_whole(Path(out), buffer.getvalue())
        return
    if vocabulary is None:
        raise FirehoseError(f"{source} has no vocabulary of its own; name it with --vocab-model.")
    names = None if users is None else _names(users)
    save(from_release(source, Vocabulary.load(vocabulary), architecture, names), out, replace)
