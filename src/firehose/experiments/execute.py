"""Jobs done in processes of their own, several at a time; those that are done stay done."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from firehose.errors import Stopped
from firehose.experiments.jobs import Job
from firehose.game.run import read_progress
from firehose.interrupts import BOUND, PATIENCE, Request, stop_requests
from firehose.machine import cores, gpus
from firehose.progress import measure, say
from firehose.storage.files import write_whole

LOOK = 0.5  # seconds between two looks at the processes


class Slot(NamedTuple):
    """What one of the jobs that are done at a time may use."""

    threads: int  # of each process
    gpu: str | None
    processes: int = 1  # that do a job together

    def environment(self, job: Job) -> dict[str, str]:
        """Of a job that is done with it; one that names its GPU finds all of them."""
        threads = os.environ.get("OMP_NUM_THREADS", str(self.threads))
        mine = {"OMP_NUM_THREADS": threads, BOUND: "1"}
        if self.gpu is not None and job.settings.compute.device in ("auto", "cuda"):
            mine["CUDA_VISIBLE_DEVICES"] = self.gpu
        return os.environ | mine


def slots(at_once: int, processes: int = 1) -> list[Slot]:
    """The cores and the GPUs, shared by so many jobs; several processes share all GPUs."""
    there: Sequence[str | None] = (gpus() if processes == 1 else []) or [None]
    threads = max(cores() // (at_once * processes), 1)
    return [Slot(threads, there[number % len(there)], processes) for number in range(at_once)]


class Working:
    """A job with the process that does it."""

    def __init__(self, job: Job, slot: Slot) -> None:
        self.job, self.slot, self.begun = job, slot, time.monotonic()
        together = ["--processes", str(slot.processes)] if slot.processes > 1 else []
        with job.log.open("ab") as log:
            self.said = log.tell()  # bytes of its log before it was started
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firehose", *job.left(), *together],
                stdin=subprocess.PIPE,  # closed when we end, however we end: then it ends, too
                stdout=log,
                stderr=log,
                env=slot.environment(job),
                start_new_session=True,  # Ctrl-C reaches us, and we tell them
            )

    def is_beaten(self) -> bool:
        """Whether it failed because another process is at the same job, or has done it."""
        return self.process.returncode != 0 and (self.job.is_held or self.job.is_done)

    def end(self) -> None:
        """Wait until it has written its checkpoint and ended; not for ever."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        if self.process.stdin:
            self.process.stdin.close()

    def last_words(self) -> str:
        """The error it ended with."""
        if self.process.returncode < 0:
            return f"killed by {signal.Signals(-self.process.returncode).name}"
        lines = self.job.log.read_bytes()[self.said :].decode(errors="replace").splitlines()
        errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
        return (errors or [line for line in lines if line.strip()] or ["it said nothing"])[-1]


def execute(jobs: Sequence[Job], at_once: int, processes: int = 1) -> dict[str, str]:
    """Do all jobs that are not done, each by so many processes; returns why any failed, by key.

    What begins with the result of a failed job fails, too; the rest goes on. What another
    process is doing already is waited for.
    """
    waiting = [job for job in jobs if not job.is_done]
    if len(waiting) < len(jobs):
        say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are done already.")
    failed: dict[str, str] = {}
    working: list[Working] = []
    idle, total = slots(min(at_once, max(len(waiting), 1)), processes), len(waiting)
    with measure(total, "runs") as show, _told_to_stop(working) as request:
        while waiting or working:
            for job in list(waiting):
                if job.start and job.start.key in failed:
                    waiting.remove(job)
                    _fail(job, f"{job.start.name} failed", failed)
            ready = [job for job in waiting if not job.start or job.start.is_done]
            for job in [job for job in ready if not job.is_held][: len(idle)]:
                waiting.remove(job)
                if not job.is_done:  # by another process, meanwhile
                    write_whole(job.recipe, job.settings.to_toml().encode())
                    working.append(Working(job, idle.pop()))
            time.sleep(LOOK)
            if request.made:
                raise Stopped("Stopped; the same command goes on from there.")
            for each in [each for each in working if each.process.poll() is not None]:
                working.remove(each)
                each.end()
                idle.append(each.slot)
                if each.is_beaten():
                    waiting.append(each.job)
                elif each.process.returncode != 0 or not each.job.is_done:
                    _fail(each.job, each.last_words(), failed)
                else:
                    say(f"{each.job.name}: {time.monotonic() - each.begun:,.0f} s")
            show(*_standing(total - len(waiting) - len(working), working))
    return failed


def _fail(job: Job, why: str, failed: dict[str, str]) -> None:
    failed[job.key] = why
    say(f"{job.name} failed: {why}")


def _standing(ended: int, working: Sequence[Working]) -> tuple[float, str]:
    """The jobs that are done, parts of them included, and which are going on."""
    shares = [read_progress(each.job.folder) for each in working]
    names = [each.job.name.rpartition("-")[0] for each in working]
    notes = [f"{name} {share:.0%}" for name, share in zip(names, shares, strict=True)]
    return ended + sum(shares), ", ".join(notes)


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
                each.end()
