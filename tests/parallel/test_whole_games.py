"""A game is the same, however many processes play it."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from whole_games import GAMES, SHARDED, Seen

from firehose.parallel.launch import free_port, launch

TESTS = Path(__file__).parents[1]
MOST = 3  # processes
EXACT = ("kept", "tokens", "numbers", "random")  # what cannot differ by a rounding


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All games, played once by each number of processes."""
    folder = tmp_path_factory.mktemp("played")
    program = [sys.executable, TESTS / "parallel" / "whole_games.py", folder]
    ports = [free_port() for _ in range(MOST)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *sys.path]))
        assert launch(MOST, [str(each) for each in (*program, *ports)]) == 0
    return folder


def seen(folder: Path, game: str, size: int = 1, rank: int = 0, way: str = "") -> Seen:
    """What a process has seen of a game."""
    with np.load(folder / f"{game}-{rank}-of-{size}{way}.npz") as values:
        return dict(values)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("size", [2, 3])
def test_a_game_does_not_depend_on_the_number_of_processes(
    played: Path, game: str, size: int
) -> None:
    compare(game, seen(played, game), seen(played, game, size))


@pytest.mark.parametrize("game", SHARDED)
@pytest.mark.parametrize("size", [2, 3])
def test_a_game_does_not_depend_on_who_holds_what(played: Path, game: str, size: int) -> None:
    compare(game, seen(played, game), seen(played, game, size, way="-sharded"))


def compare(game: str, alone: Seen, together: Seen) -> None:
    """The same up to roundings, and to the bit where there are none."""
    # What the experts of a mixture say has 32 bits, whatever they are asked.
    tolerance = 1e-5 if "mixture" in game else 1e-9
    for name, values in alone.items():
        scale = 0 if name in EXACT else tolerance * max(np.abs(values).max(initial=0), 1e-300)
        assert values.shape == together[name].shape, name
        np.testing.assert_allclose(together[name], values, rtol=0, atol=scale, err_msg=name)


@pytest.mark.parametrize("game", GAMES)
def test_all_processes_see_the_same_bits(played: Path, game: str) -> None:
    first = seen(played, game, MOST)
    for rank in (1, 2):
        other = seen(played, game, MOST, rank)
        assert all(np.array_equal(values, other[name]) for name, values in first.items())


def test_a_game_is_about_something(played: Path) -> None:
    """Weights move, steps are kept and taken back, users get rows, and masks are drawn."""
    for game in GAMES:
        found = seen(played, game)
        assert len(found["numbers"]) > 6 and found["kept"].sum() > 3, game
    congrad = seen(played, "mixed-replay × congrad")["kept"]
    assert len(set(congrad.tolist())) > 1
    kinds = [seen(played, game)["weights"] for game in GAMES]
    # An average predicts; what learns is the same.
    assert len({values.tobytes() for values in kinds}) == len(GAMES) - 1
