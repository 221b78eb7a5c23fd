"""Configuration: merged, validated, written back, and helpful when wrong."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from firehose.config import LEFTOVER, Section, merge, overrides, read_toml
from firehose.data.plan import Plan, make_plan
from firehose.errors import FirehoseError


class Inner(Section):
    rate: float = 0.5


class Outer(Section):
    steps: int = 3
    inner: Inner = Inner()


def test_assignments_are_toml_values_or_bare_words() -> None:
    assert overrides(["a.b=3", "a.c=true", 'd="x"', "e=[1, 2]", "f=bare word", "g=2013-01-01"]) == {
        "a": {"b": 3, "c": True},
        "d": "x",
        "e": [1, 2],
        "f": "bare word",
        "g": date(2013, 1, 1),
    }


@pytest.mark.parametrize("wrong", ["a.b", "=3", "a..b=3", ""])
def test_an_assignment_must_name_a_key(wrong: str) -> None:
    with pytest.raises(FirehoseError, match=r"write it as a\.b=value"):
        overrides([wrong])


def test_later_tables_win_leaf_by_leaf() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "d": {"e": 5}}) == {
        "a": {"b": 1, "c": 4},
        "d": {"e": 5},
    }


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"step": 3}, "Unknown key 'step' in here: did you mean 'steps'?"),
        ({"inner": {"rat": 1}}, "Unknown key 'inner.rat' in here: did you mean 'rate'?"),
        ({"zzz": 1}, "Unknown key 'zzz' in here: there is steps, inner."),
        ({"steps": "many"}, "steps = 'many' in here: input should be a valid integer"),
    ],
)
def test_a_wrong_key_or_value_is_one_helpful_sentence(
    values: dict[str, object], sentence: str
) -> None:
    with pytest.raises(FirehoseError) as error:
        Outer.of(values, "here")
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_a_choice_names_the_nearest() -> None:
    with pytest.raises(FirehoseError, match=r"clean.mentions = 'replaced'.*did you mean 'replace'"):
        make_plan(source="nature", clean={"mentions": "replaced"})


def test_a_sources_keys_are_checked_too() -> None:
    with pytest.raises(FirehoseError, match=r"Unknown key 'seeed' in the source.*'seed'"):
        make_plan(source="nature", assignments=["source.seeed=1"])


def test_held_out_posts_must_leave_some_to_train_on() -> None:
    with pytest.raises(FirehoseError, match=r"min_posts must exceed the 6 posts"):
        make_plan(source="nature", clean={"min_posts": 6})


@given(
    min_posts=st.integers(7, 1000),
    seed=st.integers(0, 2**40),
    small=st.none() | st.floats(0.01, 0.99),
    before=st.none() | st.dates(),
    languages=st.lists(st.sampled_from(["en", "de", "ja"]), max_size=3),
)
def test_a_plan_survives_toml(
    min_posts: int, seed: int, small: float | None, before: date | None, languages: list[str]
) -> None:
    plan = make_plan(
        source="nature",
        clean={"min_posts": min_posts, "languages": languages},
        split={"seed": seed, "small": small, "pretrain_before": before},
    )
    import tomllib

    assert Plan.of(tomllib.loads(plan.to_toml())) == plan


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("a = = 3")
    with pytest.raises(FirehoseError, match="is not valid TOML"):
        read_toml(tmp_path / "x.toml")
    with pytest.raises(FirehoseError, match="No such file"):
        read_toml(tmp_path / "y.toml")


def test_paths_decide_over_the_source_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "nature.toml").write_text(make_plan(source="nature").to_toml())
    (tmp_path / "posts.csv").write_text("user,time,text\n")
    plan = make_plan(tmp_path / "posts.csv", config=tmp_path / "nature.toml")
    assert plan.source.kind == "tabular"
    (tmp_path / "tabular.toml").write_text(plan.to_toml())
    assert make_plan(config=tmp_path / "tabular.toml") == plan
    assert make_plan(source="nature", config=tmp_path / "tabular.toml").source.kind == "nature"
    with pytest.raises(FirehoseError, match="nature is simulated and reads no paths"):
        make_plan(tmp_path / "posts.csv", source="nature")


def test_a_file_yields_to_assignments_and_these_to_what_is_given(tmp_path: Path) -> None:
    config = tmp_path / "plan.toml"
    config.write_text(
        "[source]\nkind = 'nature'\nusers = 10\nposts = 1000\nseed = 1\n"
        "[clean]\nmin_posts = 10\nmentions = 'replace'\n[split]\nseed = 1\n"
    )
    assignments = ["clean.min_posts=20", "split.seed=2", "source.users=20", "source.posts=2000"]
    plan = make_plan(
        source={"users": 30}, config=config, assignments=assignments, clean={"min_posts": 30}
    )
    assert (plan.clean.min_posts, plan.split.seed, plan.clean.mentions) == (30, 2, "replace")
    found = plan.source.public()
    assert (found["users"], found["posts"], found["seed"]) == (30, 2000, 1)


def test_a_source_or_paths_that_are_given_win_over_assignments(tmp_path: Path) -> None:
    (tmp_path / "posts.csv").write_text("user,time,text\n")
    for assignment in ("source=git", "source.kind=git"):
        assert make_plan(source="nature", assignments=[assignment]).source.kind == "nature"
    plan = make_plan(tmp_path / "posts.csv", assignments=["source.paths=other.csv"])
    assert plan.source.paths == (str(tmp_path / "posts.csv"),)


def test_one_text_needs_no_brackets_and_a_number_is_a_name() -> None:
    plan = make_plan(source="nature", assignments=["clean.languages=de"])
    assert plan.clean.languages == ("de",)
    table = {"kind": "tabular", "paths": "x.csv", "columns": {"user": 1}}
    assert Plan.of({"source": table}).source.columns.user == ("1",)  # type: ignore[attr-defined]


@pytest.mark.parametrize("source", ["5", "[1]", "tabula"])
def test_what_is_no_source_is_told_in_a_sentence(source: str) -> None:
    with pytest.raises(FirehoseError, match=r"there is git|did you mean 'tabular'"):
        make_plan(assignments=[f"source={source}"])
    with pytest.raises(FirehoseError, match=r"there is git|did you mean 'tabular'"):
        make_plan(assignments=[f"source.kind={source}"])


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ("a", "b", "b"),
        ({"kind": "a", "x": 1}, "a", {"kind": "a", "x": 1}),
        ("a", {"x": 1}, {"kind": "a", "x": 1}),
        ("a", {"kind": "b", "x": 1}, {"kind": "b", "x": 1}),
        ({"kind": "a", "x": 1}, "b", {"kind": "b", LEFTOVER: {"a": {"x": 1}}}),
        ({"x": 1}, {"kind": "b", "y": 2}, {"kind": "b", "y": 2, LEFTOVER: {"": {"x": 1}}}),
        ({"kind": "a", "x": 1}, {"kind": "a", "y": 2}, {"kind": "a", "x": 1, "y": 2}),
        ({"x": 1}, {"y": 2}, {"x": 1, "y": 2}),
        ({"x": {"kind": "a", "y": 1}}, {"x": "a"}, {"x": {"kind": "a", "y": 1}}),
        ({"x": 1}, 3, 3),
        (3, {"x": 1}, {"x": 1}),
    ],
)
def test_a_text_over_or_under_a_table_is_its_kind(base: Any, over: Any, expected: Any) -> None:
    assert merge({"part": base}, {"part": over}) == {"part": expected}


def test_settings_of_every_kind_that_was_replaced_are_set_aside() -> None:
    tables: dict[str, Any] = {"part": {"x": 0}}
    for over in ({"kind": "a", "x": 1}, {"kind": "b", "y": 2}, {"kind": "a", "x": 3}, "c"):
        tables = merge(tables, {"part": over})
    assert tables["part"] == {"kind": "c", LEFTOVER: {"": {"x": 0}, "a": {"x": 3}, "b": {"y": 2}}}


def test_what_was_set_aside_on_both_sides_is_kept() -> None:
    below = merge({"part": {"kind": "a", "x": 1}}, {"part": "b"})
    above = merge({"part": {"kind": "c", "z": 3}}, {"part": "d"})
    assert merge(below, above)["part"] == {"kind": "d", LEFTOVER: {"a": {"x": 1}, "c": {"z": 3}}}


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ({"per_user": 5}, {"posts": 3}, {"posts": 3}),
        ({"posts": 3}, {"per_user": 5}, {"per_user": 5}),
        ({"posts": 3}, {"posts": 4}, {"posts": 4}),
        ({}, {"posts": 3, "per_user": 5}, {"posts": 3, "per_user": 5}),  # to be refused
    ],
)
def test_a_limit_that_is_given_replaces_the_other(
    base: dict[str, int], over: dict[str, int], expected: dict[str, int]
) -> None:
    assert merge(base, over) == expected
    assert merge({"a": {"b": base}}, {"a": {"b": over}}) == {"a": {"b": expected}}


def test_merging_changes_neither_side() -> None:
    base = {"part": {"kind": "a", "x": {"y": 1}}}
    over = {"part": {"kind": "a", "x": {"z": 2}}}
    merge(base, over)
    assert base == {"part": {"kind": "a", "x": {"y": 1}}}
    assert over == {"part": {"kind": "a", "x": {"z": 2}}}


def test_a_kind_is_assigned_before_the_settings_that_go_with_it() -> None:
    expected = {"play": {"learner": {"kind": "gem", "margin": 0.3}, "seed": 2}}
    assignments = ["play.learner.margin=0.3", "play.seed=1", "play.learner.kind=gem", "play.seed=2"]
    assert overrides(assignments) == expected
    assignments[2] = "play.learner=gem"
    assert overrides(assignments) == expected
