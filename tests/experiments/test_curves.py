"""Figures of games: what is drawn is what came of them."""

import dataclasses
import re

import numpy as np
import pytest

from firehose.experiments.curves import FIGURES, Comparison
from firehose.experiments.looks import Pair, Run, looks, pair_looks
from firehose.game.outcome import Outcome
from small_experiments import outcome


@pytest.mark.parametrize("name", ["online-fit", "retention", "cold-start", "compute"])
def test_seeds_are_averaged_as_losses(name: str) -> None:
    """Perplexities of 20 and 80 are drawn at √(20 · 80) = 40, not at 50."""
    mean = Outcome.mean([outcome(20), outcome(80)])
    played = Run("mine", "mixed-replay", "congrad", mean)
    figure = FIGURES[name].draw(Comparison("corpus", 3, 30, {}, [played]))
    lines = [np.asarray(line.get_ydata(), float) for axes in figure.axes for line in axes.lines]
    assert lines and np.concatenate(lines) == pytest.approx(40)


def test_both_ways_to_average_over_time_are_drawn() -> None:
    came = outcome(20)
    curve = dataclasses.replace(came.curve, running=np.array([9.0, 8, 7]))
    past = dataclasses.replace(came.retention, back_to=np.array([6.0, 5, 4]))
    came = came.model_copy(update={"curve": curve, "retention": past})
    found = Comparison("corpus", 3, 30, {}, [Run("mine", "a-gem", "congrad", came)])
    for name, expected in (("online-fit", [9.0, 8, 7]), ("retention", [6.0, 5, 4])):
        lines = [axes.lines[0] for axes in FIGURES[name].draw(found).axes]
        assert len(lines) == 2
        values = [np.asarray(line.get_ydata(), float).tolist() for line in lines]
        assert expected in values and pytest.approx([20.0] * 3) in values


@pytest.mark.parametrize("name", FIGURES)
def test_a_caption_speaks_only_of_what_is_drawn(name: str) -> None:

    def caption(*pairs: Pair) -> str:
        return FIGURES[name].caption(pairs)

    alone = caption(("mixed-replay", "congrad"), ("online-only", "congrad"))
    assert not re.search("Online GD|A-GEM|Dashed|Hollow", alone)
    other = caption(("mixed-replay", "online-gd"))
    assert not re.search("ConGraD|A-GEM|Dashed|Hollow", other)
    both = caption(("a-gem", "online-gd"), ("a-gem", "congrad"))
    assert "Online GD" in both and ("A-GEM" in both) == (name == "compute")
    # Told apart by something else, every run is drawn with a solid line.
    same = caption(("a-gem", "online-gd"), ("a-gem", "online-gd"), ("a-gem", "congrad"))
    assert "Dashed" not in same


def test_numbers_of_steps_have_different_colours() -> None:
    """Five steps at most, the paper's: six numbers with none."""
    came = outcome(20).model_copy(update={"kept": [1, 2, 3, 4, 5, 6]})
    found = Comparison("corpus", 3, 30, {}, [Run("mine", "a-gem", "congrad", came)])
    bars = FIGURES["steps-kept"].draw(found).axes[0].patches
    assert len({bar.get_facecolor() for bar in bars}) == len(bars) == 6


def test_learners_keep_their_colours() -> None:
    some = pair_looks([("a-gem", "congrad"), ("mixed-replay", "online-gd")])
    more = pair_looks([("mixed-replay", "congrad"), ("mine", "congrad"), ("a-gem", "online-gd")])
    for learner in ("a-gem", "mixed-replay"):
        colours = {
            look.colour
            for found in (some, more)
            for pair, look in found.items()
            if pair[0] == learner
        }
        assert len(colours) == 1
    everyone = ["mixed-replay", "online-only", "replay-only", "a-gem", "gem", "icarl", "mine"]
    drawn = pair_looks([(learner, "congrad") for learner in everyone])
    assert len({look.colour for look in drawn.values()}) == len(everyone)


def test_runs_that_would_look_alike_have_colours_of_their_own() -> None:
    pairs = [("mixed-replay", each) for each in ("online-gd", "averaged", "congrad")]
    assert len({str(look) for look in looks(pairs)}) == 3
    assert looks(pairs[:2]) == list(pair_looks(pairs[:2]).values())
