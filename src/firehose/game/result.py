"""``result.json``: what came of a run, sealed, with the checksums of the files it was made of."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firehose.errors import FirehoseError
from firehose.storage.files import write_whole
from firehose.storage.seals import File, sealed, unsealed

RESULT = "result.json"
Files = Mapping[str, Sequence[File]]  # the seals of a file, any of which will do, by its name


def write_result(folder: Path, values: dict[str, Any], files: Files | None = None) -> None:
    """Write ``result.json``, the last file of a run.

    ``files`` tells which files belong to it; without, they are the log and the costs of the run
    as they are now, which must be on disk.
    """
    if files is None:
        files = {path.name: [File.of(path)] for path in _columns(folder)}
    dumped = {name: [seal.model_dump() for seal in seals] for name, seals in files.items()}
    write_whole(folder / RESULT, sealed(values | {"files": dumped}))


def read_result(folder: Path) -> dict[str, Any]:
    """The values of ``result.json``; raises FirehoseError where the run is not over."""
    return _read(folder)[0]


def read_files(folder: Path) -> Files:
    """The files that belong to the result of a run that is over, and the seals they may have."""
    return _read(folder)[1]


def refuse_altered(folder: Path, name: str) -> None:
    """Raise an error where a file that belongs to a result is not as it was when that was made."""
    seals, path = read_files(folder).get(name, ()), folder / name
    if not path.is_file():
        how = "is missing"
    elif not _is_as_sealed(path, seals):
        how = "does not match its checksum"
    else:
        return
    raise FirehoseError(
        f"{folder} is damaged: {name} {how}; `firehose resume {folder}` computes it again."
    )


def is_over(folder: Path, contents: bool = False) -> bool:
    """Whether a run has a whole result; with ``contents``, also whether its files are whole."""
    try:
        for name in read_files(folder):
            if contents:
                refuse_altered(folder, name)
    except FirehoseError:
        return False
    return True


def _read(folder: Path) -> tuple[dict[str, Any], Files]:
    file = folder / RESULT
    if not file.is_file():
        raise FirehoseError(f"{folder} is not over; go on with `firehose resume {folder}`.")
    values = unsealed(file.read_bytes())
    if values is None or "files" not in values:
        raise FirehoseError(f"{file} is damaged; `firehose resume {folder}` computes it again.")
    files = values.pop("files")
    return values, {name: [File(**seal) for seal in seals] for name, seals in files.items()}


def _columns(folder: Path) -> list[Path]:
    """The log of a game, and the files that say what posts cost."""
    log = folder / "rounds.jsonl"
    return [*([log] if log.is_file() else []), *sorted(folder.glob("*.f32"))]


def _is_as_sealed(path: Path, seals: Sequence[File]) -> bool:
    return path.stat().st_size in [seal.bytes for seal in seals] and File.of(path) in seals
