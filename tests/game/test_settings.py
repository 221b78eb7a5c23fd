"""Settings of a game: methods as tables, one rate or several."""

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
    assert make_settings("laptop").play.steps == 3
