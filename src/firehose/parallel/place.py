"""Which of several processes this one is, as torchrun says it in the environment."""

import os
from typing import NamedTuple, Self

from firehose.errors import FirehoseError

LAUNCHED = "FIREHOSE_LAUNCHED"  # set where Firehose has started the processes itself, and watches
LOST = 76  # the status of a process that has lost another, where a parent tells what went wrong


class LostError(FirehoseError):
    """Another process has ended, or cannot be reached."""

    def __init__(self, what: str = "Another process has ended, or cannot be reached") -> None:
        super().__init__(
            f"{what}, so this one stops; `firehose resume` goes on with a run from its last "
            "checkpoint, with any number of processes."
        )


class Place(NamedTuple):
    """The place of this process among those that play one game together."""

    rank: int = 0  # from 0
    size: int = 1  # processes in all
    local_rank: int = 0  # among those of this machine
    is_launched: bool = False  # whether a parent watches all of them, and tells what went wrong

    @classmethod
    def here(cls) -> Self:
        """What the environment says; alone, where it says nothing."""
        if not is_one_of_several():
            return cls()
        rank = int(os.environ["RANK"])
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
        return cls(rank, int(os.environ["WORLD_SIZE"]), local_rank, LAUNCHED in os.environ)

    @property
    def speaks(self) -> bool:
        """Whether it is this process that tells what went wrong: the first one of a machine."""
        return self.local_rank == 0

    def __str__(self) -> str:
        return f"process {self.rank + 1} of {self.size}"


def is_one_of_several() -> bool:
    """Whether this process was started with others, by torchrun or by ``launch``."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
