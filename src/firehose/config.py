"""Typed configuration: TOML in, TOML out, and errors that name the nearest right key.

A configuration is a tree of :class:`Section` models. Every command builds one from its
defaults, a TOML file and ``--set a.b=value`` overrides, in that order, and writes it back as
TOML beside its result.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from firehose.errors import FirehoseError


def listed(value: Any) -> Any:
    """A single text as a list of one: it needs no brackets."""
    return (value,) if isinstance(value, str) else value


_HERE = Path(__file__).parent
# Installed, they lie within the package; in a clone, beside it.
RECIPES = _HERE / "recipes" if (_HERE / "recipes").is_dir() else _HERE.parents[1] / "recipes"
LEFTOVER = "settings of another kind"  # set aside where the kind changed, a table for each kind
RIVALS = {"posts": "per_user", "per_user": "posts"}  # limits: one that is given replaces the other
Texts = Annotated[tuple[str, ...], BeforeValidator(listed)]  # a single one needs no brackets
MOST = 2**63 - 1  # the largest number that files and arrays can hold


class Section(BaseModel):
    """A part of the configuration: immutable, no key but its own, no number without an end."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _countable(cls, values: Any) -> Any:
        """Refuse whole numbers that no file or array can hold."""
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if isinstance(value, int) and abs(value) > MOST:
                raise ValueError(
                    f"{name} has {len(str(value))} digits; at most {MOST:,} is possible"
                )
        return values

    @classmethod
    def of(cls, values: Mapping[str, Any], origin: str = "the configuration") -> Self:
        """Validate ``values``; a wrong key or value becomes one sentence."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise FirehoseError(_sentence(cls, error, origin)) from None

    def public(self) -> dict[str, Any]:
        """Plain values without secrets (excluded fields) and without None, which TOML lacks."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_toml(self) -> str:
        """This configuration as TOML, ready to be read again."""
        return tomli_w.dumps(self.public())


class FromFile(str):
    """A text that a file says, not the user: where it names a class, it asks to run code."""

    origin: str  # the file


def marked(value: Any, origin: str) -> Any:
    """Plain values from a file, with every text that may name a class marked as the file's."""
    if isinstance(value, Mapping):
        return {name: marked(each, origin) for name, each in value.items()}
    if isinstance(value, list):
        return [marked(each, origin) for each in value]
    if not isinstance(value, str) or ":" not in value:
        return value
    text = FromFile(value)
    text.origin = origin
    return text


