"""Named tensors in safetensors files, which, unlike pickles, cannot run code when they are read."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from torch import Tensor

from firehose.errors import FirehoseError
from firehose.storage.files import write_through, writing

NAMES = {  # of types, in files
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL",
}  # fmt: skip


class Blocks:
    """An array that is not in one place: it is written, and can be read, block by block."""

    mark = "array"  # what it becomes when it is read again: an array, or a tensor

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self.dtype = shape, dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the whole array."""
        return self._shape

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """The rows in their order, some at a time."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it."""
        return np.concatenate([np.empty((0, *self.shape[1:]), self.dtype), *self]).astype(
            dtype or self.dtype
        )


def write(path: Path, tensors: Mapping[str, Tensor | Blocks]) -> None:
    """Write tensors to a file, and bring its content to disk.

    It does not appear whole, so ``path`` must be in a workspace. Beside what is there already, it
    takes memory for a block at most.
    """
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        like = torch.from_numpy(np.empty(0, tensor.dtype)) if isinstance(tensor, Blocks) else tensor
        if like.dtype not in NAMES:
            raise FirehoseError(f"Cannot write {path}: {name} is of the type {like.dtype}.")
        shape = list(tensor.shape)
        start, end = end, end + int(np.prod(shape, dtype=np.int64)) * like.element_size()
        header[name] = {"dtype": NAMES[like.dtype], "shape": shape, "data_offsets": [start, end]}
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)
    with writing(path):
        write_through(path, _content(told, tensors))


def _content(header: bytes, tensors: Mapping[str, Tensor | Blocks]) -> Iterator[Any]:
    """What a file consists of, one piece after another."""
    yield len(header).to_bytes(8, "little") + header
    for tensor in tensors.values():
        if isinstance(tensor, Blocks):
            yield from map(np.ascontiguousarray, tensor)
        else:
            flat = tensor.detach().cpu().contiguous()
            # Of one number or none, a stride may be anything, and 0 cannot be viewed as bytes.
            yield flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy()


def read(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file; raises an error where it is missing, cut or damaged.

    What is not looked at stays on disk: a process may take a share of a tensor.
    """
    try:
        path.open("rb").close()  # for the system's own words, where it cannot be read
        with safetensors.safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
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
