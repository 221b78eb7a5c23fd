"""The configuration of `prepare`, which decides every byte of a corpus."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from firehose.config import (
    RECIPES,
    Section,
    Texts,
    merge,
    nearest,
    overrides,
    read_toml,
    refuse_unknown,
    together,
)
from firehose.data.sources import BUILT_IN, SOURCES, Source, recognise
from firehose.errors import FirehoseError


class Cleaning(Section):
    """Which posts are kept, and how their text is normalised."""

    languages: Texts = ("en",)  # ISO 639-1 codes; if empty, all are kept and none is detected
    drop_retweets: bool = True
    drop_replies: bool = True
    min_posts: int = Field(default=20, ge=1)  # users with fewer are dropped
    mentions: Literal["keep", "replace"] = "keep"  # replace: by <MENTION>
    max_characters: int = Field(default=4_096, ge=1)  # posts with longer texts are dropped


class Splitting(Section):
    """Which posts are held out; all choices are made by hashes of names, ids and the seed."""

    seed: int = 0
    validation: int = Field(default=3, ge=0)  # posts per user
    test: int = Field(default=3, ge=0)
    pretrain_before: date | None = None  # earlier posts are for pretraining, without users
    # The share of the users who are put into a second, small corpus.
    small: float | None = Field(default=None, gt=0, lt=1)


class VocabularyPlan(Section):
    """Which vocabulary the text is encoded with."""

    # The number of pieces; None: 500 to 32,000, as the amount of text supports.
    size: int | None = Field(default=None, ge=270, le=1_000_000)
    model: Path | None = None  # a SentencePiece model to use instead of training one

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.size and self.model:
            raise ValueError("a given vocabulary model has its size already; leave out the size")
        return self


class Plan(Section):
    """The source of the posts, and how a corpus is made from them."""

    source: Annotated[SerializeAsAny[Source], BeforeValidator(SOURCES.settings)]
    clean: Cleaning = Cleaning()
    split: Splitting = Splitting()
    vocabulary: VocabularyPlan = VocabularyPlan()

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        held_out = self.split.validation + self.split.test
        if self.clean.min_posts <= held_out:
            raise ValueError(
                f"clean.min_posts must exceed the {held_out} posts per user that are held out, "
                "or a user has none to train on"
            )
        return self


def make_plan(
    paths: str | Path | Sequence[str | Path] = (),
    source: str | Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    preset: str | None = None,
    assignments: Sequence[str] = (),
    trust: bool = False,
    **tables: Any,
) -> Plan:
    """A plan from defaults, a preset, a TOML file, ``a.b=value`` assignments, and arguments.

    What comes later in this list wins over what comes earlier.

    >>> make_plan(source="nature", clean={"min_posts": 30}).clean.min_posts
    30

    A ``preset`` is for files of a known origin: reddit, hackernews, stackexchange. ``source`` is
    a kind or a table. Where no kind is named, it is recognised from the paths;
    without paths it is nature. With ``trust``, code that the TOML file names is run as if it were
    named here.
    """
    paths = [paths] if isinstance(paths, str | Path) else paths
    values = merge(
        _read_preset(preset) if preset else {}, read_toml(Path(config), trust) if config else {}
    )
    assigned = overrides(assignments)
    known = _table(values.pop("source", None))
    asked = together(_table(assigned.pop("source", None)), _table(source))
    if paths:
        asked["paths"] = [str(path) for path in paths]
    is_recognised = "paths" in asked and not preset
    kind = asked.get("kind") or (recognise(asked["paths"]) if is_recognised else known.get("kind"))
    if known.get("kind") != kind:
        known = {}  # the file describes a source of another kind, which has other settings
    table = merge(known, asked) | {"kind": kind or recognise(())}
    origin = str(config) if config else "the configuration"
    return Plan.of(merge(values, together(assigned, tables)) | {"source": table}, origin)


def _read_preset(name: str) -> dict[str, Any]:
    found = {path.stem: path for path in sorted((RECIPES / "presets").glob("*.toml"))}
    refuse_unknown("preset", name, list(found))
    return read_toml(found[name])


def _table(source: Any) -> dict[str, Any]:
    """The settings of a source as a table; ``source`` may also be its kind alone, or None."""
    if source is None or isinstance(source, str):
        return {"kind": source} if source else {}
    if not isinstance(source, Mapping):
        raise FirehoseError(
            f"source = {source!r} is no source: {nearest(str(source), list(BUILT_IN))}"
        )
    table = dict(source)
    if isinstance(table.get("paths"), str):
        table["paths"] = [table["paths"]]
    return table
