"""Experts: what the next piece may be, said by memories beside the model. One file a kind.

An expert has one or several opinions, each a distribution over all pieces wherever it speaks. How
much each opinion counts is decided by what the expert says of the place, and never by the piece
that comes there.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.batch import Batch
from firehose.errors import FirehoseError
from firehose.methods.experts.contexts import Contexts
from firehose.methods.step import Setup
from firehose.plugins import Choice, Plugin, Registry


class Evidence(NamedTuple):
    """What experts say at some places."""

    probability: NDArray[np.float32]  # [opinions, places, pieces], of the pieces asked for
    speaks: NDArray[np.bool_]  # [opinions, places]; where not, the probability is 0
    features: NDArray[np.float32]  # [features, places], by which opinions are weighed; about 1


class Portion(NamedTuple):
    """Which places of a round are looked at here, where several processes divide them."""

    places: NDArray[np.int64]
    total: int  # places of the round


class Expert(Plugin):
    """Says what the next piece may be, and remembers posts once they were paid for."""

    opinions: tuple[str, ...] = ()  # what each is called
    reach: int = 1  # how many pieces before a place it looks at
    leaves_out: bool = False  # whether ``without`` does what it says

    def __init__(self, settings: Choice, setup: Setup) -> None:
        self.settings = settings

    def look(self, contexts: Contexts, pieces: NDArray[np.int64]) -> Evidence:
        """Opinions on some pieces at each place, ``pieces`` [places, pieces]; changes nothing.

        The pieces that are asked for at one place are different ones.
        """
        raise NotImplementedError

    def candidates(self, contexts: Contexts, pieces: int) -> NDArray[np.bool_]:
        """Which of all pieces it may find possible at each place, ``[places, pieces]``.

        Of the others it is not asked; where these are many, a text is written faster.
        """
        return np.ones((len(contexts), pieces), bool)

    def learn(self, batch: Batch) -> None:
        """Remember posts that were paid for."""
        raise NotImplementedError

    def without(self, batch: Batch) -> AbstractContextManager[None]:
        """Inside, look as if these posts had never been learned; nothing may be learned meanwhile.

        Whatever else was learned stays as it is, and so does everything afterwards.
        """
        return nullcontext()

    def forget(self, user: int) -> int:
        """Erase all that is kept of a user; returns how many posts there were."""
        raise NotImplementedError

    def users(self) -> NDArray[np.int64]:
        """The numbers of the users of whom something is kept."""
        raise NotImplementedError

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Know users by other numbers; all of ``users`` are given one, no two the same."""
        raise FirehoseError(
            f"{self.settings.kind} cannot give users other numbers: a model that was saved with it "
            "can be used without a corpus, or with the one it was made on."
        )

    def protect(self, min_users: int) -> bool:
        """Tell nobody what fewer than ``min_users`` have written; False: a part is silent now."""
        raise FirehoseError(
            f"{self.settings.kind} does not say whose words it tells; allow it to tell those of "
            "anybody with --min-users 1 (in Python: min_users=1)."
        )


EXPERTS = Registry(
    "expert", Expert, {"memory": "firehose.methods.experts.memory:Memory"}, default="memory"
)
