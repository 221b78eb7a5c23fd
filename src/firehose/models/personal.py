"""Four ways to make the shared model personal: residual MLPs in different places."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from firehose.batch import Batch, Part, gather
from firehose.config import Section
from firehose.errors import FirehoseError
from firehose.models.attention import Grid
from firehose.models.device import Device
from firehose.models.dropout import Dropout, Random
from firehose.models.model import Outlook, Paid, differentiate
from firehose.models.sizes import FLOAT, count_weights, refuse_beyond_memory
from firehose.models.softmax import most_probable, nats, outlook, soft_loss, weighted_loss
from firehose.models.transformer_xl import Adapt, Shape, TransformerXL
from firehose.models.users import Users, UserVectors
from firehose.optim.gradient import Gradient

PIECES, LOG_PROBS = "output pieces", "output log-probabilities"  # columns, where outputs are kept
SHARE = "share"  # a column: how much of a token is to be learned; all, where there is none
Architecture = Literal["agnostic", "encoder", "decoder", "adapters"]


class ModelPlan(Section):
    """The architecture and sizes of a model; the defaults are the paper's."""

    architecture: Architecture = "adapters"
    shape: Shape = Shape()
    d_user: int = Field(default=32, ge=1)
    project_users: bool = True  # to d_model; False: d_user is d_model already
    mlp: int = Field(default=256, ge=1)  # hidden units of the residual MLPs
    max_tokens: int = Field(default=50, ge=2)  # tokens of a post that are trained on
    new_users: Literal["mean", "zero"] = "mean"


class ResidualMLP(nn.Module):
    """Adds a correction to a hidden vector, computed from that vector and the user's.

    It ends in a LayerNorm whose weight starts at zero, so a fresh one adds exactly zero: a
    personal model starts as the pretrained model it is built on. The gradient of that weight is
    not zero, so from the second step on the other weights learn, too.
    """

    def __init__(self, shape: Shape, hidden: int, random: Random) -> None:
        super().__init__()
        self.drop = Dropout(shape.dropout, random)
        self.up = nn.Linear(2 * shape.d_model, hidden)
        self.down = nn.Linear(hidden, shape.d_model)
        self.norm = nn.LayerNorm(shape.d_model)
        nn.init.normal_(self.up.weight, std=0.02)
        nn.init.normal_(self.down.weight, std=0.02)
        nn.init.zeros_(self.norm.weight)

    def forward(self, hidden: Tensor, user: Tensor, post: Tensor) -> Tensor:
        """``hidden`` [tokens, d_model], ``user`` [posts, d_model], ``post`` [tokens]."""
        # [hidden, user] times the whole matrix, but the user's half once per post.
        ours, theirs = self.up.weight.chunk(2, dim=1)
        inner = functional.linear(user, theirs, self.up.bias)[post]
        inner = functional.linear(hidden, ours).add_(inner)
        outer = self.drop(self.down(self.drop.after_relu(inner)))
        return hidden + self.norm(outer)  # type: ignore[no-any-return]


