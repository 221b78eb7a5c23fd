"""The sources of posts, one file for each.

A source is a configuration section with two methods. ``shards`` divides the input into shards,
which can be read independently and in any order; ``read`` yields the posts of one shard, and a
:class:`~firehose.data.post.Skip` for each record that is not a post. Neither loads everything
into memory. `docs/add-a-source.md` shows an example.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from firehose.config import Texts
from firehose.data.post import Post, Skip
from firehose.errors import FirehoseError
from firehose.plugins import USERS, Choice, Registry, brief

if TYPE_CHECKING:
    from firehose.data.truth import Truth

Shard = dict[str, Any]  # values that JSON can hold, as it is sent to a worker

# The module and class of each kind, in the order in which they are asked to recognise a path.
BUILT_IN = {
    "git": "firehose.data.sources.git:Git",
    "inbox": "firehose.data.sources.inbox:Inbox",
    "twitter": "firehose.data.sources.twitter:Twitter",
    "mbox": "firehose.data.sources.mbox:Mbox",
    "tabular": "firehose.data.sources.tabular:Tabular",
    "nature": "firehose.data.nature:Nature",
}


class Source(Choice):
    """The base class of all sources."""

    paths: Texts = ()
    drop_users: Texts = ()  # names of users whose posts are left out

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
        dropped = frozenset(self.drop_users)
        try:
            for record in self.read(shard):
                is_left_out = isinstance(record, Post) and record.user in dropped
                yield Skip("a user to leave out", "", expected=True) if is_left_out else record
        except FirehoseError:
            raise
        except Exception as error:
            if not type(self).__module__.startswith(USERS):
                raise
            raise FirehoseError(f"{self.kind} failed on {shard}: {brief(error)}.") from error

    def truth(self) -> "Truth | None":
        """The model that the posts were drawn from, where it is known."""
        return None

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        module = sys.modules[type(self).__module__]
        if not module.__name__.startswith(USERS):
            return super().__reduce_ex__(protocol)
        # A worker cannot import a user's own file by the name of its module, so it gets the path.
        return _revive, (f"{module.__file__}:{type(self).__name__}", dict(self))


def _revive(place: str, values: dict[str, Any]) -> Source:
    return SOURCES.find(place).of(values)


SOURCES = Registry("source", Source, BUILT_IN, default="nature")


def recognise(paths: Sequence[str]) -> str:
    """The kind of source that reads all of ``paths``; without any, nature."""
    if not paths:
        return "nature"
    kinds = set()
    for path in paths:
        here = Path(path).expanduser()
        if not here.exists() and not any(sign in path for sign in "*?["):
            raise FirehoseError(f"{path} does not exist.")
        found = [kind for kind in BUILT_IN if SOURCES.find(kind).recognises(here)]
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
