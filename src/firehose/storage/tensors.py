"""Named tensors in one safetensors file: written whole, read with care, never pickled."""

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from firehose.errors import FirehoseError


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write to ``path``, inside a folder that is not yet anybody's result."""
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, path)


def read(path: Path) -> dict[str, Tensor]:
    """Everything in a file; a file that is missing or cut is refused with a sentence."""
    try:
        return safetensors.torch.load(path.read_bytes())
    except OSError as error:
        raise FirehoseError(f"Cannot read {path}: {error.strerror}.") from None
    except safetensors.SafetensorError as error:
        raise FirehoseError(
            f"{path} is cut or damaged ({error}); take it from where it was made again."
        ) from None


def refuse_misfits(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors of other names or shapes than those wanted, or with a value not finite."""
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
    """Refuse tensors with a value that is not a number."""
    for name, have in found.items():
        if have.is_floating_point() and not bool(torch.isfinite(have).all()):
            raise FirehoseError(
                f"{path} is unusable: {name} holds values that are not finite numbers; "
                "take an earlier checkpoint, or train again with a lower rate."
            )


def _size(tensor: Tensor) -> str:
    return " × ".join(f"{n:,}" for n in tensor.shape)
