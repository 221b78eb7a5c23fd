"""Parts of the user's own: a class in a file outside the package, named FILE.py:Class."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import zlib
from pathlib import Path
from typing import Any

from firehose.errors import FirehoseError

USERS = "firehose_user_"  # begins the names of modules that are files of the user's


def load_class(place: str, what: str) -> type[Any]:
    """The class that ``FILE.py:Class`` or ``module:Class`` names; ``what`` it is meant to be."""
    module_name, _, class_name = place.rpartition(":")
    module = _load(module_name, what) if module_name.endswith(".py") else _import(module_name)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise FirehoseError(f"{module_name} has no {what} {class_name!r}; name a class in it.")
    return found


def checksum(place: str, what: str) -> str:
    """Of the file that a class of the user's is named in: what it does may have changed."""
    found, (file, _, _) = load_class(place, what), place.rpartition(":")
    path = Path(file if file.endswith(".py") else inspect.getfile(found))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, TypeError, ValueError):  # or no name of a module at all
        raise FirehoseError(f"There is no module {name!r}.") from None


def _load(file: str, what: str) -> Any:
    """The module in a file of the user's."""
    path = Path(file)
    if not path.is_file():
        raise FirehoseError(f"{file} does not exist; a {what} of your own is FILE.py:Class.")
    name = f"{USERS}{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise FirehoseError(f"{file} cannot be loaded: {brief(error)}.") from error
    return module


def brief(error: Exception) -> str:
    """Kind and first line of somebody else's error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].rstrip('.')}"
