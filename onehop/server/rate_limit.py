"""How often one client may ask: a bucket each that fills by and by, a minute's worth at most."""

import time
from collections import OrderedDict
from collections.abc import Callable

# Clients remembered; the one that was quiet longest is forgotten first, and its bucket was full again anyway.
_MOST_CLIENTS = 100_000


class Rates:
    """The buckets of all clients; nought a minute means no limit."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self.now = per_minute, now
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take one from a client's bucket; otherwise the seconds until there is one."""
        if not self.per_minute:
            return 0.0
        now = self.now()
        left, then = self.buckets.pop(client, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - then) * self.per_minute / 60)
        self.buckets[client] = (left - 1 if left >= 1 else left, now)
        while len(self.buckets) > _MOST_CLIENTS:
            self.buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) * 60 / self.per_minute
