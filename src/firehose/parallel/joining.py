"""Join the other processes that were started with this one, and take leave of them."""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from firehose import progress
from firehose.errors import FirehoseError
from firehose.faults import told
from firehose.machine import gpus
from firehose.parallel import group
from firehose.parallel.heartbeat import Heartbeat, connect
from firehose.parallel.place import LostError, Place
from firehose.parallel.shards import sharding
from firehose.parallel.shared import SharedSums

MEETING = 60.0  # seconds for all processes to be there
NEVER = timedelta(days=365)  # a sum waits for as long as there are signs of life: see heartbeat


@contextlib.contextmanager
def joined(shard_users: bool = False) -> Iterator[None]:
    """Inside, this process plays with the others that torchrun or ``launch`` has started.

    Only the first of them prints. With ``shard_users``, each holds a share of what is kept of
    users. Alone, nothing is done.
    """
    place = Place.here()
    if place.size == 1:
        yield
        return
    heartbeat, sums = _meet(place)
    with contextlib.ExitStack() as stack:
        if place.rank:
            stack.enter_context(contextlib.redirect_stdout(None))
            stack.callback(setattr, progress.console, "quiet", progress.console.quiet)
            progress.console.quiet = True
        stack.enter_context(sharding(shard_users))
        stack.enter_context(group.adding_up_in(sums))
        try:
            yield
        except LostError as lost:
            # torchrun tells all to stop when one is lost: that is no other reason.
            with contextlib.suppress(KeyboardInterrupt):
                if word := heartbeat.word():
                    raise FirehoseError(word) from None
            raise lost from None
        except Exception as error:
            is_ours = isinstance(error, FirehoseError)
            with contextlib.suppress(RuntimeError):
                heartbeat.tell(str(error) if is_ours else told(error) or repr(error))
            raise
        with contextlib.suppress(RuntimeError):  # all is done; who is gone already may be
            heartbeat.stop()
            dist.destroy_process_group()


def _meet(place: Place) -> tuple[Heartbeat, SharedSums | None]:
    """Meet the other processes, begin to watch for signs of their lives, and share memory."""
    host, port, backend = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), _backend(place)
    try:
        store, *_ = next(iter(rendezvous("env://", timeout=timedelta(seconds=MEETING))))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        heartbeat = Heartbeat(connect(host, port, attempt), place)
        heartbeat.meet(MEETING)
        heartbeat.start()
        dist.init_process_group(
            backend, store=store, rank=place.rank, world_size=place.size, timeout=NEVER
        )
        sums = SharedSums.meet(heartbeat.store, place)
    except (RuntimeError, ValueError) as error:
        raise FirehoseError(
            f"{str(place).capitalize()} cannot meet the others at {host}:{port}: "
            f"{str(error).splitlines()[0].rstrip('.')}."
        ) from None
    return heartbeat, sums


def _backend(place: Place) -> str:
    """Gloo; NCCL for what is on GPUs, one for each process of a machine."""
    count, processes = len(gpus()), int(os.environ.get("LOCAL_WORLD_SIZE", place.local_rank + 1))
    if not count:
        return "gloo"
    if processes > count:
        raise FirehoseError(
            f"There are {count} GPUs here for {processes} processes; start one for each GPU, or "
            "hide the GPUs with CUDA_VISIBLE_DEVICES= in the environment."
        )
    torch.cuda.set_device(place.local_rank)
    return "cpu:gloo,cuda:nccl"
