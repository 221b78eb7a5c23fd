"""A model on disk: weights as safetensors, all else as JSON and Parquet, and its vocabulary.

::

    model/
      model.json           schema, sizes, how text becomes tokens, where it comes from, checksums
      weights.safetensors  shared weights, and a vector per user
      users.parquet        the name of each vector's user
      vocabulary.model     SentencePiece
      predictor.*          what a predictor knows beside the model, if it does: see companion
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field

import firehose
from firehose.data.corpus import Corpus
from firehose.data.encoder import Encoder, EncoderPlan
from firehose.data.post import Post
from firehose.data.registry import UserRegistry
from firehose.data.vocabulary import Vocabulary
from firehose.errors import FirehoseError
from firehose.models.companion import Companion
from firehose.models.model import Paid, Payer, Speaker
from firehose.models.personal import ModelPlan, Personal
from firehose.models.users import NOBODY
from firehose.storage import tensors
from firehose.storage.seals import File, Record, refuse_damage, seal_of
from firehose.storage.workspace import unreplaced, workspace

SCHEMA = 3
WITHOUT_SEAL = 2  # the schema before it, which is still read
FORMAT: Final = "firehose model"
WEIGHTS = "weights.safetensors"
VECTORS = "users.vectors"
USERS = "users.parquet"
REMEDY = "copy the model again"


class Card(Record):
    """The content of ``model.json``."""

    format: Literal["firehose model"] = FORMAT
    schema_version: int = SCHEMA
    version: str
    pieces: int = Field(ge=1)
    users: int = Field(ge=0)
    model: ModelPlan
    encoder: EncoderPlan
    origin: dict[str, Any]  # how it was made, and how well it did then
    predictor: dict[str, Any] | None = None  # the settings of what predicts with it, if more does
    files: dict[str, File]

    def to_json(self) -> str:
        """The card as JSON, with a checksum of itself."""
        body = self.model_dump(mode="json")
        return json.dumps(body | {"seal": seal_of(body)}, indent=1) + "\n"


@dataclass
class Trained:
    """A model, the encoder of its texts, and its users by name."""

    model: Personal
    encoder: Encoder
    users: UserRegistry = field(default_factory=UserRegistry)
    origin: dict[str, Any] = field(default_factory=dict)
    saved: Companion | None = None  # what predicts with it, if more does, as it is on disk

    @classmethod
    def of_corpus(
        cls,
        model: Personal,
        corpus: Corpus,
        origin: dict[str, Any] | None = None,
        saved: Companion | None = None,
    ) -> Self:
        """A model that was trained on a corpus: its texts and users are those of the corpus."""
        return cls(
            model, Encoder.of_corpus(corpus), UserRegistry(corpus.users), origin or {}, saved
        )

    def number(self, user: str | None) -> int:
        """The number of a user who has a vector; ``NOBODY`` for anybody else."""
        number = None if user is None else self.users.number(user)
        if number is None or self.model.users.rows(np.array([number]))[0] < 0:
            return NOBODY
        return number

    def knows(self, user: str | None) -> bool:
        """Whether a user has a vector; texts of others are those of the population."""
        return self.number(user) != NOBODY

    def in_use(self, *users: str | None) -> AbstractContextManager[None]:  # noqa: ARG002
        """Let the model have the weights inside that people see, if others learn.

        ``users`` are the only ones who are looked at; without any, all are.
        """
        return nullcontext()

    @property
    def payer(self) -> Payer:
        """What pays for posts: the model, or what predicts with it."""
        self._refuse_saved()
        return self.model

    @property
    def speaker(self) -> Speaker | None:
        """What has a say beside the model when texts are written, if anything has."""
        self._refuse_saved()
        return None

    def _refuse_saved(self) -> None:
        """Refuse to let a model predict alone that was saved with more."""
        if self.saved is not None:
            raise FirehoseError("This model was saved with a predictor; open it by firehose.load.")

    def companion(self) -> Companion | None:
        """What is saved beside the model."""
        return self.saved

    def saving(self) -> AbstractContextManager[None]:
        """Let the model have the weights inside that are to be saved."""
        return nullcontext()

    def pay(self, posts: Sequence[Post]) -> Paid:
        """What these texts cost, each with its user's vector; users who have none are nobody."""
        return self.payer.pay(self.encoder.encode(posts, self.users, grow=False))

    def known(self) -> list[str]:
        """The names of the users who have a vector."""
        return [self.users.name(number) for number in np.asarray(self.model.users.whole()).tolist()]


def save(trained: Trained, out: str | Path, replace: bool = False) -> None:
    """Write a model's folder, whole or not at all."""
    if Path(out).exists() and not (Path(out) / "model.json").is_file():
        raise FirehoseError(f"{out} exists and is not a model; choose another --out.")
    with workspace(Path(out), replace) as folder:
        result = folder / "result"
        result.mkdir()
        write(trained, result)


def write(trained: Trained, folder: Path) -> None:
    """Write a model's files into an empty folder."""
    model, saved = trained.model, trained.companion()
    count = len(model.users)
    with trained.saving():
        weights = dict(model.state_dict())
        tensors.refuse_not_finite(weights, folder.parent)
        tensors.write(folder / WEIGHTS, weights | {VECTORS: model.users.state()["vectors"]})
    if saved is not None:
        saved.write(folder)
    pq.write_table(pa.table({"user": pa.array(trained.known(), pa.string())}), folder / USERS)
    (folder / "vocabulary.model").write_bytes(trained.encoder.vocabulary.model)
    files = {path.name: File.of(path) for path in sorted(folder.iterdir())}
    card = Card(
        version=firehose.__version__,
        pieces=model.shared.pieces,
        users=count,
        model=model.plan,
        encoder=trained.encoder.plan,
        origin=trained.origin,
        predictor=None if saved is None else dict(saved.settings),
        files=files,
    )
    (folder / "model.json").write_text(card.to_json(), encoding="utf-8")


