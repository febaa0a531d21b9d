"""Rate limiting with one token bucket per client."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

# Over this number, the bucket that was unused for longest is forgotten.
MAX_BUCKETS: Final = 10_000


class RateLimiter:
    """Token buckets that hold the tokens of one minute and fill evenly."""

    def __init__(self, per_minute: int) -> None:
        self._capacity = float(per_minute)
        self._tokens_per_second = per_minute / 60
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take_token(self, name: str, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        tokens, updated = self._buckets.pop(name, (self._capacity, now))
        tokens += max(now - updated, 0.0) * self._tokens_per_second
        tokens = min(self._capacity, tokens)
        wait_seconds = 0.0 if tokens >= 1 else (1 - tokens) / self._tokens_per_second
        self._buckets[name] = (tokens if wait_seconds else tokens - 1, now)
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return wait_seconds
