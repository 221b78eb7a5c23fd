"""Experts mixed online: the model, averages of it and memories, weighed place by place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from firehose.batch import Batch, Part
from firehose.errors import FirehoseError
from firehose.methods.experts import EXPERTS, Evidence, Expert, Portion
from firehose.methods.experts.contexts import Contexts, targets
from firehose.methods.experts.gate import Gate
from firehose.methods.experts.posterior import Posterior
from firehose.methods.predictor import Predictor
from firehose.methods.step import Setup
from firehose.models.data_parallel import DataParallel, joined_places, places_of
from firehose.models.model import Outlook, Paid, Speaker, WeightSet
from firehose.models.personal import SHARE, predicted_places
from firehose.plugins import Choice

AT_ONCE = 1 << 23  # probabilities that experts are asked for at once when a text is written
NO_PIECE = -1  # among pieces that are asked for, where there are fewer
ExpertChoice = Annotated[SerializeAsAny[Choice], BeforeValidator(EXPERTS.settings)]


class MixtureSettings(Choice):
    """Which experts there are beside the model, and how their weights are learned."""

    kind: str = "mixture"
    experts: tuple[ExpertChoice, ...] = Field(default=("memory",), validate_default=True)
    weight_sets: int = Field(default=1, ge=0, le=16)  # of the model: the first that pay; 0: none
    learn_by_share: bool = True  # whether the model learns a piece by its share in what was said
    prime: bool = True  # whether the experts know the posts that come before the stream
    weighing: Literal["network", "posterior"] = "network"  # by place, or by what each has paid
    hidden: int = Field(default=64, ge=1, le=4096)  # units of the network that weighs
    rate: float = Field(default=3e-3, gt=0, allow_inf_nan=False)  # of its steps
    steps: int = Field(default=4, ge=0, le=100)  # on each round, each on a share of its pieces
    seed: int = Field(default=0, ge=0, lt=2**63)  # added to that of the game


class _Paid(NamedTuple):
    """A batch that was paid for."""

    batch: Batch
    part: Part | None  # the posts that are looked at here; None: all, no process divides them
    evidence: Evidence  # at the places of these
    share: NDArray[np.float64]  # [places], of the model in what was said of the piece that came


class Mixture(Predictor):
    """Predicts with a mixture of experts, each a distribution over all pieces.

    What a post costs is decided before anything is learned from it: the weights, and what the
    experts remember, change in ``learn``.
    """

    Settings = MixtureSettings
    settings: MixtureSettings

    def __init__(
        self, settings: MixtureSettings, setup: Setup, weights: Sequence[WeightSet]
    ) -> None:
        super().__init__(settings, setup, weights)
        _refuse_unfit(settings, self.model, weights)
        self.mixed = list(weights[: settings.weight_sets])
        self.experts: list[Expert] = [EXPERTS.make(each, setup) for each in settings.experts]
        self.reach = max((expert.reach for expert in self.experts), default=1)
        nobody = np.zeros(0, np.int64)
        nothing = Contexts(np.zeros((self.reach, 0), np.int32), nobody, nobody)
        outlooks = [Outlook(*np.zeros((3, 0))) for _ in self.mixed]
        empty = self.gather(nothing, np.zeros((0, 1), np.int64), outlooks, np.zeros((0, 0, 1)))
        sizes = len(empty.features), len(empty.speaks)
        self.gate = _make_gate(settings, *sizes, setup.seed)
        self._paid: _Paid | None = None  # the last batch, until it is learned from

    @property
    def opinions(self) -> tuple[str, ...]:
        """What the opinions are called, in order."""
        own = [name for expert in self.experts for name in expert.opinions]
        return (*own, *(each.name for each in self.mixed), "uniform")

    def prime(self, past: Iterable[Batch]) -> None:
        """Remember posts that come before the stream."""
        for batch in past if self.settings.prime else ():
            for expert in self.experts:
                expert.learn(batch)

    def pay(self, batch: Batch) -> Paid:
        """What each post costs, without changing anything."""
        part = self._part(batch)
        evidence = self._look(batch, part)
        by_model = evidence.probability.copy()
        by_model[: -1 - len(self.mixed)] = by_model[-1:] = 0  # memories, and the uniform opinion
        both = np.concatenate([evidence.probability, by_model], axis=2)
        said = self.gate.mix(evidence._replace(probability=both), _posts(_of_part(batch, part)))
        mixed, by_model = said.T if part is None else joined_places(batch, part, said.T)
        self._paid = _Paid(batch, part, evidence, by_model / mixed)
        nats = np.bincount(_posts(batch), -np.log(mixed), len(batch))
        return Paid(nats.astype(np.float64), batch.words)

    def to_learn_from(self, batch: Batch) -> Batch:
        """The posts, with the model's share in what was said of each piece.

        The gradient of what the mixture pays is the model's own, times this share: steps are not
        spent on what a memory knows.
        """
        if not (self.settings.learn_by_share and self.mixed):
            return batch
        share = np.zeros(len(batch.tokens), np.float16)
        share[predicted_places(batch)] = self._of(batch).share
        return batch.with_columns(per_token={SHARE: share})

    def learn(self, batch: Batch) -> None:
        """Learn the weights from what was paid, and remember the posts."""
        paid, portion = self._of(batch), None
        self._paid, post = None, _posts(_of_part(batch, paid.part))
        if paid.part is not None:
            total = len(batch.tokens) - len(batch)
            portion = Portion(places_of(batch, paid.part), total)
        self.gate.learn(paid.evidence, post, portion)
        for expert in self.experts:
            expert.learn(batch)

    @property
    def leaves_out(self) -> bool:
        """Whether an expert can leave posts out."""
        return any(expert.leaves_out for expert in self.experts)

    @contextmanager
    def without(self, batch: Batch) -> Iterator[None]:
        """Inside, predict as if no expert had learned these posts, though the weights have."""
        paid, self._paid = self._paid, None
        try:
            with ExitStack() as stack:
                for expert in self.experts:
                    stack.enter_context(expert.without(batch))
                yield
        finally:
            self._paid = paid

    def _of(self, batch: Batch) -> _Paid:
        """What was said of a batch, which need not have been paid for."""
        if self._paid is None or self._paid.batch is not batch:
            self.pay(batch)
        assert self._paid is not None
        return self._paid

    def forget(self, user: int) -> int:
        """Erase a user's posts and counts; returns how many posts there were."""
        self._paid = None
        return sum(expert.forget(user) for expert in self.experts)

    def users(self) -> NDArray[np.int64]:
        """The numbers of the users of whom an expert keeps something."""
        every = [np.zeros(0, np.int64), *(expert.users() for expert in self.experts)]
        return np.unique(np.concatenate(every))

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Let the experts know users by other numbers."""
        self._paid = None
        for expert in self.experts:
            expert.renumber(numbers)

    def protect(self, min_users: int) -> bool:
        """Let no expert tell what fewer than ``min_users`` have written; False: one is silent."""
        safe = [expert.protect(min_users) for expert in self.experts if min_users > 1]
        return all(safe)

    @property
    def speaker(self) -> Speaker:
        """Itself."""
        return self

    def speak(self, tokens: Tensor, user: int, of_model: Sequence[Tensor]) -> Tensor:
        """Log-probabilities of every piece after several texts of a user, ``[texts, pieces]``.

        Raises FirehoseError for a posterior: its weights depend on what the text has cost so far.
        """
        if isinstance(self.gate, Posterior):
            raise FirehoseError(
                'A mixture with weighing = "posterior" pays, but it cannot write or suggest; for '
                "that, play with --set play.predictor.weighing=network."
            )
        texts = tokens.numpy()
        size = max(AT_ONCE // (self.model.pieces * len(self.opinions)), 1)
        found = []
        for start in range(0, len(texts), size):
            contexts = Contexts.of_rows(texts[start : start + size], user, self.reach)
            logs = [each[start : start + size].double() for each in of_model]
            found.append(self._say(contexts, logs))
        return torch.from_numpy(np.log(np.concatenate(found)))

    def _say(self, contexts: Contexts, logs: Sequence[Tensor]) -> NDArray[np.float64]:
        """The probability of every piece at some places, ``[places, pieces]``.

        ``logs`` are those of the model's, by set of weights. The experts find most pieces
        impossible and are not asked of them: there the model's sets and the uniform opinion are
        all that count. To learn by how much, it is asked what is said of pieces that one opinion
        alone is sure of.
        """
        sets, places, pieces = len(logs), len(contexts), self.model.pieces
        of_model = np.array([each.exp().numpy() for each in logs]).reshape(sets, places, pieces)
        possible = np.zeros((places, pieces), bool)
        for expert in self.experts:
            possible |= expert.candidates(contexts, pieces)
        row, piece = possible.nonzero()
        counts = possible.sum(1)
        column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        asked = np.full((places, int(counts.max(initial=1))), NO_PIECE)
        asked[row, column] = piece
        of_asked = np.take_along_axis(of_model, np.maximum(asked, 0)[None], 2)
        evidence = self.gather(contexts, asked, [_outlook(each) for each in logs], of_asked)
        sure = np.zeros((len(evidence.speaks), places, sets + 1), np.float32)
        sure[-1 - sets :] = np.eye(sets + 1, dtype=np.float32)[:, None]
        both = np.concatenate([evidence.probability, sure], axis=2)
        said = self.gate.mix(evidence._replace(probability=both))
        weights = said[:, asked.shape[1] :]
        mixed: NDArray[np.float64] = np.einsum("ps,spm->pm", weights[:, :-1], of_model)
        mixed += weights[:, -1:] / pieces
        mixed[row, piece] = said[row, column]
        return mixed

    def _look(self, batch: Batch, part: Part | None) -> Evidence:
        """What all experts say of the pieces that came in some of the posts."""
        outlooks = []
        for weights in self.mixed:
            with weights.in_use(batch.user):
                outlooks.append(self.model.outlook(batch))
        own = _of_part(batch, part)
        if part is not None:
            places = places_of(batch, part)
            outlooks = [Outlook(*(each[places] for each in outlook)) for outlook in outlooks]
        came = targets(own)[:, None]
        of_model = np.array([np.exp(outlook.log_prob) for outlook in outlooks])
        of_model = of_model.reshape(len(outlooks), *came.shape)
        return self.gather(Contexts.of(own, self.reach), came, outlooks, of_model)

    def _part(self, batch: Batch) -> Part | None:
        """The posts of a batch that are looked at here, where several processes share them."""
        return self.model.part(batch) if isinstance(self.model, DataParallel) else None

    def gather(
        self,
        contexts: Contexts,
        pieces: NDArray[np.int64],
        outlooks: Sequence[Outlook],
        of_model: NDArray[Any],
    ) -> Evidence:
        """What the experts say of some pieces, ``[places, pieces]``, and the model beside them.

        ``of_model`` are the probabilities under each set of weights, ``[sets, places, pieces]``.
        """
        parts = [expert.look(contexts, pieces) for expert in self.experts]
        uniform = np.full((1, *pieces.shape), 1 / self.model.pieces)
        always = np.ones((len(outlooks) + 1, len(contexts)), bool)
        known = [each / 3 for outlook in outlooks for each in (outlook.largest, outlook.entropy)]
        features = [*known, np.log1p(contexts.depth) / 3]
        return Evidence(
            np.concatenate([*(p.probability for p in parts), of_model, uniform], dtype=np.float32),
            np.concatenate([*(part.speaks for part in parts), always]),
            np.concatenate([*(part.features for part in parts), features], dtype=np.float32),
        )

    def state(self) -> dict[str, Any]:
        """The weighing network, and what the experts keep."""
        experts = {str(number): expert.state() for number, expert in enumerate(self.experts)}
        return {"gate": self.gate.state(), "experts": experts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self._paid = None
        self.gate.restore(state["gate"])
        for number, expert in enumerate(self.experts):
            expert.restore(state["experts"][str(number)])


def _refuse_unfit(settings: MixtureSettings, model: Any, weights: Sequence[WeightSet]) -> None:
    if not hasattr(model, "pieces"):
        raise FirehoseError("A mixture predicts texts; pictures need --set play.predictor=model.")
    if settings.weight_sets > len(weights):
        raise FirehoseError(
            f"play.predictor.weight_sets = {settings.weight_sets}, but the optimizer has "
            f"{len(weights)}; name more horizons with --optimizer averaged --set "
            "'play.optimizer.horizons=[0.1, 100]'."
        )


def _make_gate(
    settings: MixtureSettings, features: int, opinions: int, seed: int
) -> Gate | Posterior:
    if settings.weighing == "posterior":
        return Posterior(opinions)
    learning = (settings.hidden, settings.rate, (settings.seed + seed) % 2**63, settings.steps)
    return Gate(features, opinions, *learning)


def _of_part(batch: Batch, part: Part | None) -> Batch:
    """Some of the posts of a batch, or all."""
    return batch if part is None else batch.select(part)


def _posts(batch: Batch) -> NDArray[np.int64]:
    """The post of each place of a batch."""
    return np.repeat(np.arange(len(batch)), batch.lengths - 1)


def _outlook(log_probs: Tensor) -> Outlook:
    """How sure a model is, from all it says, ``[places, pieces]``; no piece has come yet."""
    entropy = -(log_probs.exp() * log_probs).sum(1)
    unknown = torch.full_like(entropy, torch.nan)
    return Outlook(unknown.numpy(), log_probs.amax(1).numpy(), entropy.numpy())
