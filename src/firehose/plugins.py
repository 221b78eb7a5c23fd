"""Parts that are chosen by name: found, configured, made; a user's own among them.

A learner, an optimizer, a buffer, an update rule and a source are plug-ins, all alike: a class with
typed settings, known by its kind. The kind is the name of one that comes with Firehose, or
``FILE.py:Class`` (or ``module:Class``) for one of the user's own.

Code that the user names, on the command line or in Python, is run, and the checksum of its file is
remembered as this user's. Code that only a file names (a recipe, the folder of a run) is run if it
is remembered; otherwise the user is asked to allow it.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import zlib
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from firehose.config import LEFTOVER, FromFile, Section, merge, refuse_unknown
from firehose.errors import FirehoseError
from firehose.storage.remembered import is_remembered, remember

USERS = "firehose_user_"  # begins the names of modules that are files of the user's
_imported: set[str] = set()  # modules and packages of the user's that were named

Part = TypeVar("Part")


class Choice(Section):
    """The settings of a plug-in: its kind, and whatever the kind adds."""

    kind: str = ""


class Plugin:
    """A part of a game that is chosen by its kind, and may keep state between rounds.

    ``Settings`` are the typed settings of the kind; what they do not name is refused.
    """

    Settings: ClassVar[type[Choice]] = Choice

    def __init__(self, settings: Any, *parts: Any) -> None:
        """Create one from its settings and the parts that plug-ins of its sort are given."""

    @classmethod
    def make(cls, settings: Any, *parts: Any) -> Self:
        """Create one, or another plug-in that these settings are better served by."""
        return cls(settings, *parts)

    def state(self) -> dict[str, Any]:
        """What it keeps between rounds: arrays, tensors, plain values, or tables of these."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""


class Registry(Generic[Part]):
    """The kinds of one sort of plug-in: those that come with Firehose, and the user's own."""

    def __init__(
        self, what: str, base: type[Part], built_in: Mapping[str, str], default: str = ""
    ) -> None:
        self.what = what  # "learner", for sentences
        self.base = base
        self.built_in = dict(built_in)  # kind: module:Class
        self.default = default

    def find(self, kind: str) -> type[Part]:
        """The class of a kind; raises FirehoseError if there is none."""
        place = self.built_in.get(kind, kind)
        if ":" not in place:
            own = "One of your own is FILE.py:Class."
            refuse_unknown(self.what, kind, list(self.built_in), own)
        found = load_class(place, self.what)
        if not issubclass(found, self.base):
            home = f"{self.base.__module__}.{self.base.__name__}"
            raise FirehoseError(f"{kind} is no {self.what}: let it inherit from {home}.")
        return found

    def settings(self, values: Any) -> Any:
        """Settings of the kind that ``values`` name: a kind alone, or a table with a kind.

        Settings that another kind left in a recipe are kept where this kind has them, too. Those
        that were given without a kind must be this kind's or the default's.
        """
        if isinstance(values, Choice):
            return values
        table: Any = {"kind": values} if isinstance(values, str) else values
        if not isinstance(table, Mapping):
            raise FirehoseError(f"{values!r} is no {self.what}; name its kind.")
        named = table.get("kind") or self.default
        kind = named if isinstance(named, str) else str(named)
        section, known = self._section(kind), dict[str, Any]()
        leftover: Mapping[str, Mapping[str, Any]] = table.get(LEFTOVER, {})
        usual = self._section(self.default).model_fields if "" in leftover and self.default else {}
        for other, settings in leftover.items():
            foreign = (settings if other else usual).keys() - section.model_fields.keys()
            known = merge(known, {n: v for n, v in settings.items() if n not in foreign})
        own = {name: value for name, value in table.items() if name != LEFTOVER}
        if leftover and "inner" in section.model_fields:  # around another, which may have them
            inner = own.get("inner", section.model_fields["inner"].default)
            own |= merge({"inner": {LEFTOVER: leftover}}, {"inner": inner})
        return section.of(merge(known, own) | {"kind": kind}, f"the {self.what} {kind!r}")

    def make(self, settings: Choice, *parts: Any) -> Part:
        """A plug-in of the kind that the settings name."""
        found: Any = self.find(settings.kind)
        try:
            inspect.signature(found).bind(settings, *parts)
        except TypeError as error:
            takes = ", ".join(["settings", *(type(part).__name__ for part in parts)])
            raise FirehoseError(
                f"{settings.kind} cannot be made: its constructor must take ({takes})."
            ) from error
        made: Part = found.make(settings, *parts)
        return made

    def _section(self, kind: str) -> type[Section]:
        """The class of the settings of a kind; a source is its own settings."""
        found: Any = self.find(kind)
        section: type[Any] = found if issubclass(found, Section) else found.Settings
        if not issubclass(section, Section) or "kind" not in section.model_fields:
            raise FirehoseError(f"{kind}.Settings must inherit from firehose.plugins.Choice.")
        return section


