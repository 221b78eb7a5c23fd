"""Named tensors in safetensors files, which, unlike pickles, cannot run code when they are read."""

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from firehose.errors import FirehoseError
from firehose.storage.files import write_through, writing


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a file, and bring its content to disk.

    It does not appear whole, so ``path`` must be in a workspace.
    """
    try:
        content = safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()})
    except safetensors.SafetensorError as error:
        raise FirehoseError(f"Cannot write {path}: {error}.") from None
    with writing(path):
        write_through(path, content)


def read(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file; raises an error where it is missing, cut or damaged."""
    try:
        return safetensors.torch.load(path.read_bytes())
    except OSError as error:
        raise FirehoseError(f"Cannot read {path}: {error.strerror}.") from None
    except safetensors.SafetensorError as error:
        raise FirehoseError(
            f"{path} is cut or damaged ({error}); copy it again from where it was made."
        ) from None


def refuse_misfits(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path) -> None:
    """Raise an error where names or shapes differ from ``wanted``, or a value is not finite."""
    for name, want in wanted.items():
        if name not in found:
            raise FirehoseError(f"{path} has no {name}: it is of another architecture.")
        have = found[name]
        if have.shape != want.shape:
            raise FirehoseError(
                f"{path} is of another size: {name} is {_size(have)} there, "
                f"and {_size(want)} is needed."
            )
    for name in found:
        if name not in wanted:
            raise FirehoseError(f"{path} has an unexpected {name}: it is of another architecture.")
    refuse_not_finite(found, path)


def refuse_not_finite(found: Mapping[str, Tensor], path: Path) -> None:
    """Raise an error where a tensor has a value that is not a finite number."""
    for name, have in found.items():
        if have.is_floating_point() and not bool(torch.isfinite(have).all()):
            raise FirehoseError(
                f"{path} is unusable: {name} holds values that are not finite numbers; "
                "take an earlier checkpoint, or train again with a lower rate."
            )


def _size(tensor: Tensor) -> str:
    return " × ".join(f"{n:,}" for n in tensor.shape)
