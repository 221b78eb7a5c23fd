"""Settings of a game: methods as tables, one rate or several."""

from pathlib import Path

import pytest

from firehose.errors import FirehoseError
from firehose.game.settings import make_settings
from firehose.methods.optimizers.congrad import ConGraD
from firehose.optim.adam import Adam
from firehose.optim.sgd import SGD

RATES = {"online-gd": 0.001, "congrad": 0.002}


def rate(*assignments: str, **play: object) -> float:
    rule = make_settings(assignments=assignments, play=play).play.rule
    assert isinstance(rule, Adam.Settings)
    return rule.rate


@pytest.mark.parametrize(("optimizer", "expected"), RATES.items())
def test_an_optimizer_takes_its_own_rate(optimizer: str, expected: float) -> None:
    playing = make_settings(play={"rule": {"rate": RATES}, "optimizer": optimizer}).play
    assert rate(rule={"rate": RATES}, optimizer=optimizer) == expected
    assert rate(rule={"rate": RATES}, optimizer={"kind": optimizer}) == expected
    assert make_settings(play=playing.public()).play == playing  # what is written is one rate


def test_a_rate_that_is_given_counts_for_all() -> None:
    assert rate(rule={"rate": RATES}) == 0.002  # ConGraD's, the default
    laptop = make_settings("laptop", ["play.rule.rate=0.5"]).play.rule
    assert isinstance(laptop, Adam.Settings) and laptop.rate == 0.5


def test_a_benchmark_has_a_rate_of_its_own() -> None:
    for benchmark, expected in (("disjoint-mnist", 0.05), ("disjoint-cifar", 0.01)):
        rule = make_settings("classic", [f"pictures.benchmark={benchmark}"]).play.rule
        assert isinstance(rule, SGD.Settings) and rule.rate == expected


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"rule": {"rate": {"online-gd": 0.1}}}, "and none for congrad; add one"),
        ({"rule": {"rate": RATES}, "optimizer": "congard"}, "did you mean 'congrad'"),
        ({"rule": {"rate": {"online-gd": -1}}, "optimizer": "online-gd"}, "greater than 0"),
        ({"rule": {"rat": 1}}, "Unknown key 'rat' in the update rule 'adam': did you mean 'rate'"),
        ({"learner": {"kind": "a-gem", "strength": 10}}, "Unknown key 'strength' in the learner"),
        (
            {"optimizer": {"kind": "online-gd", "allow_no_step": True}},
            "Unknown key 'allow_no_step'",
        ),
        ({"memory": {"per_user": 1, "posts": 1}}, "a buffer has one limit"),
        ({"memory": {"kind": "heap", "posts": 1}}, "There is no buffer 'heap'"),
    ],
)
def test_wrong_settings_are_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(FirehoseError, match=sentence):
        make_settings(play=values)


def test_what_belongs_to_congrad_is_not_in_the_settings_of_online_gd() -> None:
    assert make_settings("laptop", play={"optimizer": "online-gd"}).play.public()["optimizer"] == {
        "kind": "online-gd"
    }
    congrad = make_settings("laptop").play.optimizer
    assert isinstance(congrad, ConGraD.Settings) and congrad.validation_batch == 32


def test_a_flag_wins_over_set_and_set_over_the_recipe() -> None:
    given = ["play.learner=online-only", "play.steps=7"]
    settings = make_settings("laptop", given, play={"learner": "replay-only"}).play
    assert (settings.learner.kind, settings.steps) == ("replay-only", 7)
    assert make_settings("laptop").play.steps == 2


ICARL = ["play.learner=icarl", "play.learner.strength=10"]


@pytest.mark.parametrize(
    ("recipe", "assignments", "learner"),
    [
        (None, ["play.learner.strength=10"], None),  # of the default
        (None, ["play.learner.strength=10"], "a-gem"),  # a flag names the kind
        ("laptop", ["play.learner.strength=10"], "a-gem"),
        ("laptop", ["play.learner.strength=10"], None),
        (None, ["play.learner=a-gem", "play.learner.strength=10"], None),
        (None, ["play.learner.strength=10", "play.learner=a-gem"], None),
        (None, ["play.learner.strength=10", "play.learner.kind=a-gem"], None),
        (None, ICARL, "a-gem"),  # the flag wins, and does not know it
        (None, [*ICARL, "play.learner.kind=a-gem"], None),
    ],
)
def test_a_setting_that_is_given_is_known_to_the_kind_or_refused(
    recipe: str | None, assignments: list[str], learner: str | None
) -> None:
    flags = {"learner": learner} if learner else {}
    with pytest.raises(FirehoseError, match="Unknown key 'strength' in the learner"):
        make_settings(recipe, assignments, play=flags)


def test_the_nearest_key_of_the_kind_is_named() -> None:
    with pytest.raises(FirehoseError, match=r"'strenth' in the learner 'icarl': .* 'strength'"):
        make_settings(None, ["play.learner.strenth=10"], play={"learner": "icarl"})


@pytest.mark.parametrize("assignments", [ICARL, ICARL[::-1], ICARL[1:]])
def test_a_setting_that_the_kind_knows_is_kept(assignments: list[str]) -> None:
    learner = make_settings("laptop", assignments, play={"learner": "icarl"}).play.learner
    assert learner.public()["strength"] == 10


def test_what_a_recipe_says_of_another_kind_is_set_aside(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[play.learner]\nkind = 'icarl'\nstrength = 10\n")
    settings = make_settings(recipe, play={"learner": "a-gem"})
    assert settings.play.learner.public() == {"kind": "a-gem"}
    settings = make_settings(recipe, ["play.learner=a-gem"])
    assert settings.play.learner.public() == {"kind": "a-gem"}
    recipe.write_text("[play.learner]\nkind = 'a-gem'\nstrength = 10\n")  # in the same file
    with pytest.raises(FirehoseError, match="Unknown key 'strength' in the learner 'a-gem'"):
        make_settings(recipe)
    with pytest.raises(FirehoseError, match="Unknown key 'strength' in the learner 'a-gem'"):
        make_settings(recipe, play={"learner": "a-gem"})


def test_a_buffer_within_an_optimizer_is_held_to_the_same() -> None:
    given = ["play.optimizer.validation_batch=7"]
    with pytest.raises(FirehoseError, match="'validation_batch' in the optimizer 'online-gd'"):
        make_settings("laptop", given, play={"optimizer": "online-gd"})
    optimizer = make_settings("laptop", given, play={"optimizer": "congrad"}).play.optimizer
    assert optimizer.public()["validation_batch"] == 7


def test_an_optimizer_that_takes_no_step_needs_no_rate_of_its_own() -> None:
    assert make_settings("laptop", ["play.optimizer=frozen"]).play.optimizer.kind == "frozen"