def load_class(place: str, what: str) -> type[Any]:
    """The class that ``FILE.py:Class`` or ``module:Class`` names; ``what`` it is meant to be.

    Raises an error where only a file names it, and its code is not remembered as this user's.
    """
    module_name, _, class_name = place.rpartition(":")
    load = _load if module_name.endswith(".py") else _import
    module = load(module_name, what, place)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise FirehoseError(f"{module_name} has no {what} {class_name!r}; name a class in it.")
    return found


def source_file(place: str) -> Path:
    """The file that a class of the user's is in, found without running it."""
    name, _, _ = place.rpartition(":")
    if name.endswith(".py"):
        return Path(name)
    files = _files(name)
    if not files:
        raise FirehoseError(f"{name} has no file of its own; name a plug-in that is in a file.")
    return files[-1]


def checksum(place: str) -> str:
    """The checksum of the file that a class of the user's is in; the file is not run."""
    return _sum(source_file(place).read_bytes())


def _sum(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _admit(place: str, sources: Mapping[Path, bytes]) -> None:
    """Remember code as this user's, or refuse it: see the beginning of this module."""
    for path, source in sources.items():
        if not isinstance(place, FromFile):
            remember("trusted", _sum(source), str(path.resolve()))
        elif not is_remembered("trusted", _sum(source)):
            raise FirehoseError(
                f"{place.origin} names {place}, and {path} would be run as your own code; "
                "look at it, and allow it with --trust (in Python: trust=True)."
            )


def own_kinds(tables: Any) -> list[str]:
    """The kinds of the user's own that tables of settings name, at any depth."""
    if not isinstance(tables, Mapping):
        return []
    kind = tables.get("kind")
    found = [kind] if isinstance(kind, str) and ":" in kind else []
    return found + [own for value in tables.values() for own in own_kinds(value)]


def is_own(module: str) -> bool:
    """Whether a module is the user's, or in a package that a plug-in of the user's is in."""
    return module.startswith(USERS) or module.partition(".")[0] in _imported


def _import(name: str, what: str, place: str) -> Any:  # noqa: ARG001 (as _load has it)
    """A module that can be imported; those of Firehose, and what runs already, are no question."""
    package = name.partition(".")[0]
    is_foreign = package != __name__.partition(".")[0]
    if is_foreign:
        _imported.add(package)
    if name in sys.modules:
        return sys.modules[name]
    try:
        if is_foreign:
            _admit(place, {path: path.read_bytes() for path in _files(name)})
        return importlib.import_module(name)
    except (ModuleNotFoundError, TypeError, ValueError) as error:  # or no name of a module at all
        missing = getattr(error, "name", None) or name
        if missing == name or name.startswith(f"{missing}."):
            raise FirehoseError(f"There is no module {name!r}.") from None
        raise FirehoseError(f"{name} cannot be loaded: {brief(error)}.") from error
    except OSError as error:
        raise FirehoseError(f"{name} cannot be read: {error.strerror}.") from None


def _files(name: str) -> list[Path]:
    """The files that are run when a module is imported: those of its packages, then its own."""
    files: list[Path] = []
    first, *rest = name.split(".")
    with contextlib.suppress(ImportError, ValueError):  # no name of a module at all
        spec = importlib.util.find_spec(first)
        while spec is not None:
            if spec.has_location and spec.origin:
                files.append(Path(spec.origin))
            if not rest:
                break
            first = f"{first}.{rest.pop(0)}"
            spec = PathFinder.find_spec(first, spec.submodule_search_locations)
    return files


def _load(file: str, what: str, place: str) -> Any:
    """The module in a file of the user's."""
    path = Path(file)
    if not path.is_file():
        raise FirehoseError(f"{file} does not exist; a {what} of your own is FILE.py:Class.")
    name = f"{USERS}{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    source, loaded = path.read_bytes(), sys.modules.get(name)
    if loaded is None or isinstance(place, FromFile):  # it may have changed since
        _admit(place, {path: source})
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        # What was admitted, and not what lies beside it as a compiled file.
        exec(compile(source, str(path.resolve()), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise FirehoseError(f"{file} cannot be loaded: {brief(error)}.") from error
    return module


def brief(error: BaseException) -> str:
    """Kind and first line of somebody else's error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].rstrip('.')}"
