"""The original files: read as they are defined, refused when they are not what they claim."""

import gzip
from pathlib import Path

import pytest

from firehose.data.pictures.files import find_contents
from firehose.data.pictures.mnist import read_mnist
from firehose.errors import FirehoseError
from small_pictures import write_mnist


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four tiny files with the names of MNIST's, and checksums to match."""
    return write_mnist(tmp_path, monkeypatch)


def classes(folder: Path) -> list[int]:
    """The classes of the training pictures."""
    found: list[int] = read_mnist(find_contents("mnist", folder)).train.classes.tolist()
    return found


def test_gzipped_files_are_read_too(mnist: Path) -> None:
    for path in sorted((mnist / "raw").iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert classes(mnist) == [7, 1]


def test_files_of_the_same_name_in_other_folders_do_no_harm(mnist: Path) -> None:
    (mnist / "Fashion").mkdir()  # comes first
    for path in sorted((mnist / "raw").iterdir()):
        (mnist / "Fashion" / path.name).write_bytes(b"of another data set")
    assert classes(mnist) == [7, 1]


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
        find_contents("mnist", mnist)


def test_a_damaged_archive_is_refused(mnist: Path) -> None:
    path = mnist / "raw" / "train-images-idx3-ubyte"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(packed[:-6])
    with pytest.raises(FirehoseError, match="cannot be unpacked; get it again"):
        find_contents("mnist", mnist)


def test_what_is_missing_is_told(mnist: Path, tmp_path: Path) -> None:
    (mnist / "raw" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(FirehoseError, match="has no train-labels-idx1-ubyte of mnist; `firehose"):
        find_contents("mnist", mnist)
    with pytest.raises(FirehoseError, match="does not exist; `firehose classic fetch"):
        find_contents("mnist", tmp_path / "none")
    with pytest.raises(FirehoseError, match="did you mean 'mnist'"):
        find_contents("mnits", mnist)


def test_another_data_set_s_file_is_not_called_wrong(mnist: Path) -> None:
    with pytest.raises(FirehoseError, match="has no train-images-idx3-ubyte of fashion-mnist"):
        find_contents("fashion-mnist", mnist)


def test_folders_may_be_links_and_have_any_name(mnist: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/train-images-idx3-ubyte").mkdir(parents=True)
    (mnist / "raw").rename(tmp_path / "elsewhere/raw")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert classes(tmp_path / "data") == [7, 1]
    with pytest.raises(FirehoseError, match="is not a folder; `firehose classic fetch"):
        find_contents("mnist", tmp_path / "elsewhere/raw/train-labels-idx1-ubyte")


def test_two_data_sets_with_the_same_names_lie_side_by_side(mnist: Path) -> None:
    other = mnist / "fashion-mnist"
    other.mkdir()
    for path in (mnist / "raw").iterdir():
        (other / path.name).write_bytes(path.read_bytes() + b"!")
    (mnist / "raw").rename(mnist / "mnist")
    assert classes(mnist) == [7, 1]
