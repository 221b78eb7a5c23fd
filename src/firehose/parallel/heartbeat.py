"""Signs of life: how a process notices that another one, or the way to it, is gone.

A sum over processes waits for the slowest of them, and one of them may be at work alone for long,
as when it writes a checkpoint. So waiting is not limited in time: each process says every few
seconds that it lives, whatever it is doing, and looks whether the next one does. Where it does not,
or where nobody can be asked any more, it ends at once, as no library could be made to stop waiting.
"""

import os
import sys
import threading
import time
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from firehose.parallel.place import LOST, LostError, Place

BEAT = 2.0  # seconds between two signs of life
SILENCE = 30.0  # seconds after which a process counts as lost


class Heartbeat:
    """Tells the other processes that this one lives, and ends it where the next one does not.

    ``beat`` and ``silence`` are seconds.
    """

    def __init__(
        self, store: Store, place: Place, beat: float = BEAT, silence: float = SILENCE
    ) -> None:
        self.store, self.place = store, place
        self.beat, self.silence = beat, silence
        self.is_over = threading.Event()
        self.heard = self.answered = time.monotonic()

    def meet(self, patience: float) -> None:
        """Wait until all processes are there; raises a RuntimeError where they are not in time."""
        self._set("here", self.place.rank)
        if not self._wait_for_all("here", patience):
            raise RuntimeError(f"not all have come within {patience:.0f} seconds")
        self.heard = self.answered = time.monotonic()

    def start(self) -> None:
        """Begin to beat and to watch, in threads that end with the process."""
        for work in (self._beat, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """Take leave: from now on the others do not miss this process."""
        self._set("left", self.place.rank)
        self.is_over.set()
        if self.place.rank == 0 and self._is_here():
            self._wait_for_all("left", self.silence)

    def tell(self, sentence: str) -> None:
        """Leave word of what went wrong in this process, for the one that speaks."""
        self.store.set("error", f"{str(self.place).capitalize()} has failed: {sentence}")

    def word(self, patience: float = 2.0) -> str | None:
        """What went wrong in another process, if that has left word of it, or soon does.

        The watch goes on meanwhile: where nobody can be asked any more, it ends this process.
        """
        end = time.monotonic() + patience
        try:
            while time.monotonic() < end:
                if self.store.check(["error"]):
                    return str(self.store.get("error"), "utf-8")
                time.sleep(0.05)
        except RuntimeError:
            pass
        return None

    def _is_here(self) -> bool:
        """Whether the store is in this process, and ends with it."""
        return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"

    def _wait_for_all(self, what: str, patience: float) -> bool:
        """Wait until all processes have said something; False: not within so many seconds.

        In steps, because a signal is not heard in the midst of the library's own waiting.
        """
        end = time.monotonic() + patience
        keys = [f"{what}/{rank}" for rank in range(self.place.size)]
        while not (is_said := self.store.check(keys)) and time.monotonic() < end:
            time.sleep(0.02)
        return bool(is_said)

    def _set(self, what: str, rank: int) -> None:
        self.store.set(f"{what}/{rank}", "1")

    def _beat(self) -> None:
        """Say that this process lives, and note when the next one last said so."""
        following, last = (self.place.rank + 1) % self.place.size, -1
        try:
            while not self.is_over.wait(self.beat):
                self.store.add(f"beat/{self.place.rank}", 1)
                count = self.store.add(f"beat/{following}", 0)
                self.answered = time.monotonic()
                if count != last or self.store.check([f"left/{following}"]):
                    self.heard, last = self.answered, count
                if self.store.check(["lost"]):
                    self.heard = -self.silence
        except RuntimeError:  # the store is gone: so is the process that it was in
            self.answered = -self.silence

    def _watch(self) -> None:
        """End the process when there was silence for too long."""
        while not self.is_over.wait(self.beat / 2):
            now = time.monotonic()
            if now - min(self.heard, self.answered) > self.silence:
                if now - self.answered <= self.silence:
                    self.store.set("lost", "1")
                self._end()

    def _end(self) -> None:
        """End the process, whatever it waits for, with a sentence if it is the one that speaks."""
        if self.is_over.is_set():
            return
        if self.place.is_launched:
            os._exit(LOST)
        if self.place.speaks:
            sys.stderr.write(f"Error: {LostError()}\n")
            sys.stderr.flush()
        os._exit(1)


def connect(host: str, port: int, prefix: str) -> Store:
    """A connection of its own to the store of the processes: others may be busy, waiting."""
    store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=SILENCE))
    return PrefixStore(f"firehose/{prefix}", store)
