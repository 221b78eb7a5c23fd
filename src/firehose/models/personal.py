"""Four ways to make the shared model personal: one mechanism, put in different places."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from firehose.batch import Batch, gather
from firehose.config import Section
from firehose.models.attention import Grid
from firehose.models.device import Place
from firehose.models.dropout import Dropout, Random
from firehose.models.model import Paid, differentiate
from firehose.models.softmax import nats, weighted_loss
from firehose.models.transformer_xl import Adapt, Shape, TransformerXL
from firehose.models.users import Users, UserVectors
from firehose.optim.gradient import Gradient

Architecture = Literal["agnostic", "encoder", "decoder", "adapters"]


class ModelPlan(Section):
    """A model: its architecture and its sizes; the defaults are the paper's."""

    architecture: Architecture = "adapters"
    shape: Shape = Shape()
    d_user: int = Field(default=32, ge=1)
    mlp: int = Field(default=256, ge=1)  # hidden units of the residual MLPs
    longest: int = Field(default=50, ge=2)  # tokens of a post that are trained on
    new_users: Literal["mean", "zero"] = "mean"


class ResidualMLP(nn.Module):
    """What a user adds to a hidden vector.

    It ends in a LayerNorm whose weight starts at zero, so a fresh one adds exactly nothing: a
    personal model begins as the pretrained model it is built on. The gradient of that weight is
    not zero, so from the second step on the rest learns, too.
    """

    def __init__(self, shape: Shape, hidden: int, random: Random) -> None:
        super().__init__()
        self.drop = Dropout(shape.dropout, random)
        self.inward = nn.Linear(2 * shape.d_model, hidden)
        self.outward = nn.Linear(hidden, shape.d_model)
        self.norm = nn.LayerNorm(shape.d_model)
        nn.init.normal_(self.inward.weight, std=0.02)
        nn.init.normal_(self.outward.weight, std=0.02)
        nn.init.zeros_(self.norm.weight)

    def forward(self, hidden: Tensor, user: Tensor, post: Tensor) -> Tensor:
        """``hidden`` [tokens, d_model], ``user`` [posts, d_model], ``post`` [tokens]."""
        # [hidden, user] times the whole matrix, but the user's half once per post.
        ours, theirs = self.inward.weight.chunk(2, dim=1)
        inner = functional.linear(user, theirs, self.inward.bias)[post]
        inner = functional.linear(hidden, ours).add_(inner)
        outer = self.drop(self.outward(self.drop.after_relu(inner)))
        return hidden + self.norm(outer)  # type: ignore[no-any-return]


