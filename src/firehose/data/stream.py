"""A stream of batches that can tell its position, and go on from any position."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

from firehose.batch import Batch
from firehose.errors import FirehoseError


class BatchStream(ABC):
    """Batches of posts in time order.

    ``position`` is the index of the next post, ``len`` the number of batches that are left. A
    subclass says where a batch ends, and makes it.
    """

    def __init__(self, posts: int, size: int) -> None:
        if size < 1:
            raise FirehoseError(f"A batch cannot have {size} posts; choose a size of at least 1.")
        self.posts = posts
        self.size = size
        self.position = 0

    def seek(self, position: int) -> Self:
        """Go on with post ``position``."""
        if not 0 <= position <= self.posts:
            raise FirehoseError(
                f"Cannot seek to post {position}: the stream has {self.posts} posts."
            )
        self.position = position
        return self

    def __iter__(self) -> Iterator[Batch]:
        while self.position < self.posts:
            start = self.position
            self.position = self._stop(start)
            yield self._batch(start, self.position)

    @abstractmethod
    def __len__(self) -> int:
        """The number of batches that are left."""

    @abstractmethod
    def _stop(self, start: int) -> int:
        """The index after the last post of the batch that begins with post ``start``."""

    @abstractmethod
    def _batch(self, start: int, stop: int) -> Batch:
        """The posts from ``start`` to before ``stop``."""
