"""Parts that are chosen by name: found, configured, made; a user's own among them.

A learner, an optimizer, a buffer, an update rule and a source are plug-ins, all alike: a class with
typed settings, known by its kind. The kind is the name of one that comes with Firehose, or
``FILE.py:Class`` (or ``module:Class``) for one of the user's own.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from firehose.config import LEFTOVER, Section, merge, refuse_unknown
from firehose.errors import FirehoseError

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
        kind = str(table.get("kind") or self.default)
        section, known = self._section(kind), dict[str, Any]()
        leftover: Mapping[str, Mapping[str, Any]] = table.get(LEFTOVER, {})
        usual = self._section(self.default).model_fields if "" in leftover and self.default else {}
        for other, settings in leftover.items():
            foreign = (settings if other else usual).keys() - section.model_fields.keys()
            known = merge(known, {n: v for n, v in settings.items() if n not in foreign})
        own = {name: value for name, value in table.items() if name != LEFTOVER}
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
    """The class that ``FILE.py:Class`` or ``module:Class`` names; ``what`` it is meant to be."""
    module_name, _, class_name = place.rpartition(":")
    module = _load(module_name, what) if module_name.endswith(".py") else _import(module_name)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise FirehoseError(f"{module_name} has no {what} {class_name!r}; name a class in it.")
    return found


def source_file(place: str) -> Path:
    """The file in which a class of the user's is defined."""
    found, (file, _, _) = load_class(place, "plug-in"), place.rpartition(":")
    return Path(file if file.endswith(".py") else inspect.getfile(found))


def checksum(place: str) -> str:
    """The checksum of the file in which a class of the user's is defined."""
    return hashlib.sha256(source_file(place).read_bytes()).hexdigest()


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


def _import(name: str) -> Any:
    if (package := name.partition(".")[0]) != "firehose":
        _imported.add(package)
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, TypeError, ValueError) as error:  # or no name of a module at all
        missing = getattr(error, "name", None) or name
        if missing == name or name.startswith(f"{missing}."):
            raise FirehoseError(f"There is no module {name!r}.") from None
        raise FirehoseError(f"{name} cannot be loaded: {brief(error)}.") from error


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


def brief(error: BaseException) -> str:
    """Kind and first line of somebody else's error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].rstrip('.')}"