class Personal(nn.Module):
    """A language model of posts that takes their users into account."""

    def __init__(self, plan: ModelPlan, pieces: int, seed: int = 0) -> None:
        super().__init__()
        needed = {"A model of this shape": FLOAT * count_weights(plan, pieces)}
        refuse_beyond_memory(needed, "choose smaller sizes in model.shape")
        self.plan = plan
        self.max_tokens = plan.max_tokens  # of a post that are trained on
        self.is_personal = plan.architecture != "agnostic"  # whether users make a difference
        self.device = Device()  # of the shared weights; the users' vectors stay on the CPU
        self.random = Random(seed)
        self.users = Users(plan.d_user, plan.new_users)
        every, last = range(1, plan.shape.layers + 1), plan.shape.layers
        places = {"agnostic": [], "encoder": [0], "decoder": [last], "adapters": every}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.shared = TransformerXL(plan.shape, pieces, self.random)
            self.mlps = nn.ModuleDict()  # by place: before the first layer (0), or after one
            for place in places[plan.architecture]:
                self.mlps[str(place)] = ResidualMLP(plan.shape, plan.mlp, self.random)
            self.projection = self._make_projection()

    def _make_projection(self) -> nn.Module:
        d_user, d_model = self.plan.d_user, self.plan.shape.d_model
        if self.is_personal and self.plan.project_users:
            projection = nn.Linear(d_user, d_model, bias=False)
            nn.init.normal_(projection.weight, std=0.02)
            return projection
        if self.is_personal and d_user != d_model:
            raise FirehoseError(
                f"Without project_users, d_user = {d_user} must be d_model = {d_model}; make them "
                "equal, or project."
            )
        return nn.Identity()

    def move_to(self, device: Device) -> Self:
        """Move the shared weights to a device, and compute there."""
        self.device = device
        return self.to(device.device)

    def state(self) -> dict[str, Any]:
        """Weights, users' vectors, and where the random numbers of dropout stand."""
        return {
            "weights": self.state_dict(),
            "users": self.users.state(),
            "random": self.random.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.load_state_dict(state["weights"])
        self.users.restore(state["users"])
        self.random.restore(state["random"])

    def loss(self, batch: Batch, part: Part | None = None) -> tuple[Tensor, UserVectors]:
        """The mean over posts of the mean cost of their tokens, to be differentiated.

        What a token costs is times its share, where the batch has that column. Posts are cut to
        ``plan.max_tokens`` tokens. The second value holds the vectors of the users in the batch,
        which have a gradient after ``backward``. New users get a row. With ``part``, it is what
        these posts add to the mean: the sum over parts is the whole.
        """
        (hidden, embedding, bias), targets, weights, taken = self._learn_to_predict(batch, part)
        return weighted_loss(hidden, embedding, bias, targets, weights), taken

    def _learn_to_predict(
        self, batch: Batch, part: Part | None = None
    ) -> tuple[Iterator[Tensor], Tensor, Tensor, UserVectors]:
        """What a loss is made of: hidden vectors, embedding, bias; targets, weights and users."""
        inputs, targets, grid = predictions(batch, self.max_tokens, self.device.device, part)
        # The users of all parts, so that rows are given in the same order wherever one is computed.
        taken = self.users.take(batch.user, learn=self.is_personal)
        if part is not None:
            taken = taken._replace(which=taken.which[part])
        shared = self.shared
        with self.device.learning(), self.random.sharing(grid.tokens):
            hidden = shared(inputs, grid, self.adapter(taken, grid))
        weights = (1 / (grid.lengths * len(batch)))[grid.post] * self._share(batch, part)
        parts = (hidden, shared.embedding, shared.output_bias)
        return (part.to(self.device.precision) for part in parts), targets, weights, taken

    def gradient(self, batch: Batch, part: Part | None = None) -> Gradient:
        """The gradient of the loss by all shared weights and the vectors of the batch's users."""
        loss, taken = self.loss(batch, part)
        return differentiate(loss, list(self.parameters()), taken, self._trained_tokens(batch))

    def _trained_tokens(self, batch: Batch) -> int:
        return int((np.minimum(batch.lengths, self.max_tokens) - 1).sum())

    def with_outputs(self, batch: Batch, count: int, part: Part | None = None) -> Batch:
        """The posts, and beside each token the most probable pieces in its place when it came.

        A post's first token, and those after ``max_tokens``, have zeros beside them; with ``part``,
        so do all tokens of other posts.
        """
        count, tokens = min(count, self.shared.pieces), len(batch.tokens)
        pieces = np.zeros((tokens, count), batch.tokens.dtype)
        log_probs = np.zeros((tokens, count), np.float16)
        if len(batch):
            hidden, _, _ = self._look(batch, self.max_tokens, part)
            found = most_probable(hidden, self.shared.embedding, self.shared.output_bias, count)
            targets = predicted_places(batch, self.max_tokens, part)
            for column, values in zip((pieces, log_probs), found, strict=True):
                column[targets] = values.cpu().numpy()
        return batch.with_columns(per_token={PIECES: pieces, LOG_PROBS: log_probs})

    def gradient_toward_outputs(self, batch: Batch, part: Part | None = None) -> Gradient:
        """The gradient of the loss with the outputs beside the posts in place of their words."""
        (hidden, embedding, bias), _, weights, taken = self._learn_to_predict(batch, part)
        places, device = predicted_places(batch, self.max_tokens, part), self.device.device
        pieces, log_probs = (
            torch.from_numpy(batch.per_token[name][places].astype(kind)).to(device)
            for name, kind in ((PIECES, np.int64), (LOG_PROBS, np.float32))
        )
        loss = soft_loss(hidden, embedding, bias, pieces, log_probs.exp(), weights)
        return differentiate(loss, list(self.parameters()), taken, self._trained_tokens(batch))

    def cost(self, batch: Batch, part: Part | None = None) -> float:
        """The value of ``loss`` without dropout; no gradient is recorded, no user gets a row."""
        costs, grid = self._score(batch, self.max_tokens, part)
        costs = costs * self._share(batch, part)
        return float((costs / (grid.lengths * len(batch))[grid.post]).sum())

    def _share(self, batch: Batch, part: Part | None) -> Tensor | float:
        """How much of each token is to be learned."""
        if SHARE not in batch.per_token:
            return 1.0
        share = batch.per_token[SHARE][predicted_places(batch, self.max_tokens, part)]
        return torch.from_numpy(share.astype(np.float32)).to(self.device.device)

    def pay(self, batch: Batch, part: Part | None = None) -> Paid:
        """The cost of each whole post, or of these; no gradient is recorded, nobody gets a row."""
        costs, grid = self._score(batch, part=part)
        paid = costs.new_zeros(len(grid.lengths)).index_add_(0, grid.post, costs)
        return Paid(paid.cpu().numpy(), batch.words if part is None else batch.words[part])

    @property
    def pieces(self) -> int:
        """The number of pieces that it predicts."""
        return self.shared.pieces

    def outlook(self, batch: Batch, part: Part | None = None) -> Outlook:
        """What it says of each piece of a batch but the first of a post, and how sure it was."""
        hidden, targets, _ = self._look(batch, None, part)
        found = outlook(hidden, self.shared.embedding, self.shared.output_bias, targets)
        return Outlook(*(each.double().cpu().numpy() for each in found))

    @torch.no_grad()
    def _look(
        self, batch: Batch, max_tokens: int | None, part: Part | None = None
    ) -> tuple[Tensor, Tensor, Grid]:
        """Hidden vectors without dropout, what they should predict, and how these are laid out."""
        taken, own = self.users.take(batch.user, learn=False), batch
        if part is not None:
            own = batch.select(part)
            taken = taken._replace(which=taken.which[part])
        inputs, targets, grid = predictions(own, max_tokens, self.device.device)
        with evaluating(self):
            return self.shared(inputs, grid, self.adapter(taken, grid)), targets, grid

    def _score(
        self, batch: Batch, max_tokens: int | None = None, part: Part | None = None
    ) -> tuple[Tensor, Grid]:
        """−log p of each token but a post's first, ``[tokens]``, and how these are laid out."""
        hidden, targets, grid = self._look(batch, max_tokens, part)
        costs = nats(hidden, self.shared.embedding, self.shared.output_bias, targets)
        return costs.double(), grid

    def adapter(self, taken: UserVectors, grid: Grid) -> Adapt:
        """The function that applies the residual MLPs with the users of a batch."""
        user, owner = self.project(taken), taken.which.to(self.device.device)[grid.post]
        return lambda place, hidden: self.adapt(place, hidden, user, owner)

    def project(self, taken: UserVectors) -> Tensor:
        """The vectors of users as all residual MLPs take them, ``[users, d_model]``."""
        vectors = taken.vectors.to(self.device.device)
        return torch.mul(self.projection(vectors), self.plan.shape.d_model**0.5)

    def adapt(self, place: int, hidden: Tensor, user: Tensor, owner: Tensor) -> Tensor:
        """Apply the residual MLP at a place, if there is one: ``[tokens, d_model]`` to the same.

        ``owner`` [tokens] says which row of ``user`` [users, d_model] is whose.
        """
        return self.mlps[str(place)](hidden, user, owner) if str(place) in self.mlps else hidden


@contextmanager
def evaluating(model: Personal) -> Iterator[None]:
    """Switch dropout off inside, and back to what it was afterwards.

    ``model.eval()`` goes through all its parts, which takes longer than some answers.
    """
    was_on, model.random.is_on = model.random.is_on, False
    try:
        yield
    finally:
        model.random.is_on = was_on


def predictions(
    batch: Batch,
    max_tokens: int | None = None,
    device: torch.device | str = "cpu",
    part: Part | None = None,
) -> tuple[Tensor, Tensor, Grid]:
    """Each token but a post's last, the token after each, and how they are laid out for attention.

    Posts are cut to ``max_tokens`` first, if that is given; with ``part``, only these are taken.
    """
    lengths = batch.lengths if max_tokens is None else np.minimum(batch.lengths, max_tokens)
    places = predicted_places(batch, max_tokens, part)
    tokens = batch.tokens.astype(np.int64)
    inputs, targets = torch.from_numpy(tokens[places - 1]), torch.from_numpy(tokens[places])
    grid = Grid(torch.from_numpy(lengths - 1), device=device, part=part)
    return inputs.to(device), targets.to(device), grid


def predicted_places(
    batch: Batch, max_tokens: int | None = None, part: Part | None = None
) -> NDArray[np.int64]:
    """Where in a batch the tokens are that are predicted: all but the first of each post."""
    lengths = batch.lengths if max_tokens is None else np.minimum(batch.lengths, max_tokens)
    chosen = slice(None) if part is None else part
    places, _ = gather(batch.offsets[:-1][chosen] + 1, lengths[chosen] - 1)
    return places
