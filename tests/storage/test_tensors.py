"""Tensors in files: what is written can be read by anybody's safetensors, whole or in blocks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray

from firehose.errors import FirehoseError
from firehose.storage import tensors


class Halves(tensors.Blocks):
    """An array in two blocks."""

    def __init__(self, whole: NDArray[Any]) -> None:
        super().__init__(whole.shape, whole.dtype)
        self.whole = whole

    def __iter__(self) -> Iterator[NDArray[Any]]:
        middle = len(self.whole) // 2
        yield self.whole[:middle]
        yield self.whole[middle:]


@pytest.mark.parametrize("dtype", tensors.NAMES)
def test_every_type_is_read_as_it_was_written(tmp_path: Path, dtype: torch.dtype) -> None:
    matrix = torch.arange(12).reshape(3, 4).to(dtype)
    written = {"matrix": matrix, "number": matrix[1, 1], "none": matrix[:0], "view": matrix.T}
    written |= {"one": matrix[0, 1].expand(1, 1), "strange": matrix[0, 1].expand(0)}
    tensors.write(tmp_path / "file", written)
    for found in (tensors.read(tmp_path / "file"), safetensors.torch.load_file(tmp_path / "file")):
        assert found.keys() == written.keys()
        for name, value in written.items():
            assert found[name].dtype == dtype and found[name].shape == value.shape
            assert found[name].tolist() == value.tolist()


def test_blocks_are_written_one_after_another(tmp_path: Path) -> None:
    whole = np.arange(42, dtype=np.int32).reshape(7, 3, 2)
    tensors.write(tmp_path / "file", {"a": torch.ones(3), "blocks": Halves(whole)})
    assert tensors.read(tmp_path / "file")["blocks"].numpy().tolist() == whole.tolist()
    assert np.asarray(Halves(whole)).tolist() == whole.tolist()


def test_a_type_that_no_file_has_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FirehoseError, match=r"Cannot write .*: z is of the type torch.complex64"):
        tensors.write(tmp_path / "file", {"z": torch.zeros(2, dtype=torch.complex64)})
