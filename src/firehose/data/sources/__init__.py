"""The sources of posts, one file for each.

A source is a configuration section with two methods. ``shards`` divides the input into shards,
which can be read independently and in any order; ``read`` yields the posts of one shard, and a
:class:`~firehose.data.post.Skip` for each record that is not a post. Neither loads everything
into memory. `docs/add-a-source.md` shows an example.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from firehose.config import Section, Texts, nearest
from firehose.data.post import Post, Skip
from firehose.errors import FirehoseError
from firehose.plugins import USERS, brief, load_class

Shard = dict[str, Any]  # values that JSON can hold, as it is sent to a worker

# The module and class of each kind, in the order in which they are asked to recognise a path.
BUILT_IN = {
    "git": "firehose.data.sources.git:Git",
    "twitter": "firehose.data.sources.twitter:Twitter",
    "tabular": "firehose.data.sources.tabular:Tabular",
    "nature": "firehose.data.nature:Nature",
}


class Truth(Protocol):
    """The true model of a simulated source: the best predictor's loss on each post, in nats."""

    def nats(
        self, users: Sequence[str], times: NDArray[np.int64], texts: Sequence[str]
    ) -> NDArray[np.float64]:
        """The loss on each post of the best predictor that knows the user."""

    def tally(self, users: Sequence[str], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts of posts by user and time, as :meth:`agnostic_nats` takes them."""

    def agnostic_nats(
        self,
        times: NDArray[np.int64],
        texts: Sequence[str],
        counts: NDArray[np.int64],
        weights: Literal["train", "balanced"],
    ) -> NDArray[np.float64]:
        """The loss on each post of the best predictor that does not know the user."""


class Source(Section):
    """The base class of all sources."""

    kind: str = ""  # one of BUILT_IN, or file.py:ClassName
    paths: Texts = ()

    @classmethod
    def recognises(cls, path: Path) -> bool:  # noqa: ARG003
        """Whether ``path`` is, by its name or first bytes, something this source reads."""
        return False

    def shards(self) -> list[Shard]:
        """The shards of the input, in a fixed order."""
        raise NotImplementedError

    def read(self, shard: Shard) -> Iterator[Post | Skip]:
        """The posts of one shard, and a skip for each record that is not a post."""
        raise NotImplementedError

    def records(self, shard: Shard) -> Iterator[Post | Skip]:
        """What ``read`` yields; a defect in a user's own source becomes a one-sentence error."""
        try:
            yield from self.read(shard)
        except FirehoseError:
            raise
        except Exception as error:
            if not type(self).__module__.startswith(USERS):
                raise
            raise FirehoseError(f"{self.kind} failed on {shard}: {brief(error)}.") from error

    def truth(self) -> Truth | None:
        """The model that the posts were drawn from, where it is known."""
        return None

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        module = sys.modules[type(self).__module__]
        if not module.__name__.startswith(USERS):
            return super().__reduce_ex__(protocol)
        # A worker cannot import a user's own file by the name of its module, so it gets the path.
        return _revive, (f"{module.__file__}:{type(self).__name__}", dict(self))


def _revive(place: str, values: dict[str, Any]) -> Source:
    return find(place).of(values)


def find(kind: str) -> type[Source]:
    """The source class of a built-in kind, or of ``file.py:ClassName``."""
    place = BUILT_IN.get(str(kind), str(kind))
    if ":" not in place:
        raise FirehoseError(f"There is no source {kind!r}: {nearest(str(kind), list(BUILT_IN))}")
    found = load_class(place, "source")
    if not issubclass(found, Source):
        raise FirehoseError(f"{place} is not a source; name a subclass of Source.")
    return found


def recognise(paths: Sequence[str]) -> str:
    """The kind of source that reads all of ``paths``; without any, nature."""
    if not paths:
        return "nature"
    kinds = set()
    for path in paths:
        here = Path(path).expanduser()
        if not here.exists() and not any(sign in path for sign in "*?["):
            raise FirehoseError(f"{path} does not exist.")
        found = [kind for kind in BUILT_IN if find(kind).recognises(here)]
        if not found:
            raise FirehoseError(
                f"Cannot tell what {path} is; say it with --source ({', '.join(BUILT_IN)})."
            )
        kinds.add(found[0])
    if len(kinds) > 1:
        raise FirehoseError(
            f"The paths are of different kinds ({', '.join(sorted(kinds))}); give one kind."
        )
    return kinds.pop()
