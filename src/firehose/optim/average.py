"""Exponential averages of a model's weights: of the shared ones, and of the rows of users."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import AfterValidator
from torch import Tensor

from firehose.optim.rows import RowState, UserRows
from firehose.optim.rule import Trainable
from firehose.parallel.divided import Share

RAMP = 1 / 3  # of the steps so far: no horizon in steps is longer, so that the start fades


def _is_horizon(value: float) -> float:
    if 0 < value < 1 or value > 1:
        return value
    raise ValueError("a horizon is a number of steps above 1, or a share of them below 1")


Horizon = Annotated[float, AfterValidator(_is_horizon)]  # of an average


def decay_of(horizon: float, step: int) -> float:
    """What the ``step``-th step, counted from 1, leaves of an average: 1 − 1 / its horizon.

    A horizon of 1 or more is a number of steps, which is approached by (1 + n) / (4 + n) after n
    steps; one below 1 is a share of the steps so far, whatever their number.
    """
    if horizon < 1:
        return 1 - 1 / (1 + horizon * step)
    return 1 - 1 / min(horizon, 1 + RAMP * step)


class RowAverage(RowState):
    """The average of each row of a table of users; what a step costs is the same for any number.

    The average of a row that stays where it is draws nearer to it with every step. That is put
    off: a row keeps its average of when it last moved, and how much time there had been, and is
    brought up to date where it is looked at, or is about to move again.
    """

    def __init__(self, users: UserRows) -> None:
        super().__init__(users, (users.vectors.shape[1],))
        self.stamps = RowState(users, dtype=torch.float64)  # the clock when a row last moved
        self.clock = 0.0  # −Σ ln decay, over all steps
        self.total = torch.zeros_like(users.total)  # of the averages of all rows here, up to date
        self._total = Share(users.shards, lambda: self.total[None])
        self.added(torch.arange(users.shards.room(len(users))))

    def follow(self, decay: float) -> None:
        """Let time pass; rows that moved did so before."""
        self.clock -= math.log(decay)
        self.total = torch.lerp(self.table.total, self.total, decay)

    def now(self, rows: Tensor) -> Tensor:
        """The averages of some rows, up to date."""
        left = torch.exp(self.stamps[rows] - self.clock).to(self.table.vectors.dtype)
        return torch.lerp(self.table.vectors[rows], self[rows], left[:, None])

    def moving(self, rows: Tensor) -> None:
        """Bring rows up to date that are about to move."""
        self[rows], self.stamps[rows] = self.now(rows), self._stamp()

    def added(self, rows: Tensor) -> None:
        """The average of a new row is the row."""
        vectors = self.table.vectors[rows]
        self[rows], self.stamps[rows] = vectors, self._stamp()
        self.total += vectors.double().sum(0)

    def move(self, source: int, target: int) -> None:
        """Forget row ``target``, also in the sum of all; row ``source`` takes its place."""
        self.total -= self.now(torch.tensor([target]))[0].double()
        super().move(source, target)

    def _stamp(self) -> Tensor:
        return torch.tensor(self.clock, dtype=torch.float64)

    def exchange(self, rows: Tensor, vectors: Tensor) -> Tensor:
        """Put other vectors into the table, and the sum of all with them; returns the old ones."""
        users = self.table
        before = users.vectors[rows]
        users.vectors[rows] = vectors
        users.total, self.total = self.total, users.total
        return before

    def whole_state(self) -> dict[str, Any]:
        """All that is kept, for a checkpoint."""
        tensors = {"average": super().state(), "stamps": self.stamps.state()}
        return tensors | {"total": torch.from_numpy(self._total.sum()), "clock": self.clock}

    def restore_whole(self, state: Mapping[str, Any]) -> None:
        """Become what ``whole_state`` was taken from."""
        super().restore(state["average"])
        self.stamps.restore(state["stamps"])
        self.total, self.clock = self.table.shards.once(state["total"]), state["clock"]


class Average:
    """An exponential average of a model's weights, which follows the model from step to step.

    It takes the place of the weights for a while with ``in_use``; learning goes on from the raw
    ones. ``horizon`` is a number of steps, or below 1 a share of the steps so far; without
    ``rows`` the users' vectors are those of the model.
    """

    def __init__(self, model: Trainable, horizon: float, rows: bool = True) -> None:
        self.model = model
        self.horizon = horizon
        self.name = f"average {horizon:g}"
        self.parameters: list[Tensor] = list(model.parameters())
        self.names = [name for name, _ in model.named_parameters()]
        self.shared = [weight.detach().clone() for weight in self.parameters]
        self.rows = RowAverage(model.users) if rows and model.users is not None else None
        self.steps = 0
        self.is_in_use = False

    @torch.no_grad()
    def follow(self, steps: int) -> None:
        """Take in the weights after so many more steps."""
        if not steps:
            return
        numbers = range(self.steps + 1, self.steps + steps + 1)
        decay = math.prod(decay_of(self.horizon, number) for number in numbers)
        torch._foreach_lerp_(self.shared, self.parameters, 1 - decay)
        if self.rows is not None:
            self.rows.follow(decay)
        self.steps += steps

    @contextmanager
    def in_use(self, users: NDArray[np.integer] | None = None) -> Iterator[None]:
        """Let the model have the averaged weights inside, where nothing may be learned.

        ``users`` are those who will be looked at; None: everybody, which takes longer the more
        there are. Shared weights change places with their averages, and are not copied.
        """
        if self.is_in_use:
            yield
            return
        rows, before = self._known(users), torch.zeros(0)
        if self.rows is not None:
            before = self.rows.exchange(rows, self.rows.now(rows))
        self._swap()
        self.is_in_use = True
        try:
            yield
        finally:
            self.is_in_use = False
            self._swap()
            if self.rows is not None:
                self.rows.exchange(rows, before)

    @torch.no_grad()
    def adopt(self, users: NDArray[np.integer], moved: Sequence[Tensor]) -> None:
        """Let the model go on from the average: shared weights, and the rows of some users.

        These are ``users``, and the rows that ``moved``; a row that has not moved for long is its
        own average.
        """
        torch._foreach_copy_(self.parameters, self.shared)
        if self.rows is not None:
            known = self._known(users)
            (own,) = self.rows.table.own(torch.cat([known[:0], *moved]))
            places = torch.cat([known, own]).unique()
            self.rows.table.put(places, self.rows.now(places))

    def _known(self, users: NDArray[np.integer] | None) -> Tensor:
        """The places of those of these users who have a row that is held here."""
        table = self.model.users
        if table is None:
            return torch.zeros(0, dtype=torch.int64)
        if users is None:
            return torch.arange(table.shards.room(len(table)))
        rows = table.rows(np.unique(users))
        (places,) = table.own(torch.from_numpy(rows[rows >= 0]))
        return places

    def _swap(self) -> None:
        for place, weight in enumerate(self.parameters):
            weight.data, self.shared[place] = self.shared[place], weight.data

    def state(self) -> dict[str, Any]:
        """The averages, and the steps so far."""
        rows = {} if self.rows is None else self.rows.whole_state()
        shared = dict(zip(self.names, self.shared, strict=True))
        return {"steps": self.steps, "shared": shared, "rows": rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.steps = state["steps"]
        for average, name in zip(self.shared, self.names, strict=True):
            average.copy_(state["shared"][name])
        if self.rows is not None:
            self.rows.restore_whole(state["rows"])
