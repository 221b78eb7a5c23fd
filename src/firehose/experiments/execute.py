"""Jobs done in processes of their own, several at a time; those that are done stay done."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from firehose.errors import Stopped
from firehose.experiments.jobs import Job, program
from firehose.game.scoring import seen
from firehose.game.settings import Training
from firehose.interrupts import Request, stop_requests
from firehose.machine import cores, gpus
from firehose.progress import measure, say
from firehose.storage.checkpoints import Checkpoints
from firehose.storage.files import write_whole

LOOK = 0.5  # seconds between two looks at the processes
PATIENCE = 120  # seconds that a process has to write its checkpoint when all is to stop


class Slot(NamedTuple):
    """What one of the jobs that are done at a time may use."""

    threads: int
    gpu: str | None

    def environment(self, job: Job) -> dict[str, str]:
        """Of a job that is done with it; one that names its GPU finds all of them."""
        mine = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(self.threads))}
        if self.gpu is not None and job.settings.compute.device in ("auto", "cuda"):
            mine["CUDA_VISIBLE_DEVICES"] = self.gpu
        return os.environ | mine


def slots(at_once: int) -> list[Slot]:
    """The cores and the GPUs, shared by so many jobs."""
    threads, there = max(cores() // at_once, 1), gpus()
    return [
        Slot(threads, there[number % len(there)] if there else None) for number in range(at_once)
    ]


@dataclass
class Working:
    """A job with the process that does it."""

    job: Job
    commands: list[list[str]]
    slot: Slot
    process: subprocess.Popen[bytes] = field(init=False)
    begun: float = field(default_factory=time.monotonic)
    said: int = 0  # bytes of its log before its last command

    def next(self) -> None:
        """Start the next of its commands."""
        with self.job.log.open("ab") as log:
            self.said = log.tell()
            self.process = subprocess.Popen(
                program(self.commands.pop(0)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.slot.environment(self.job),
                start_new_session=True,  # Ctrl-C reaches us, and we tell them
            )

    def share(self) -> float:
        """How much of it is done: posts of a game, epochs of a training."""
        job = self.job
        if job.kind == "play":
            posts = job.corpus.manifest.posts["train"]
            return seen(job.folder) / posts if (job.folder / "paid.f32").is_file() else 0.0
        said = job.log.read_text(encoding="utf-8", errors="replace").splitlines()
        epochs = sum(line.startswith("epoch ") for line in said)
        training: Training = getattr(job.settings, job.kind)
        return min(epochs / training.epochs, 1.0)

    def is_beaten(self) -> bool:
        """Whether it failed because another process is at the same job, or has done it."""
        held = Checkpoints(self.job.checkpoints).are_held()
        return self.process.returncode != 0 and (held or self.job.is_done)

    def last_words(self) -> str:
        """The error it ended with."""
        if self.process.returncode < 0:
            return f"killed by {signal.Signals(-self.process.returncode).name}"
        lines = self.job.log.read_bytes()[self.said :].decode(errors="replace").splitlines()
        errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
        return (errors or [line for line in lines if line.strip()] or ["it said nothing"])[-1]


def execute(jobs: Sequence[Job], at_once: int) -> dict[str, str]:
    """Do all jobs that are not done; returns why, for each that failed, by its key.

    What begins with the result of a failed job fails, too; the rest goes on. What another
    process is doing already is waited for.
    """
    waiting = [job for job in jobs if not job.is_done]
    if len(waiting) < len(jobs):
        say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are done already.")
    failed: dict[str, str] = {}
    ended = 0
    with measure(len(waiting), "runs") as show:
        for job, working in _finish(waiting, at_once, failed):
            ended += job is not None
            if job and job.key in failed:
                say(f"{job.name} failed: {failed[job.key]}")
            show(*_standing(ended, working))
    return failed


def _standing(ended: int, working: Sequence[Working]) -> tuple[float, str]:
    """The jobs that are done, parts of them included, and which are going on."""
    shares = [(each.job.name.rpartition("-")[0], each.share()) for each in working]
    notes = ", ".join(f"{name} {share:.0%}" for name, share in shares)
    return ended + sum(share for _, share in shares), notes


def _finish(
    waiting: list[Job], at_once: int, failed: dict[str, str]
) -> Iterator[tuple[Job | None, list[Working]]]:
    """The jobs as they come to an end, or None meanwhile; and those that are going on."""
    idle = slots(at_once)
    working: list[Working] = []
    with _told_to_stop(working) as request:
        while waiting or working:
            for job in [j for j in waiting if j.start and j.start.key in failed]:
                failed[job.key] = f"{job.start.name if job.start else ''} failed"
                waiting.remove(job)
                yield job, working
            ready = [job for job in waiting if not job.start or job.start.is_done]
            free = [job for job in ready if not Checkpoints(job.checkpoints).are_held()]
            for job in free[: at_once - len(working)]:
                waiting.remove(job)
                if job.is_done:  # by another process, meanwhile
                    yield job, working
                    continue
                write_whole(job.recipe, job.settings.to_toml().encode())
                working.append(Working(job, job.left(), idle.pop()))
                working[-1].next()
            time.sleep(LOOK)
            if request.made:
                raise Stopped("Stopped; the same command goes on from there.")
            yield None, working
            for each in [w for w in working if w.process.poll() is not None]:
                if each.process.returncode == 0 and each.commands:
                    each.next()
                    continue
                working.remove(each)
                idle.append(each.slot)
                if each.is_beaten():
                    waiting.append(each.job)
                    continue
                if each.process.returncode != 0 or not each.job.is_done:
                    failed[each.job.key] = each.last_words()
                else:
                    say(f"{each.job.name}: {time.monotonic() - each.begun:,.0f} s")
                yield each.job, working


@contextmanager
def _told_to_stop(working: list[Working]) -> Iterator[Request]:
    """Whatever ends us ends them: each writes its checkpoint first."""
    with stop_requests() as request:
        try:
            yield request
        finally:
            for each in working:
                each.process.terminate()
            for each in working:
                try:
                    each.process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    each.process.kill()
