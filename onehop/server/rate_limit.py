"""Rate limits: a token bucket per client, refilled steadily up to one minute's requests."""

import time
from collections import OrderedDict
from collections.abc import Callable

# Maximum clients remembered. The least recent one is forgotten first; its bucket is full by then.
_MOST_CLIENTS = 100_000


class Rates:
    """The buckets of all clients; 0 per minute means no limit."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self.now = per_minute, now
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take a token from a client's bucket and return 0, or return the seconds until there is one."""
        if not self.per_minute:
            return 0.0
        now = self.now()
        left, then = self.buckets.pop(client, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - then) * self.per_minute / 60)
        self.buckets[client] = (left - 1 if left >= 1 else left, now)
        while len(self.buckets) > _MOST_CLIENTS:
            self.buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) * 60 / self.per_minute
