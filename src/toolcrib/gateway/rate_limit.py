"""How many requests somebody may make: a bucket of tokens for each, filled by the clock."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

# Those who were not seen for longest start anew with a full bucket.
MAX_BUCKETS: Final = 10_000


class RateLimiter:
    """A bucket for each name; it holds a minute's worth and fills evenly."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._per_second = per_minute / 60
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take_token(self, name: str, now: float) -> float:
        """Take a token: 0, or if there is none, the seconds until there is one."""
        left, since = self._buckets.pop(name, (self._most, now))
        left = min(self._most, left + max(now - since, 0.0) * self._per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._per_second
        self._buckets[name] = (left if wait else left - 1, now)
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return wait
