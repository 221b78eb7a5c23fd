"""What files mean, and whether a command did the right thing with them or said why not."""

import io
import json
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from firehose.errors import FirehoseError

LEFTOVER = re.compile(r"\..+\.(partial-)?[0-9a-f]{8}")  # of a write that was not finished
NOT_COMPARED = {"checkpoints", "progress.json"}  # they tell how far it is, not what came of it

Meaning = dict[str, Any]  # of files, by path


class Wrong(Exception):  # noqa: N818 (it is a verdict)
    """A wrong number, a traceback, or no way on."""


def meaning(root: Path) -> Meaning:
    """What all files below a folder say, to the bit, but for how long it took, and where."""
    paths = [path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file()]
    return {
        str(path): _meaning_of(root / path)
        for path in paths
        if not NOT_COMPARED & set(path.parts) and not any(map(LEFTOVER.fullmatch, path.parts))
    }


def leftovers(root: Path) -> list[str]:
    """The files and folders that unfinished writes have left behind."""
    found = [path for path in root.rglob(".*") if LEFTOVER.fullmatch(path.name)]
    return [str(path.relative_to(root)) for path in found]


def _meaning_of(file: Path) -> Any:
    content = file.read_bytes()
    match file.suffix:
        case ".json":
            found = json.loads(content)
            if file.name == "result.json":  # its checksums are of seconds, too
                found = {key: found[key] for key in found if key not in ("seal", "files")}
            return _timeless(found)
        case ".jsonl":
            return [_timeless(json.loads(line)) for line in content.splitlines()]
        case ".parquet":
            table = pq.read_table(io.BytesIO(content))
            return table.drop([n for n in table.column_names if "seconds" in n]).to_pylist()
    return content


def _timeless(value: Any) -> Any:
    """Values without the seconds that it took, and without the place where it was done."""
    if isinstance(value, list):
        return [_timeless(each) for each in value]
    if isinstance(value, dict):
        kept = [key for key in value if "seconds" not in key and key != "absolute"]
        return {key: _timeless(value[key]) for key in kept}
    return value


def told(action: Callable[[], object]) -> str:
    """Do something; returns the sentence that it was refused with, or nothing if it was done."""
    try:
        action()
    except FirehoseError as error:
        return str(error) or "no sentence"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        raise Wrong(f"a traceback: {type(error).__name__} ({error}) in {place}") from error
    return ""


def refuse_other(root: Path, *wanted: Meaning) -> Meaning:
    """Raise an error where files mean anything else than one of several truths; returns which."""
    try:
        found = meaning(root)
    except ValueError as error:
        raise Wrong(f"a file that cannot be read: {error}") from error
    for each in wanted:
        if found == each:
            return each
    raise Wrong(f"other than it should be: {', '.join(differences(found, wanted[-1]))}")


def differences(found: Meaning, wanted: Meaning) -> list[str]:
    """The files that are missing, too many, or mean something else."""
    names = sorted(found.keys() | wanted.keys())
    return [
        name
        for name in names
        if name not in found or name not in wanted or found[name] != wanted[name]
    ]