def read_toml(path: Path, trust: bool = False) -> dict[str, Any]:
    """The tables of a TOML file; with ``trust``, what they name is as if the user had named it."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return tables if trust else marked(tables, str(path))
    except OSError as error:
        raise FirehoseError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # TOML's own errors are ValueErrors
        raise FirehoseError(f"{path} is not valid TOML: {error}.") from None


def read_recipe(recipe: str | Path, trust: bool = False) -> dict[str, Any]:
    """The tables of a recipe: one that comes with Firehose, by its name, or any TOML file."""
    if Path(recipe).suffix == ".toml":
        return read_toml(Path(recipe), trust)
    found = {path.stem: path for path in sorted(RECIPES.glob("*.toml"))}
    refuse_unknown("recipe", str(recipe), list(found), "A file's name ends in .toml.")
    return read_toml(found[str(recipe)])


def merge(
    base: Mapping[str, Any], over: Mapping[str, Any], set_aside: bool = True
) -> dict[str, Any]:
    """``base`` with the leaves of ``over`` put over it, table by table.

    A text where a table may stand is the table's kind: ``learner = "a-gem"``. Where the kind
    changes, the settings of the old one are set aside (see :data:`LEFTOVER`); those that were
    given without a kind are set aside under the name "". Without ``set_aside`` all of them stay,
    and the new kind must know them.
    """
    merged = dict(base)
    for key, value in over.items():
        if (rival := RIVALS.get(key)) and rival not in over:
            merged.pop(rival, None)
        merged[key] = _merge_value(merged.get(key), value, set_aside)
    return merged


def together(*given: Mapping[str, Any]) -> dict[str, Any]:
    """Tables that somebody gave at the same time; later ones win, and nothing is set aside."""
    tables: dict[str, Any] = {}
    for each in given:
        tables = merge(tables, each, set_aside=False)
    return tables


def _merge_value(below: Any, value: Any, set_aside: bool) -> Any:
    if isinstance(below, Mapping) and isinstance(value, str):
        value = {"kind": value}
    elif isinstance(below, str) and isinstance(value, Mapping):
        below = {"kind": below}
    if not (isinstance(below, Mapping) and isinstance(value, Mapping)):
        return value
    if set_aside and "kind" in value and value["kind"] != below.get("kind"):
        rest = {name: each for name, each in below.items() if name not in ("kind", LEFTOVER)}
        aside = {str(below.get("kind", "")): rest} if rest else {}
        aside = merge(merge(below.get(LEFTOVER, {}), aside), value.get(LEFTOVER, {}))
        return {**value, **({LEFTOVER: aside} if aside else {})}
    return merge(below, value, set_aside)


def nested(name: str, value: Any) -> dict[str, Any]:
    """The tables that a dotted name and its value spell: ``a.b`` and 1 are ``{a: {b: 1}}``."""
    first, _, rest = name.partition(".")
    return {first: nested(rest, value) if rest else value}


def flattened(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested tables by their dotted names: the opposite of ``nested``."""
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """The tables that ``--set a.b=value`` assignments spell; values are TOML, or bare words."""
    tables: dict[str, Any] = {}
    for assignment in sorted(assignments, key=_kinds_first):
        key, equals, value = assignment.partition("=")
        names = [name.strip() for name in key.split(".")]
        if not equals or not all(names):
            raise FirehoseError(f"--set {assignment}: write it as a.b=value.")
        try:
            leaf = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            leaf = value.strip()
        except (ValueError, RecursionError) as error:
            raise FirehoseError(f"--set {shortened(assignment)}: {error}.") from None
        tables = together(tables, nested(".".join(names), leaf))
    return tables


def _kinds_first(assignment: str) -> tuple[int, bool]:
    """Orders a kind before the settings that are given with it, in whatever order they come."""
    *path, name = assignment.partition("=")[0].split(".")
    return len(path), name.strip() != "kind"


def refuse_unknown(kind: str, name: str, known: Sequence[str], more: str = "") -> None:
    """Say that there is nothing of this name, what is meant perhaps, and what else there may be."""
    if name not in known:
        raise FirehoseError(f"There is no {kind} {name!r}: {nearest(name, known)} {more}".rstrip())


def nearest(word: str, candidates: Sequence[str]) -> str:
    """“did you mean …?” or the list of what there is, to end a sentence with."""
    if not candidates:
        return "there is none."
    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there is {', '.join(candidates)}."


def shortened(text: str, most: int = 80) -> str:
    """A text that fits into a sentence."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _sentence(section: type[BaseModel], error: ValidationError, origin: str) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    name = ".".join(path)
    if first["type"] == "extra_forbidden":
        owner = _owner(section, path[:-1])
        fields = [field for field in owner.model_fields if field != "kind"] if owner else []
        known = nearest(path[-1], fields) if fields else "nothing can be set there."
        return f"Unknown key {name!r} in {origin}: {known}"
    if first["type"] == "literal_error":
        choices, value = re.findall("'(.*?)'", first["ctx"]["expected"]), first["input"]
        told = shortened(repr(value))
        return f"{name} = {told} in {origin} is not a choice: {nearest(str(value), choices)}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{name} is missing in {origin}."
    value = first["input"]
    where = name if isinstance(value, Mapping) else f"{name} = {shortened(repr(value))}"
    where = where if path else "the values"
    return f"{where} in {origin}: {message[0].lower()}{message[1:]}."


def _owner(section: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """The section class that ``path`` leads to, where the annotations tell."""
    owner: type[BaseModel] | None = section
    for part in path:
        if part.isdigit():  # an element of what came before
            continue
        field = owner.model_fields.get(part) if owner else None
        annotation = field.annotation if field else None
        # The alternatives of a union, what a tuple is of, or the annotation alone.
        kinds = (annotation, *get_args(annotation))
        found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        owner = found[0] if found else None
    return owner
