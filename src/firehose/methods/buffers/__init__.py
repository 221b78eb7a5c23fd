"""Buffers: memories of limited size. One file a strategy.

``push`` returns whatever is not in the buffer afterwards, be it a post that had to leave or one
that was not let in: nothing is ever lost by accident. A batch arrives as a whole. What a push or a
sample costs depends on the posts in it, not on how many users or posts there are.
"""

from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from firehose.batch import Batch
from firehose.plugins import Choice, Plugin, Registry


class BufferSettings(Choice):
    """The limit of a buffer: in posts, or in posts for each user seen so far."""

    kind: str = "stratified"
    per_user: int | None = Field(default=None, ge=0)
    posts: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.per_user is None) == (self.posts is None):
            raise ValueError("a buffer has one limit: give posts, or per_user")
        return self


class Buffer(Plugin):
    """A memory of posts; it draws only from the generator it is given."""

    Settings = BufferSettings

    def __len__(self) -> int:
        raise NotImplementedError

    def push(self, batch: Batch, generator: np.random.Generator) -> Batch:
        """Let posts in; returns all that are not in the buffer afterwards."""
        raise NotImplementedError

    def sample(self, count: int, generator: np.random.Generator) -> Batch:
        """``count`` posts, drawn with replacement from a buffer that is not empty."""
        raise NotImplementedError

    def all(self) -> Batch:
        """Every post in a buffer that is not empty."""
        raise NotImplementedError

    def forget(self, user: int) -> int:
        """Erase a user's posts and all counts of the user; returns how many posts there were."""
        raise NotImplementedError


BUFFERS = Registry(
    "buffer",
    Buffer,
    {
        "fifo": "firehose.methods.buffers.fifo:FIFO",
        "reservoir": "firehose.methods.buffers.reservoir:Reservoir",
        "stratified": "firehose.methods.buffers.stratified:Stratified",
        "stratified-reservoir": "firehose.methods.buffers.stratified:StratifiedReservoir",
        "exemplars": "firehose.methods.buffers.exemplars:Exemplars",
    },
    default="stratified",
)
BufferChoice = Annotated[SerializeAsAny[Choice], BeforeValidator(BUFFERS.settings)]