class Personal(nn.Module):
    """A language model of posts that knows who writes."""

    def __init__(self, plan: ModelPlan, pieces: int, seed: int = 0) -> None:
        super().__init__()
        self.plan = plan
        self.place = Place()  # where the shared weights are; the users' vectors stay on the CPU
        self.random = Random(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build(pieces)

    def _build(self, pieces: int) -> None:
        plan = self.plan
        self.shared = TransformerXL(plan.shape, pieces, self.random)
        layers = plan.shape.layers
        places = {
            "agnostic": [],
            "encoder": [0],
            "decoder": [layers],
            "adapters": range(1, layers + 1),
        }[plan.architecture]
        self.mlps = nn.ModuleDict(
            {str(place): ResidualMLP(plan.shape, plan.mlp, self.random) for place in places}
        )
        self.users = Users(plan.d_user, plan.new_users)
        if self.is_personal:
            self.projection = nn.Linear(plan.d_user, plan.shape.d_model, bias=False)
            nn.init.normal_(self.projection.weight, std=0.02)

    @property
    def is_personal(self) -> bool:
        """Whether it makes a difference who writes."""
        return self.plan.architecture != "agnostic"

    def move_to(self, place: Place) -> Self:
        """Compute there from now on."""
        self.place = place
        return self.to(place.device)

    @torch.no_grad()
    def begin_with(self, pretrained: "Personal") -> None:
        """Take over the shared weights; what belongs to users stays fresh."""
        self.shared.load_state_dict(pretrained.shared.state_dict())

    @property
    def max_tokens(self) -> int:
        """The tokens of a post that are trained on."""
        return self.plan.longest

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

    def loss(self, batch: Batch) -> tuple[Tensor, UserVectors]:
        """The mean over posts of the mean over their tokens, to differentiate.

        Posts are cut to ``plan.longest`` tokens. The second value holds the vectors of the users
        in the batch; their gradient is there after ``backward``. Who is new has a row now.
        """
        inputs, targets, grid, lengths = self._predictions(batch, self.plan.longest)
        taken = self.users.take(batch.user, learn=self.is_personal)
        shared = self.shared
        with self.place.learning():
            hidden, _ = shared(inputs, grid, self._adapter(taken, grid))
        weights = (1 / (lengths * len(lengths)))[grid.post]
        hidden, embedding, bias = (
            part.to(self.place.precision) for part in (hidden, shared.embedding, shared.output_bias)
        )
        return weighted_loss(hidden, embedding, bias, targets, weights), taken

    def gradient(self, batch: Batch) -> Gradient:
        """Of the loss, by all shared weights and by the vectors of the users in the batch."""
        loss, taken = self.loss(batch)
        tokens = len(batch.tokens) - len(batch)
        return differentiate(loss, list(self.parameters()), taken, tokens)

    def cost(self, batch: Batch) -> float:
        """What ``loss`` would be, but without dropout, gradient, or new users."""
        inputs, targets, grid, lengths = self._predictions(batch, self.plan.longest)
        costs = self._score(batch, inputs, targets, grid)
        return float((costs / (lengths * len(lengths))[grid.post]).sum())

    def pay(self, batch: Batch) -> Paid:
        """What the words of each whole post cost. Changes nothing: no gradient, no new user."""
        inputs, targets, grid, _ = self._predictions(batch)
        costs = self._score(batch, inputs, targets, grid)
        paid = costs.new_zeros(len(batch)).index_add_(0, grid.post, costs)
        return Paid(paid.cpu().numpy(), batch.words)

    @torch.no_grad()
    def _score(self, batch: Batch, inputs: Tensor, targets: Tensor, grid: Grid) -> Tensor:
        """The nats of each target."""
        taken = self.users.take(batch.user, learn=False)
        with evaluating(self):
            hidden, _ = self.shared(inputs, grid, self._adapter(taken, grid))
        costs = nats(hidden, self.shared.embedding, self.shared.output_bias, targets)
        return costs.double()

    def _predictions(
        self, batch: Batch, longest: int | None = None
    ) -> tuple[Tensor, Tensor, Grid, Tensor]:
        """Where the model is: inputs, targets, how they are laid out, and how many of each post."""
        inputs, targets, lengths = predictions(batch, longest)
        device = self.place.device
        grid = Grid(lengths, device=device)
        return inputs.to(device), targets.to(device), grid, lengths.to(device)

    def _adapter(self, taken: UserVectors, grid: Grid) -> Adapt:
        """What the users of a batch add, and where."""
        if not self.is_personal:
            return lambda _, hidden: hidden
        vectors, which = (part.to(self.place.device) for part in (taken.vectors, taken.which))
        user = self.projection(vectors) * self.plan.shape.d_model**0.5  # [users, d_model]
        owner = which[grid.post]  # [tokens]

        def adapt(place: int, hidden: Tensor) -> Tensor:
            return self.mlps[str(place)](hidden, user, owner) if str(place) in self.mlps else hidden

        return adapt


@contextmanager
def evaluating(model: Personal) -> Iterator[None]:
    """Without dropout inside, and as it was afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def predictions(batch: Batch, longest: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Each token but a post's last, the token after it, and their number per post."""
    lengths = batch.lengths if longest is None else np.minimum(batch.lengths, longest)
    places, _ = gather(batch.offsets[:-1], lengths - 1)
    tokens = batch.tokens.astype(np.int64)
    inputs, targets = torch.from_numpy(tokens[places]), torch.from_numpy(tokens[places + 1])
    return inputs, targets, torch.from_numpy(lengths - 1)
