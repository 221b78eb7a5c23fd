"""Where posts come from: one file a source.

A source is a configuration section with two methods. ``shards`` cuts the input into pieces of
work that can be read independently and in any order; ``read`` yields the posts of one piece,
and a :class:`~firehose.data.post.Skip` for each record that is none. Neither loads everything
into memory. `docs/add-a-source.md` shows a whole one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from firehose.config import Section
from firehose.data.post import Post, Skip

Shard = dict[str, Any]  # plain JSON values, so that it travels to any worker


class Source(Section):
    """What every source is."""

    kind: str
    paths: tuple[str, ...] = ()

    wants: ClassVar[str] = ""  # what it reads, for messages

    @classmethod
    def recognises(cls, path: Path) -> bool:  # noqa: ARG003
        """Whether ``path`` is, by its name or first bytes, something this source reads."""
        return False

    def shards(self) -> list[Shard]:
        """The pieces of work, in a fixed order."""
        raise NotImplementedError

    def read(self, shard: Shard) -> Iterator[Post | Skip]:
        """The posts of one piece."""
        raise NotImplementedError
