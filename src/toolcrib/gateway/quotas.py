"""Rate limits of clients, fair turns between tenants, and quotas of access profiles.

A quota limits calls, searches and result bytes per minute, and calls at the same time. Every replica counts in memory.
With several replicas, each one publishes its counts and reads those of the others about once a second, so the sum can
exceed a quota by what is used within that time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from threading import Lock
from typing import Any, Final, NamedTuple

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
# Requests of one tenant that the event loop works on at the same time while other tenants send requests too.
MAX_RUNNING_REQUESTS: Final = 1
MAX_WAITING_REQUESTS: Final = 1_000
# A tenant counts for this time after its last request.
TENANT_SECONDS: Final = 10.0
# CPU seconds of the event loop. A request that still runs after them, such as a stream, no longer counts as running.
LONG_REQUEST_SECONDS: Final = 0.1
# While requests wait, the event loop is checked this often; it is idle if a callback runs within the other time.
CHECK_SECONDS: Final = 0.002
IDLE_SECONDS: Final = 0.0002


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


@dataclass(slots=True, eq=False)
class _TenantRequests:
    """The requests of one tenant. A running request counts only in the round in which it was admitted."""

    seen_at: float = 0.0
    # In CPU seconds of the thread, so that a busy machine makes no request a long one.
    admitted_at: float = 0.0
    round: int = 0
    running: int = 0
    waiting: deque[asyncio.Future[int]] = field(default_factory=deque)

    def admit(self) -> int:
        """Count a request as running; return its round."""
        self.admitted_at = time.thread_time()
        self.running += 1
        return self.round

    def admit_waiting(self) -> None:
        """Admit the requests that have waited longest."""
        while self.waiting and self.running < MAX_RUNNING_REQUESTS:
            turn = self.waiting.popleft()
            # The task of a cancelled one has ended.
            if not turn.done():
                turn.set_result(self.admit())

    def has_long_requests(self) -> bool:
        """Return whether all running requests have run for long."""
        return time.thread_time() - self.admitted_at > LONG_REQUEST_SECONDS

    def start_round(self) -> None:
        """Stop counting the running requests, because they wait for something else."""
        self.round += 1
        self.running = 0


class TenantTurn(NamedTuple):
    """What `FairQueue.enter` returns for `leave`."""

    tenant: _TenantRequests
    round: int
    has_waited: bool = False


class FairQueue:
    """Lets tenants take turns on the event loop, so that the requests of one do not wait behind all those of another.

    A tenant that is alone never waits. Otherwise each tenant has one running request, and more while the
    event loop is idle, for example because requests wait for servers. Not thread-safe.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        # Least recently seen first.
        self._tenants: OrderedDict[str, _TenantRequests] = OrderedDict()
        self._is_checking = False

    async def enter(self, name: str) -> TenantTurn:
        """Wait until a request of a tenant may run. Raise `QuotaExceeded` if too many wait."""
        now = self._now()
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _TenantRequests()
        tenant.seen_at = now
        self._tenants.move_to_end(name)
        if len(self._tenants) > 1:
            self._forget_tenants(now)
        if len(self._tenants) == 1:
            return TenantTurn(tenant, tenant.admit())
        if tenant.has_long_requests():
            tenant.start_round()
        if tenant.running < MAX_RUNNING_REQUESTS and not tenant.waiting:
            return TenantTurn(tenant, tenant.admit())
        if len(tenant.waiting) >= MAX_WAITING_REQUESTS:
            raise QuotaExceeded(
                f"{MAX_WAITING_REQUESTS:,} requests wait already; send fewer at the same time",
                CONCURRENCY_RETRY_SECONDS,
            )
        return await self._wait(tenant)

    def leave(self, turn: TenantTurn) -> None:
        """End a request, and admit the next one of its tenant."""
        tenant = turn.tenant
        if turn.round == tenant.round:
            tenant.running -= 1
        tenant.admit_waiting()

    async def _wait(self, tenant: _TenantRequests) -> TenantTurn:
        turn = asyncio.get_running_loop().create_future()
        tenant.waiting.append(turn)
        if not self._is_checking:
            self._is_checking = True
            self._check_later()
        try:
            return TenantTurn(tenant, await turn, has_waited=True)
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave(TenantTurn(tenant, turn.result()))
            raise

    def _forget_tenants(self, now: float) -> None:
        while True:
            name, tenant = next(iter(self._tenants.items()))
            if tenant.waiting or now - tenant.seen_at < TENANT_SECONDS:
                return
            del self._tenants[name]

    def _check_later(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(CHECK_SECONDS, lambda: loop.call_soon(self._check, time.perf_counter()))

    def _check(self, scheduled_at: float) -> None:
        """Admit further requests if the event loop is idle, or if all running requests of a tenant last long."""
        is_idle = time.perf_counter() - scheduled_at < IDLE_SECONDS
        for tenant in self._tenants.values():
            if tenant.waiting and (is_idle or tenant.has_long_requests()):
                tenant.start_round()
                tenant.admit_waiting()
        self._is_checking = any(tenant.waiting for tenant in self._tenants.values())
        if self._is_checking:
            self._check_later()


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
        self.elsewhere: Mapping[str, QuotaUse] = {}

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
            return {name: replace(use) for name, use in self._used.items()}

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
        self.elsewhere = elsewhere

    def _get_window(self) -> int:
        return int(self._now()) // WINDOW_SECONDS

    def _get_use(self, profile: str) -> QuotaUse:
        use = self._used.setdefault(profile, QuotaUse())
        use.enter_window(self._get_window())
        return use

    def _sum(self, profile: str, field: str) -> int:
        used: int = getattr(self._used[profile], field)
        elsewhere = self.elsewhere.get(profile)
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