def find_model(path: Path) -> Path:
    """The folder of a model: ``path`` itself, or ``model`` in it, where a run leaves its own."""
    below = path / "model"
    return below if not (path / "model.json").exists() and (below / "model.json").exists() else path


def load(path: str | Path, corpus: Corpus | None = None) -> Trained:
    """Open the folder of a model, or of a run that has one; raises an error for any other.

    With a ``corpus`` the users are numbered as there, by their names; users who are not in it
    follow. A model that was saved with a predictor is opened by ``game.live.load``.
    """
    folder = find_model(Path(path))
    with unreplaced(folder):
        card = read_card(folder)
        refuse_damage(folder, card.files, REMEDY)
        vocabulary = Vocabulary.load(folder / "vocabulary.model")
        weights = tensors.read(folder / WEIGHTS)
        names = pq.read_table(folder / USERS)["user"].to_pylist()
        saved = None if card.predictor is None else Companion.read(folder, card.predictor)
    if corpus is not None:
        refuse_other_words(folder, vocabulary, corpus)
    _refuse_wrong_sizes(folder, card, vocabulary, weights, names)
    model = Personal(card.model, card.pieces)
    wanted = dict(model.state_dict()) | {VECTORS: torch.zeros(card.users, card.model.d_user)}
    tensors.refuse_misfits(weights, wanted, folder / WEIGHTS)
    vectors = weights.pop(VECTORS)
    model.load_state_dict(weights)
    kept = saved.users if saved else {}
    users = UserRegistry(corpus.users) if corpus else UserRegistry.numbered(kept)
    model.users.enter(np.array([users.add(name) for name in names], np.int64), vectors)
    encoder = Encoder(vocabulary, **dict(card.encoder))
    for name in kept:
        users.add(name)
    return Trained(model.eval(), encoder, users, card.origin, saved)


def _refuse_wrong_sizes(
    folder: Path,
    card: Card,
    vocabulary: Vocabulary,
    weights: Mapping[str, torch.Tensor],
    names: Sequence[str],
) -> None:
    """Refuse a card that speaks of another model than the files, before memory is taken for it."""
    plan, shape = card.model, card.model.shape
    numbers = sum(each.numel() for each in weights.values())
    widths = [card.pieces, shape.d_inner, shape.heads * shape.d_head]
    if plan.architecture != "agnostic":
        widths += [plan.mlp, plan.d_user if plan.project_users else 1]
    told = {
        f"{card.pieces:,} pieces": card.pieces == vocabulary.size,
        f"{card.users:,} users": card.users == len(set(names)) == len(names),
        f"{shape.layers:,} layers": shape.layers <= len(weights),
        f"{shape.d_model:,} × {max(widths):,} weights": shape.d_model * max(widths) <= numbers,
        f"{card.users:,} × {plan.d_user:,} weights": card.users * plan.d_user <= numbers,
    }
    for what, fits in told.items():
        if not fits:
            raise FirehoseError(
                f"{folder} is damaged: its files do not hold the {what} that model.json names; "
                f"{REMEDY}."
            )


def sizes_of(plan: ModelPlan, start: str | Path | None) -> ModelPlan:
    """The plan with the sizes of the pretrained model at ``start``, if any."""
    if not start:
        return plan
    own = read_card(find_model(Path(start))).model
    return plan.model_copy(update={"shape": own.shape, "max_tokens": own.max_tokens})


def from_pretrained(
    plan: ModelPlan, corpus: Corpus, start: str | Path | None, seed: int
) -> Personal:
    """Make a model to train; the model at ``start``, if any, gives its sizes and shared weights."""
    if not start:
        return Personal(plan, corpus.vocabulary.size, seed)
    pretrained = load(start, corpus).model
    model = Personal(sizes_of(plan, start), corpus.vocabulary.size, seed)
    model.shared.load_state_dict(pretrained.shared.state_dict())
    return model


def read_card(folder: Path) -> Card:
    """Read ``model.json``, or refuse it with a sentence."""
    file = folder / "model.json"
    if not file.is_file():
        what = "does not exist" if not folder.exists() else "is not a model: no model.json in it"
        raise FirehoseError(f"{folder} {what}; make one with `firehose pretrain`.")
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        schema = body["schema_version"]
        if body["format"] == FORMAT and schema not in (SCHEMA, WITHOUT_SEAL):
            raise FirehoseError(
                f"{folder} has model schema {schema}, this Firehose reads {SCHEMA}; train it "
                "again, or use the Firehose that made it."
            )
        seal = None if schema == WITHOUT_SEAL else body.pop("seal")
        card = Card.model_validate(body)
    except (ValueError, KeyError, TypeError, RecursionError):  # pydantic's errors are ValueErrors
        raise FirehoseError(f"{file} is not the file of a model: it cannot be read.") from None
    if seal is not None and seal != seal_of(body):
        raise FirehoseError(f"{folder} is damaged: model.json was altered; {REMEDY}.")
    return card


def refuse_other_words(folder: Path, vocabulary: Vocabulary, corpus: Corpus) -> None:
    """Refuse a corpus whose tokens mean something else to the model."""
    if vocabulary.model != corpus.vocabulary.model:
        raise FirehoseError(
            f"{folder} ({vocabulary.size:,} pieces) and {corpus.path} "
            f"({corpus.vocabulary.size:,} pieces) have different vocabularies; prepare the corpus "
            f"with --vocab-model {folder / 'vocabulary.model'}."
        )
