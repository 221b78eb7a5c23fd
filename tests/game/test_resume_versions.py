"""A run that another version of the code goes on with: said, and written down."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from firehose.batch import Batch
from firehose.data.corpus import Corpus
from firehose.errors import Stopped
from firehose.game import run as runs
from firehose.game.assembly import Game
from firehose.game.folder import read_run
from firehose.game.round import Round
from firehose.game.run import play, resume
from firehose.game.settings import make_settings
from firehose.models.store import read_card
from small_models import TINY_GAME


def stopped(monkeypatch: pytest.MonkeyPatch, corpus: Corpus, out: Path) -> Path:
    """A game that was stopped after two rounds."""
    whole = Game.rounds

    def short(self: Game, stream: Iterable[Batch]) -> Iterator[Round]:
        for played in whole(self, stream):
            yield played
            if self.played == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Game, "rounds", short)
        with pytest.raises((KeyboardInterrupt, Stopped)):
            play(corpus, out, make_settings(assignments=TINY_GAME), checkpoint_every=0)
    return out


def test_a_run_goes_on_by_another_version_which_is_written_down(
    tmp_path: Path,
    small_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = stopped(monkeypatch, small_corpus, tmp_path / "run")
    code = read_run(run).code
    monkeypatch.setattr(runs, "code_version", lambda: "another")
    resume(run)
    assert "was begun by another version of Firehose" in capsys.readouterr().err
    assert read_run(run).code == f"{code} another"
    assert read_card(run / "model").origin["code"] == f"{code} another"


def test_the_same_version_goes_on_without_a_word(
    tmp_path: Path,
    small_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = stopped(monkeypatch, small_corpus, tmp_path / "run")
    before = read_run(run)
    resume(run)
    assert "another version" not in capsys.readouterr().err
    assert read_run(run) == before
    play(small_corpus, tmp_path / "whole", make_settings(assignments=TINY_GAME))
    assert read_card(run / "model").origin == read_card(tmp_path / "whole/model").origin
