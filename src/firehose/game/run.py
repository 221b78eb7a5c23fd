"""A game from its command to its result: logged, checkpointed, resumable to the same bits.

::

    run/
      run.json       what is played: settings, corpus, start
      rounds.jsonl   a line for each round, as they come
      paid.f32       what each post of the stream cost when it came, in nats
      checkpoints/   the state of everything, the newest two
      tensorboard/   the same rounds as curves, if asked for
      model/         the final model, when it is over
      validation.f32 test.f32 past.f32   what posts cost the final model
      result.json    what came of it; rounds.parquet: the rounds as a table
"""

import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import firehose
from firehose.data.corpus import Corpus, open_corpus
from firehose.errors import FirehoseError, Stopped
from firehose.game.account import settle
from firehose.game.assembly import Game, make_game
from firehose.game.log import Log
from firehose.game.outcome import Outcome
from firehose.game.round import Broken
from firehose.game.settings import Settings
from firehose.interrupts import stop_requests
from firehose.machine import machine
from firehose.models.store import WEIGHTS, Trained, read_card, save
from firehose.optim.adam import NotFinite
from firehose.progress import say, track
from firehose.storage.checkpoints import Checkpoints
from firehose.storage.files import write_whole

FORMAT, SCHEMA = "firehose run", 1


def play(
    corpus: Corpus | str | Path,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot be changed)
    start: str | Path | None = None,
    checkpoint_every: float = 300,
    replace: bool = False,
    tensorboard: bool = False,
) -> Outcome:
    """Play a whole stream, beginning with a pretrained model if one is named."""
    folder, opened = Path(out), open_corpus(corpus)
    card = {
        "format": FORMAT,
        "schema": SCHEMA,
        "version": firehose.__version__,
        "machine": machine(),
        "place": str(settings.compute.find_device()),
        "corpus": str(opened.path.resolve()),
        "corpus_seal": opened.manifest.seal(),
        "start": None if start is None else str(Path(start).resolve()),
        "start_seal": None if start is None else read_card(Path(start)).files[WEIGHTS].sha256,
        "settings": settings.public(),
        "checkpoint_every": checkpoint_every,
        "tensorboard": tensorboard,
    }
    run = Run(folder, card, opened, settings)
    game = run.new_game()  # or say what is wrong with it before anything is written
    if folder.exists():
        if not (folder / "run.json").is_file():
            raise FirehoseError(f"{folder} exists and is not a run; choose another --out.")
        if not replace:
            raise FirehoseError(
                f"{folder} exists already; go on with `firehose resume {folder}`, choose another "
                "--out, or add --replace."
            )
        shutil.rmtree(folder)
    write_whole(folder / "run.json", (json.dumps(card, indent=1) + "\n").encode())
    return run.finish(game)


def resume(run: str | Path, previous: bool = False) -> Outcome:
    """Go on with a run from its last checkpoint, to the same bits as if it never stopped.

    With ``previous``, from the one before it.
    """
    folder = Path(run)
    card = read_run(folder)
    if (folder / "result.json").is_file():
        raise FirehoseError(f"{folder} is over; its result is {folder / 'result.json'}.")
    corpus = Corpus(card["corpus"])
    if corpus.manifest.seal() != card["corpus_seal"]:
        raise FirehoseError(f"{corpus.path} is not the corpus that {folder} was begun with.")
    settings = Settings.of(card["settings"], str(folder / "run.json"))
    if previous:
        Checkpoints(folder / "checkpoints").drop_newest()
    going_on = Run(folder, card, corpus, settings)
    return going_on.finish(going_on.new_game())


def read_run(folder: Path) -> dict[str, Any]:
    """``run.json``, or a sentence about what is wrong with it."""
    file = folder / "run.json"
    if not file.is_file():
        what = "does not exist" if not folder.exists() else "is not a run: no run.json in it"
        raise FirehoseError(f"{folder} {what}; begin one with `firehose play … --out {folder}`.")
    try:
        card: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if card["format"] != FORMAT:
            raise KeyError
    except (ValueError, KeyError, TypeError):
        raise FirehoseError(f"{file} is not a run's: it cannot be read.") from None
    if card["schema"] != SCHEMA:
        raise FirehoseError(
            f"{folder} has run schema {card['schema']}, this Firehose reads {SCHEMA}; "
            "play it again."
        )
    return card


@dataclass
class Run:
    """A game in a folder."""

    folder: Path
    card: dict[str, Any]
    corpus: Corpus
    settings: Settings

    def new_game(self) -> Game:
        """As it is before the first round."""
        start = self.card["start"]
        if start and read_card(Path(start)).files[WEIGHTS].sha256 != self.card["start_seal"]:
            raise FirehoseError(f"{start} is not the model that {self.folder} was begun with.")
        return make_game(self.corpus, self.settings, start)

    def finish(self, game: Game) -> Outcome:
        """Play what the last checkpoint leaves of a game, and say what came of it."""
        checkpoints = Checkpoints(self.folder / "checkpoints")
        with checkpoints.held():
            if found := checkpoints.latest():
                game.restore(found)
                say(f"Going on after round {game.played:,}.")
            good = self._play(game, checkpoints)
            if good is not None:
                raise self._rescued(good, checkpoints)
            trained = Trained.of_corpus(game.model.eval(), self.corpus, self.card)
            save(trained, self.folder / "model", replace=True)
            settle(self.folder, self.corpus, trained.model)
            outcome = Outcome.of(self.folder, self.corpus)
            outcome.write(self.folder)
        return outcome

    def _play(self, game: Game, checkpoints: Checkpoints, until: int | None = None) -> int | None:
        """All rounds that are left, or until so many are played.

        Where a loss is not a finite number, returns after how many rounds all was still well.
        """
        log = Log(self.folder, game.played, game.stream.position, self.card["tensorboard"])
        written = time.monotonic()
        with contextlib.closing(log), stop_requests() as request:
            try:
                for played in track(game.rounds(), len(game.stream), "playing", log.note):
                    log.add(game.played, played)
                    if request.made or time.monotonic() - written >= self.card["checkpoint_every"]:
                        self._keep(game, log, checkpoints)
                        written = time.monotonic()
                    if request.made:
                        raise Stopped(
                            f"Stopped after round {game.played:,}; "
                            f"`firehose resume {self.folder}` goes on from there."
                        )
                    if game.played == until:
                        break
            except NotFinite:
                return game.played
            except Broken:
                return game.played - 1
            self._keep(game, log, checkpoints)
        return None

    def _keep(self, game: Game, log: Log, checkpoints: Checkpoints) -> None:
        log.flush()
        checkpoints.write(game.played, game.state())

    def _rescued(self, rounds: int, checkpoints: Checkpoints) -> FirehoseError:
        """Leave a checkpoint of the last round that was good, by playing up to it once more."""
        good = max(rounds, 0)
        checkpoints.drop_after(good)
        game = self.new_game()
        if found := checkpoints.latest():
            game.restore(found)
        if game.played < good:
            self._play(game, checkpoints, good)
        return FirehoseError(
            f"The loss of round {good + 1:,} is not a finite number; {self.folder / 'checkpoints'} "
            f"has the state after round {good:,}. Play again with a lower rate (--set play.rate=…)."
        )
