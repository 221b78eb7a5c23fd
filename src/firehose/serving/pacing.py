"""How often somebody may ask: so many requests a second, and some at once."""

import threading
import time
from collections.abc import Callable, Iterable

from firehose.errors import FirehoseError

AT_ONCE = 5.0  # seconds whose requests may come at once
MOST = 10_000  # users who are remembered; all but those who ask right now are as if they never had


class TooOftenError(FirehoseError):
    """Somebody asks more often than is allowed; ``seconds`` is how long to wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__("This user asks too often; try again in a moment.")
        self.seconds = seconds


class Pacing:
    """Lets each user ask ``rate`` times a second, on average over some seconds.

    A request costs one; what was paid comes back with time. So a user is a name and the moment
    when all of it will be back.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self._clock = rate, clock
        self._free: dict[str, float] = {}  # when a user owes nothing any more
        self._lock = threading.Lock()

    def take(self, users: Iterable[str]) -> None:
        """Count a request of some users; raises TooOftenError, and counts for none, if not now."""
        moment = self._clock()
        names = set(users)
        with self._lock:
            free = {
                name: max(self._free.get(name, moment), moment) + 1 / self.rate for name in names
            }
            late = max((each - moment - AT_ONCE for each in free.values()), default=0.0)
            if late > 1e-9:
                raise TooOftenError(late)
            self._free |= free
            if len(self._free) > MOST:
                self._free = {name: at for name, at in self._free.items() if at > moment}
