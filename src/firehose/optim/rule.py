"""Update rules: how a model moves along a gradient."""

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from firehose.optim.gradient import Gradient
from firehose.optim.rows import RowState, UserRows
from firehose.plugins import Plugin, Registry


class Trainable(Protocol):
    """What an update rule moves: shared weights, and the vectors of users if there are any."""

    @property
    def users(self) -> UserRows | None:
        """The table of users' vectors; None: the model knows no users."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """The shared weights."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The shared weights with their names."""


class UpdateRule(Plugin):
    """Moves a model along gradients; what it remembers of earlier ones is its own.

    A rule is made from its settings and the model. Its ``moments`` and ``row_states`` are what a
    snapshot copies, so that a step can be taken back.
    """

    def __init__(self, settings: Any, model: Trainable) -> None:
        self.settings = settings
        self.model = model
        self.parameters = list(model.parameters())

    def begin_round(self) -> None:
        """Called before the first step of each round, for schedules that count rounds."""

    def step(self, gradient: Gradient) -> float:
        """Move; returns the norm of the gradient as it came. Raises NotFinite, and stays."""
        raise NotImplementedError

    def moments(self) -> list[Tensor]:
        """What the rule remembers of earlier steps for the shared weights."""
        return []

    def row_states(self) -> list[RowState]:
        """What the rule remembers of earlier steps for the rows of users."""
        return []


RULES = Registry(
    "update rule",
    UpdateRule,
    {"adam": "firehose.optim.adam:Adam", "sgd": "firehose.optim.sgd:SGD"},
    default="adam",
)
