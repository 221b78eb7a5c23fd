"""Plug-ins: found by their kind, given typed settings, made, and refused in a sentence."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from firehose.config import LEFTOVER, Section, merge, overrides
from firehose.errors import FirehoseError
from firehose.methods.buffers import BUFFERS, Buffer, BufferChoice, BufferSettings
from firehose.methods.learners import LEARNERS
from firehose.methods.learners.gem import GEM
from firehose.methods.optimizers import OPTIMIZERS
from firehose.methods.step import Setup
from firehose.optim.rule import RULES
from firehose.plugins import Choice, Plugin, Registry, checksum, own_kinds, source_file

REGISTRIES: list[Registry[Any]] = [LEARNERS, OPTIMIZERS, BUFFERS, RULES]
OWN = """
from firehose.methods.learners import Learner
from firehose.plugins import Choice

class Mine(Learner):
    class Settings(Choice):
        strength: float = 1.0

class Odd(Learner):
    def __init__(self):
        pass

class Plain(Learner):
    class Settings:
        strength = 1.0

helper = 3
"""


class Lamp(Plugin):
    """A plug-in with a setting and a part."""

    class Settings(Choice):
        """How bright it is."""

        kind: str = "lamp"
        watts: int = Field(default=40, ge=1)
        room: str = "hall"

    def __init__(self, settings: Settings, house: str) -> None:
        self.settings = settings
        self.house = house


class Candle(Lamp):
    """Another, with fewer settings."""

    class Settings(Choice):
        """Where it is."""

        kind: str = "candle"
        room: str = "cellar"


LAMPS: Registry[Lamp] = Registry(
    "lamp", Lamp, {"lamp": "test_plugins:Lamp", "candle": "test_plugins:Candle"}, default="lamp"
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file with plug-ins of the user's."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_plug_in_is_made_from_its_settings_and_parts() -> None:
    made = LAMPS.make(LAMPS.settings({"watts": 60}), "mill")
    assert type(made).__name__ == "Lamp" and made.house == "mill"
    assert made.settings.public() == {"kind": "lamp", "watts": 60, "room": "hall"}
    candle = LAMPS.make(LAMPS.settings("candle"), "mill")
    assert type(candle).__name__ == "Candle" and candle.settings.room == "cellar"
    assert candle.state() == {}  # most keep nothing
    candle.restore({})


def test_settings_that_were_made_are_taken_as_they_are() -> None:
    chosen = LAMPS.settings({"kind": "lamp", "watts": 60})
    assert LAMPS.settings(chosen) is chosen


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: str(registry.what))
def test_every_built_in_kind_is_there_and_knows_its_name(registry: Registry[Any]) -> None:
    for kind in registry.built_in:
        found = registry.find(kind)
        assert issubclass(found, registry.base)
        assert set(registry.find(kind).Settings.model_fields) >= {"kind"}
    assert registry.default in registry.built_in


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: str(registry.what))
def test_what_is_no_plug_in_is_refused_in_a_sentence(
    registry: Registry[Any], tmp_path: Path
) -> None:
    what = registry.what
    first = next(iter(registry.built_in))
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    wrong: list[tuple[Any, str]] = [
        (first + "x", f"There is no {what} '{first}x': did you mean '{first}'"),
        ("zzz", f"There is no {what} 'zzz': there is {first}, .*One of your own is FILE.py:Class"),
        ("builtins:int", f"builtins:int is no {what}: let it inherit from firehose"),
        ("none.py:Mine", f"none.py does not exist; a {what} of your own is FILE.py:Class"),
        (f"{tmp_path}/broken.py:Mine", "broken.py cannot be loaded: ModuleNotFoundError"),
        ("no_such_module:Mine", "There is no module 'no_such_module'"),
        (":Mine", "There is no module ''"),
        ("firehose.nothing.here:Mine", "There is no module 'firehose.nothing.here'"),
        (f"firehose.batch:{what}", f"firehose.batch has no {what} '{what}'; name a class in it"),
        ("firehose.batch:gather", "name a class in it"),
        (3, f"3 is no {what}; name its kind"),
        (None, f"None is no {what}; name its kind"),
    ]
    for values, sentence in wrong:
        with pytest.raises(FirehoseError, match=sentence) as error:
            registry.settings(values)
        assert "\n" not in str(error.value)


def test_a_module_that_needs_a_missing_one_is_not_itself_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FirehoseError, match=r"lacking cannot be loaded.*nothing_of_this_name"):
        LEARNERS.find("lacking:Mine")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"watt": 3}, "Unknown key 'watt' in the lamp 'lamp': did you mean 'watts'?"),
        ({"kind": "candle", "watts": 3}, "Unknown key 'watts' in the lamp 'candle': there is room"),
        ({"watts": 0}, "watts = 0 in the lamp 'lamp': input should be greater than or equal to 1"),
        ({"watts": "many"}, "watts = 'many' in the lamp 'lamp': input should be a valid integer"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FirehoseError) as error:
        LAMPS.settings(table)
    assert str(error.value).startswith(sentence)


def test_one_s_own_plug_in_is_found_in_its_file(own: Path) -> None:
    kind = f"{own}:Mine"
    settings = LEARNERS.settings({"kind": kind, "strength": 3})
    assert (settings.kind, settings.strength) == (kind, 3.0)
    assert type(LEARNERS.make(settings, Setup())) is LEARNERS.find(kind)  # loaded once
    with pytest.raises(FirehoseError, match=r"Unknown key 'strenth' in the learner .* 'strength'"):
        LEARNERS.settings({"kind": kind, "strenth": 3})
    with pytest.raises(FirehoseError, match="has no learner 'helper'; name a class"):
        LEARNERS.find(f"{own}:helper")
    with pytest.raises(FirehoseError, match=r"Odd cannot be made: .* take \(settings, Setup\)"):
        LEARNERS.make(LEARNERS.settings(f"{own}:Odd"), Setup())
    with pytest.raises(FirehoseError, match=r"must inherit from firehose\.plugins\.Choice"):
        LEARNERS.settings(f"{own}:Plain")


def test_files_of_the_same_name_are_not_mixed_up(own: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    other = tmp_path / "sub" / "own.py"
    other.write_text(OWN.replace("1.0", "2.0"))
    found = [LEARNERS.settings(f"{path}:Mine").strength for path in (own, other)]
    assert found == [1.0, 2.0]


def test_whose_plug_ins_are_used_and_where_they_are_defined(own: Path) -> None:
    kind = f"{own}:Mine"
    tables = {
        "learner": {"kind": kind, "strength": 1},
        "optimizer": {"kind": "congrad", "validation": {"kind": "b.py:B", "posts": 3}},
        "rule": {"kind": "adam"},
        "seed": 3,
    }
    assert own_kinds(tables) == [kind, "b.py:B"]
    assert source_file(kind) == own
    assert checksum(kind) == hashlib.sha256(OWN.encode()).hexdigest()
    assert source_file("firehose.methods.learners.gem:GEM").name == "gem.py"
    assert LEARNERS.find("gem") is GEM


def test_a_kind_over_another_keeps_the_settings_that_both_have() -> None:
    recipe = {"lamp": {"kind": "lamp", "watts": 60, "room": "attic"}}
    for over in ("candle", {"kind": "candle"}):
        table = merge(recipe, {"lamp": over})["lamp"]
        assert LAMPS.settings(table).public() == {"kind": "candle", "room": "attic"}
    again = merge(merge(recipe, {"lamp": "candle"}), {"lamp": {"kind": "lamp", "watts": 7}})
    assert LAMPS.settings(again["lamp"]).public() == {"kind": "lamp", "watts": 7, "room": "attic"}
    own = merge(recipe, {"lamp": {"kind": "candle", "room": "well"}})["lamp"]
    assert LAMPS.settings(own).room == "well"


def test_settings_without_a_kind_go_with_the_kind_that_is_chosen_later() -> None:
    asked = overrides(["lamp.room=attic"])
    table = merge(asked, {"lamp": "candle"})["lamp"]
    assert LAMPS.settings(table).public() == {"kind": "candle", "room": "attic"}
    # The default's own may be dropped, what nobody has is refused.
    assert LAMPS.settings(merge({"lamp": {"watts": 3}}, {"lamp": "candle"})["lamp"]).room
    with pytest.raises(FirehoseError, match=r"Unknown key 'rom' in the lamp 'candle'.* 'room'"):
        LAMPS.settings(merge(overrides(["lamp.rom=attic"]), {"lamp": "candle"})["lamp"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("kind", ["lamp=lamp", "lamp.kind=lamp"])
def test_a_setting_counts_whether_it_comes_before_its_kind_or_after(
    order: tuple[int, int], kind: str
) -> None:
    recipe = {"lamp": {"kind": "lamp", "watts": 60}}
    assignments = [kind, "lamp.watts=7"]
    asked = overrides([assignments[place] for place in order])
    assert LAMPS.settings(merge(recipe, asked)["lamp"]).watts == 7


class Game(Section):
    """Settings with a plug-in among them."""

    memory: BufferChoice = BufferSettings(per_user=5)


@pytest.mark.parametrize(
    ("recipe", "over", "expected"),
    [
        ({}, {}, {"kind": "stratified", "per_user": 5}),
        ({"per_user": 3}, {"posts": 7}, {"kind": "stratified", "posts": 7}),
        ({"posts": 7}, {"per_user": 3}, {"kind": "stratified", "per_user": 3}),
        ({"per_user": 3}, "fifo", {"kind": "fifo", "per_user": 3}),
        ({"per_user": 3}, {"kind": "fifo", "posts": 7}, {"kind": "fifo", "posts": 7}),
        ({"kind": "fifo", "per_user": 3}, {"kind": "reservoir", "posts": 7}, None),
        ({"kind": "fifo", "per_user": 3}, "exemplars", {"kind": "exemplars", "posts": 300}),
    ],
)
def test_one_limit_takes_the_place_of_the_other(
    recipe: dict[str, Any], over: Any, expected: dict[str, Any] | None
) -> None:
    values = {"memory": recipe} if recipe else {}
    chosen = Game.of(merge(values, {"memory": over} if over else {})).memory
    assert chosen.public() == (expected or {"kind": "reservoir", "posts": 7})
    assert LEFTOVER not in chosen.public()
    assert Game.of({"memory": chosen.public()}).memory == chosen


def test_a_limit_that_was_set_aside_twice_is_still_one() -> None:
    tables: dict[str, Any] = {"memory": {"kind": "fifo", "per_user": 3}}
    for over in ({"kind": "reservoir", "posts": 7}, {"kind": "stratified"}):
        tables = merge(tables, {"memory": over})
    assert Game.of(tables).memory.public() == {"kind": "stratified", "posts": 7}


def test_a_buffer_s_settings_may_be_made_in_python() -> None:
    made = BUFFERS.make(BufferSettings(kind="fifo", posts=3), Setup())
    assert isinstance(made, Buffer)
