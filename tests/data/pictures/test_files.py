"""The original files: read as they are defined, refused when they are not what they claim."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from firehose.data.pictures import files
from firehose.data.pictures.files import coloured, idx, read
from firehose.errors import FirehoseError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([7, 1], np.uint8)


def idx_bytes(values: np.ndarray) -> bytes:
    head = struct.pack(f">2xBB{values.ndim}I", 8, values.ndim, *values.shape)
    return head + values.tobytes()


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four tiny files with the names of MNIST's, and checksums to match."""
    contents = {
        "train-images-idx3-ubyte": idx_bytes(IMAGES),
        "train-labels-idx1-ubyte": idx_bytes(LABELS),
        "t10k-images-idx3-ubyte": idx_bytes(IMAGES[::-1]),
        "t10k-labels-idx1-ubyte": idx_bytes(LABELS[::-1]),
    }
    (tmp_path / "raw").mkdir()
    for name, content in contents.items():
        (tmp_path / "raw" / name).write_bytes(content)
    sums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setitem(files.SUMS, "mnist", sums)
    return tmp_path


def test_idx_files_are_read(mnist: Path) -> None:
    data = read("mnist", mnist)
    assert data.train.pixels.tolist() == IMAGES.reshape(2, 12).tolist()
    assert data.train.classes.tolist() == [7, 1]
    assert data.test.classes.tolist() == [1, 7]


def test_gzipped_files_are_read_too(mnist: Path) -> None:
    for path in sorted((mnist / "raw").iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert read("mnist", mnist).train.classes.tolist() == [7, 1]


def test_files_of_the_same_name_in_other_folders_do_no_harm(mnist: Path) -> None:
    (mnist / "Fashion").mkdir()  # comes first
    for path in sorted((mnist / "raw").iterdir()):
        (mnist / "Fashion" / path.name).write_bytes(b"of another data set")
    assert read("mnist", mnist).train.classes.tolist() == [7, 1]


@pytest.mark.parametrize("damage", ["cut", "changed", "swapped"])
def test_what_is_not_the_published_file_is_refused(mnist: Path, damage: str) -> None:
    images, labels = (
        mnist / "raw" / f"train-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")
    )
    whole = images.read_bytes()
    if damage == "cut":
        images.write_bytes(whole[:-1])
    elif damage == "changed":
        images.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    else:
        images.write_bytes(labels.read_bytes())
    with pytest.raises(
        FirehoseError, match="is not the published train-images-idx3-ubyte: its MD5"
    ):
        read("mnist", mnist)


def test_a_damaged_archive_is_refused(mnist: Path) -> None:
    path = mnist / "raw" / "train-images-idx3-ubyte"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(packed[:-6])
    with pytest.raises(FirehoseError, match="cannot be unpacked; get it again"):
        read("mnist", mnist)


def test_what_is_missing_is_told(mnist: Path, tmp_path: Path) -> None:
    (mnist / "raw" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(FirehoseError, match="has no train-labels-idx1-ubyte of mnist; `firehose"):
        read("mnist", mnist)
    with pytest.raises(FirehoseError, match="does not exist; `firehose classic fetch"):
        read("mnist", tmp_path / "none")
    with pytest.raises(FirehoseError, match="did you mean 'mnist'"):
        read("mnits", mnist)


def test_another_data_set_s_file_is_not_called_wrong(mnist: Path) -> None:
    with pytest.raises(FirehoseError, match="has no train-images-idx3-ubyte of fashion-mnist"):
        read("fashion-mnist", mnist)


def test_folders_may_be_links_and_have_any_name(mnist: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/train-images-idx3-ubyte").mkdir(parents=True)
    (mnist / "raw").rename(tmp_path / "elsewhere/raw")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert read("mnist", tmp_path / "data").train.classes.tolist() == [7, 1]
    with pytest.raises(FirehoseError, match="is not a folder; `firehose classic fetch"):
        read("mnist", tmp_path / "elsewhere/raw/train-labels-idx1-ubyte")


def test_two_data_sets_with_the_same_names_lie_side_by_side(mnist: Path) -> None:
    other = mnist / "fashion-mnist"
    other.mkdir()
    for path in (mnist / "raw").iterdir():
        (other / path.name).write_bytes(path.read_bytes() + b"!")
    (mnist / "raw").rename(mnist / "mnist")
    assert read("mnist", mnist).train.classes.tolist() == [7, 1]


def test_coloured_batches_are_a_class_and_its_pixels() -> None:
    rows = np.arange(2 * 3073, dtype=np.int64).reshape(2, 3073) % 251
    found = coloured(rows.astype(np.uint8).tobytes())
    assert found.classes.tolist() == rows[:, 0].tolist()
    assert found.pixels.tolist() == rows[:, 1:].tolist()


def test_what_is_not_idx_is_refused() -> None:
    with pytest.raises(FirehoseError, match="not an idx file"):
        idx(b"\1\2\3\4\5\6\7\x08")
