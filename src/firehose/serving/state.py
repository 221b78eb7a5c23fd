"""The folder of a service: begun from a model, opened again after any end.

A service begins with its first checkpoint, which has everything that the model has;
``serve.json`` appears when that is on disk. The model's own folder is not needed again, and nobody
whom the service forgets is left in a copy of it.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

import firehose
from firehose.config import marked
from firehose.data.encoder import Encoder, EncoderPlan
from firehose.data.registry import UserRegistry
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError
from firehose.game.live import LEARNING, MIN_USERS, Trained, load
from firehose.game.settings import Playing, make_settings
from firehose.models.companion import Companion
from firehose.models.personal import ModelPlan, Personal
from firehose.models.store import WEIGHTS, find_model, read_card
from firehose.serving.inbox import FILE as INBOX
from firehose.serving.streams import STREAMS
from firehose.storage.checkpoints import Checkpoints, State
from firehose.storage.files import sync, write_whole
from firehose.storage.seals import File, Record, refuse_damage

FORMAT: Literal["firehose service"] = "firehose service"
SCHEMA = 1
CARD, VOCABULARY = "serve.json", "vocabulary.model"
REMEDY = "bring it back from a copy, or begin again in another folder"
# How a model learns that has little to begin with: memories know at once what they have seen.
REMEMBERING = ("play.optimizer=averaged", "play.predictor=mixture", "play.rule.warmup=0")


class NewModel(NamedTuple):
    """A model that has read nothing yet."""

    vocabulary: Path  # a SentencePiece model
    plan: ModelPlan

    def seal(self) -> str:
        """A checksum of all that it is made from."""
        plan = self.plan.model_dump_json().encode()
        return File.of_content(Vocabulary.load(self.vocabulary).model + plan).sha256


class ServiceCard(Record):
    """What ``serve.json`` says."""

    format: Literal["firehose service"] = FORMAT
    schema_version: int = SCHEMA
    version: str
    start: str  # the checksum of the weights that it began with
    pieces: int
    model: ModelPlan
    encoder: EncoderPlan
    play: dict[str, Any]
    min_users: int
    origin: dict[str, Any]
    files: dict[str, File]


class Position(NamedTuple):
    """How far the learner of a service is in its inbox."""

    round: int = 0  # the last that was played
    last: int = 0  # seq of its last post
    request: int = 0  # the last that was carried out
    erased: Mapping[str, Mapping[str, int]] = {}  # by the number of a request that is not done yet


def checkpoints_of(folder: Path) -> Checkpoints:
    """The checkpoints of a service; who holds them is its learner."""
    return Checkpoints(folder / "checkpoints")


def begin(
    folder: Path,
    model: Path | NewModel | None,
    playing: Playing | None = None,
    min_users: int | None = None,
    trust: bool = False,
) -> None:
    """Begin a service with a model, unless it was begun; the lock of the folder is held.

    Raises FirehoseError where it was begun with another model, or is to learn in another way.
    """
    if has_begun(folder):
        _refuse_other(read_card_of(folder), folder, model, playing, min_users)
        return
    refuse_no_model(folder, model)
    assert model is not None
    _refuse_strange(folder)
    least = MIN_USERS if min_users is None else min_users
    if isinstance(model, NewModel):
        asked = _telling(playing or make_settings("laptop", REMEMBERING).play, least)
        encoder = Encoder(Vocabulary.load(model.vocabulary))
        fresh = Personal(model.plan, encoder.vocabulary.size, asked.seed)
        trained = Trained(fresh, encoder, playing=asked, min_users=least)
    else:
        asked = _telling(playing or LEARNING, least)
        trained = load(model, playing=asked, min_users=least, trust=trust)
    _write_first(folder, trained, _seal(model))


def has_begun(folder: Path) -> bool:
    """Whether a folder is the state of a service."""
    return (folder / CARD).is_file()


def refuse_no_model(folder: Path, model: Path | NewModel | None) -> None:
    """Refuse to begin with nothing."""
    if model is None and not has_begun(folder):
        raise FirehoseError(
            f"{folder} is not the state of a service yet; name the model to begin with: "
            f"`firehose serve MODEL --state {folder}`, or `--new --vocab-model FILE`."
        )


def _refuse_strange(folder: Path) -> None:
    """Refuse a folder that has anything in it but an inbox, or a beginning that was killed."""
    known = {
        "checkpoints",
        "snapshots",
        *(stream.cursor_file for stream in STREAMS.values()),
        VOCABULARY,
        INBOX,
        f"{INBOX}-wal",
        f"{INBOX}-shm",
    }
    ours = (f".{CARD}.", f".{VOCABULARY}.")
    names = [path.name for path in folder.iterdir() if path.name not in known]
    strange = [name for name in names if not name.startswith(ours)]
    if strange:
        raise FirehoseError(
            f"{folder} has something else in it ({strange[0]}); choose another --state."
        )


def _write_first(folder: Path, trained: Trained, start: str) -> None:
    """Write the first checkpoint of a service, and then what it is."""
    vocabulary = trained.encoder.vocabulary.model
    card = ServiceCard(
        version=firehose.__version__,
        start=start,
        pieces=trained.model.shared.pieces,
        model=trained.model.plan,
        encoder=trained.encoder.plan,
        play=trained.playing.public(),
        min_users=trained.min_users,
        origin=trained.origin,
        files={VOCABULARY: File.of_content(vocabulary)},
    )
    for name in ("checkpoints", "snapshots"):
        shutil.rmtree(folder / name, ignore_errors=True)  # of a beginning that was killed
    checkpoints = checkpoints_of(folder)
    checkpoints.folder.mkdir()
    checkpoints.write(0, state_of(trained, Position()), {})
    write_whole(folder / VOCABULARY, vocabulary)
    sync(folder)
    write_whole(folder / CARD, f"{card.model_dump_json(indent=1)}\n".encode())


def _telling(playing: Playing, min_users: int) -> Playing:
    """The same game, with memories that count how many users have written what they tell."""
    predictor = playing.predictor
    experts = tuple(
        each.model_copy(update={"min_users": max(each.min_users, min_users)})
        if hasattr(each, "min_users")
        else each
        for each in getattr(predictor, "experts", ())
    )
    if not experts:
        return playing
    protected = predictor.model_copy(update={"experts": experts})
    return playing.model_copy(update={"predictor": protected})


def _seal(model: Path | NewModel) -> str:
    if isinstance(model, NewModel):
        return model.seal()
    return read_card(find_model(model)).files[WEIGHTS].sha256


def _refuse_other(
    card: ServiceCard,
    folder: Path,
    model: Path | NewModel | None,
    playing: Playing | None,
    min_users: int | None,
) -> None:
    """Refuse to go on with a service as if it had been begun otherwise."""
    if model is not None and _seal(model) != card.start:
        raise FirehoseError(
            f"{folder} was begun with another model than this; leave the model out to go on "
            "with it, or choose another --state."
        )
    if min_users not in (None, card.min_users):
        raise FirehoseError(
            f"{folder} was begun with --min-users {card.min_users}, and goes on with it; choose "
            "another --state for another number."
        )
    if playing is not None and _telling(playing, card.min_users).public() != card.play:
        raise FirehoseError(
            f"{folder} was begun with other settings of learning, which it goes on with; leave "
            "--recipe and --set out, or choose another --state."
        )


def read_card_of(folder: Path) -> ServiceCard:
    """Read ``serve.json``; raises FirehoseError where there is none, or it cannot be used."""
    try:
        body = json.loads((folder / CARD).read_text(encoding="utf-8"))
        card = ServiceCard.model_validate(body)
    except FileNotFoundError:
        raise FirehoseError(
            f"{folder} is not the state of a service; begin one with "
            f"`firehose serve MODEL --state {folder}`."
        ) from None
    except (OSError, ValueError, ValidationError, RecursionError):
        raise FirehoseError(f"{folder / CARD} cannot be read; {REMEDY}.") from None
    if card.schema_version != SCHEMA:
        raise FirehoseError(f"{folder} is the state of another version of Firehose; {REMEDY}.")
    refuse_damage(folder, card.files, REMEDY)
    return card


def state_of(trained: Trained, position: Position) -> State:
    """All that a learner needs to go on: the game, whom it knows, and its place in the inbox."""
    game = trained.game
    more = len(game.predictor.weights) - len(game.optimizer.weights)
    frozen: Any = game.predictor.weights[1 : 1 + more]
    return game.state() | {
        "users of the service": trained.users.state(),
        "frozen": {str(n): {"name": each.name, **each.state()} for n, each in enumerate(frozen)},
        "position": position._asdict(),
    }


def restore(folder: Path, trust: bool = False) -> tuple[Trained, Position]:
    """The model of a service as its newest checkpoint has it, and how far it had come."""
    card, found = read_card_of(folder), checkpoints_of(folder).latest()
    if found is None:
        raise FirehoseError(f"{folder} has no checkpoint; {REMEDY}.")
    state, origin = found.state, str(folder / CARD)
    playing = Playing.of(card.play if trust else marked(card.play, origin), origin)
    model = Personal(card.model, card.pieces)
    model.restore(state["model"])
    encoder = Encoder(Vocabulary.load(folder / VOCABULARY), **dict(card.encoder))
    users = UserRegistry.restored(state["users of the service"])
    trained = Trained(model, encoder, users, card.origin, None, playing, card.min_users)
    if trained.is_mixed:
        # With it come the weights that do not learn; the rest is restored once more below.
        saved = {"predictor": state["predictor"], "weights": state["frozen"]}
        trained.saved = Companion(playing.predictor.public(), saved, {})
    trained.game.restore(state)
    return trained, Position(**state["position"])
