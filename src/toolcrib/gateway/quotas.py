"""Rate limits of clients, and quotas of access profiles: calls, searches and result bytes per minute, and calls at the same time.

Every replica counts in memory. With several replicas, each one publishes its counts and reads those of
the others about once a second, so the sum can exceed a quota by what is used within that time.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from threading import Lock
from typing import Any, Final

from pydantic_core import to_json

from toolcrib.config.settings import AccessProfile
from toolcrib.errors import QuotaExceeded
from toolcrib.storage.shared_values import SharedValue
from toolcrib.storage.store import Store

WINDOW_SECONDS: Final = 60
# Over this number, the bucket that was unused for longest is forgotten.
MAX_BUCKETS: Final = 10_000
EXCHANGE_SECONDS: Final = 1.0
# The running calls of a replica that no longer writes count for this time.
KEEP_USE_SECONDS: Final = 5.0
# A refusal is sent after this time, so that a client that does not wait cannot keep the gateway busy.
REFUSAL_SECONDS: Final = 0.5
# A call that ends makes room for the next one, so waiting for long is of no use.
CONCURRENCY_RETRY_SECONDS: Final = 1


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


@dataclass(slots=True)
class QuotaUse:
    """What one profile has used in the current minute, and its running calls."""

    window: int = 0
    calls: int = 0
    searches: int = 0
    result_bytes: int = 0
    running: int = 0

    def enter_window(self, window: int) -> None:
        """Set the counts of a minute to zero when another one begins."""
        if window != self.window:
            self.window = window
            self.calls = self.searches = self.result_bytes = 0

    def add(self, other: QuotaUse) -> None:
        """Add the running calls of another replica, and what it used in the same minute."""
        self.running += other.running
        if other.window == self.window:
            self.calls += other.calls
            self.searches += other.searches
            self.result_bytes += other.result_bytes


class ProfileQuotas:
    """Counts the use of every profile, and refuses what exceeds its quotas. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = Lock()
        self._used: dict[str, QuotaUse] = {}
        # The use on other replicas, by profile.
        self._elsewhere: Mapping[str, QuotaUse] = {}

    def count_search(self, profile: AccessProfile) -> None:
        """Count a search, or raise `QuotaExceeded`."""
        if profile.searches_per_minute is None:
            return
        with self._lock:
            use = self._get_use(profile.name)
            self._check_rate(profile, "searches", profile.searches_per_minute, "searchesPerMinute")
            use.searches += 1

    def check_searches(self, profile: AccessProfile) -> None:
        """Raise `QuotaExceeded` if no search is left."""
        if profile.searches_per_minute is not None:
            with self._lock:
                self._get_use(profile.name)
                self._check_rate(profile, "searches", profile.searches_per_minute, "searchesPerMinute")

    def add_searches(self, profile: AccessProfile, count: int) -> None:
        """Count searches that were done."""
        if profile.searches_per_minute is not None:
            with self._lock:
                self._get_use(profile.name).searches += count

    @contextmanager
    def track_call(self, profile: AccessProfile) -> Iterator[None]:
        """Count a call while it runs, or raise `QuotaExceeded`."""
        if not has_call_quotas(profile):
            yield
            return
        with self._lock:
            use = self._get_use(profile.name)
            limit = profile.max_concurrent_calls
            if limit is not None and self._sum(profile.name, "running") >= limit:
                raise QuotaExceeded(
                    f"the profile {profile.name!r} may run {limit:,} calls at the same time (maxConcurrentCalls); "
                    "try again when one has ended",
                    CONCURRENCY_RETRY_SECONDS,
                )
            self._check_rate(profile, "result_bytes", profile.result_bytes_per_minute, "resultBytesPerMinute")
            self._check_rate(profile, "calls", profile.calls_per_minute, "callsPerMinute")
            use.calls += 1
            use.running += 1
        try:
            yield
        finally:
            with self._lock:
                use.running -= 1

    def add_result(self, profile: AccessProfile, result: Mapping[str, Any]) -> None:
        """Count the bytes of a result. The result itself is delivered; later calls are refused."""
        if profile.result_bytes_per_minute is None:
            return
        size = len(to_json(result, inf_nan_mode="null", serialize_unknown=True))
        with self._lock:
            self._get_use(profile.name).result_bytes += size

    def list_use(self) -> dict[str, QuotaUse]:
        """Return what the profiles have used on this replica, for the other replicas."""
        with self._lock:
            # A profile without recent use is forgotten.
            window = self._get_window()
            self._used = {name: use for name, use in self._used.items() if use.running or use.window == window}
            return {
                name: QuotaUse(use.window, use.calls, use.searches, use.result_bytes, use.running)
                for name, use in self._used.items()
            }

    def exchange_use(self, store: Store, replica: str) -> None:
        """Write what was used on this replica to the store, and read what was used on the others."""
        now = self._now()
        use = {name: astuple(each) for name, each in self.list_use().items()}
        store.put_values([SharedValue("quota", replica, json.dumps(use), now + KEEP_USE_SECONDS)], now=now)
        window = self._get_window()
        elsewhere: dict[str, QuotaUse] = {}
        for other, body in store.list_values("quota", now).items():
            if other == replica:
                continue
            for name, fields in json.loads(body).items():
                elsewhere.setdefault(name, QuotaUse(window)).add(QuotaUse(*fields))
        self.set_use_elsewhere(elsewhere)

    def set_use_elsewhere(self, use: Mapping[str, QuotaUse]) -> None:
        """Replace what is known of the use on other replicas."""
        with self._lock:
            self._elsewhere = use

    def _get_window(self) -> int:
        return int(self._now()) // WINDOW_SECONDS

    def _get_use(self, profile: str) -> QuotaUse:
        use = self._used.setdefault(profile, QuotaUse())
        use.enter_window(self._get_window())
        return use

    def _sum(self, profile: str, field: str) -> int:
        used: int = getattr(self._used[profile], field)
        elsewhere = self._elsewhere.get(profile)
        if elsewhere is None or (field != "running" and elsewhere.window != self._get_window()):
            return used
        return used + int(getattr(elsewhere, field))

    def _check_rate(self, profile: AccessProfile, field: str, limit: int | None, key: str) -> None:
        if limit is None or self._sum(profile.name, field) < limit:
            return
        wait = WINDOW_SECONDS - int(self._now()) % WINDOW_SECONDS
        what = field.replace("_", " ")
        raise QuotaExceeded(
            f"the profile {profile.name!r} has used its {limit:,} {what} a minute ({key}); try again in {wait} s", wait
        )


def has_quotas(profile: AccessProfile) -> bool:
    """Return whether anything of a profile is counted."""
    return profile.searches_per_minute is not None or has_call_quotas(profile)


def has_call_quotas(profile: AccessProfile) -> bool:
    """Return whether calls of a profile are counted."""
    quotas = (profile.calls_per_minute, profile.max_concurrent_calls, profile.result_bytes_per_minute)
    return any(quota is not None for quota in quotas)
