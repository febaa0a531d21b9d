"""Time series of the gateway: what an audit row adds to them, and points with percentiles for charts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolcrib.storage.audit import AuditRow, clean_text
from toolcrib.storage.time_series import SeriesAmount

# Names of clients come from outside. Further clients of a process are counted as one.
MAX_SERIES_CLIENTS: Final = 50
OTHER_CLIENTS: Final = "other clients"
UNKNOWN_CLIENT: Final = "unknown client"

# Durations are counted in buckets, whose upper bounds grow by this factor from a millisecond to two minutes.
_BUCKET_FACTOR: Final = 1.5
_LAST_BUCKET: Final = 29
_BUCKET_PREFIX: Final = "bucket_"
_COUNTED: Final[Mapping[str, str]] = {"call": "calls", "search": "searches", "list": "lists", "llm": "llm_requests"}
# Details of a row that are added up.
_SUMMED: Final = ("tokens_full", "tokens_sent", "tokens_in", "tokens_out", "tokens_cached", "tokens_held_back")
COUNT_NAMES: Final = (*_COUNTED.values(), "errors", *_SUMMED)


class SeriesCounter:
    """Adds up audit rows by minute, client and name until they are taken."""

    def __init__(self) -> None:
        self._clients: set[str] = set()
        self._amounts: Counter[tuple[int, str, str]] = Counter()

    def add_row(self, row: AuditRow) -> None:
        """Add one row."""
        if row.action not in _COUNTED and row.action != "describe":
            return
        minute, client = int(row.at // 60) * 60, self._limit_client(row.client)
        for name, amount in _list_amounts(row):
            self._amounts[minute, client, name] += amount

    def take_amounts(self) -> list[SeriesAmount]:
        """Return the amounts since the last call."""
        amounts, self._amounts = self._amounts, Counter()
        return [SeriesAmount(*key, amount) for key, amount in amounts.items()]

    def _limit_client(self, client: str) -> str:
        name = clean_text(client[:80]) or UNKNOWN_CLIENT
        if name not in self._clients:
            if len(self._clients) >= MAX_SERIES_CLIENTS:
                return OTHER_CLIENTS
            self._clients.add(name)
        return name


def _list_amounts(row: AuditRow) -> Iterator[tuple[str, int]]:
    if row.action in _COUNTED:
        yield _COUNTED[row.action], 1
        if row.outcome != "ok":
            yield "errors", 1
    if row.action == "call":
        yield f"{_BUCKET_PREFIX}{find_bucket(row.seconds):02}", 1
    for name in _SUMMED:
        if amount := row.details.get(name):
            yield name, int(amount)


def find_bucket(seconds: float) -> int:
    """Return the number of the bucket of a duration."""
    if seconds <= 0.001:
        return 0
    return min(math.ceil(math.log(seconds * 1_000, _BUCKET_FACTOR)), _LAST_BUCKET)


def estimate_percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the duration in seconds that a share of the calls does not exceed, or None without calls."""
    rank = share * sum(buckets.values())
    passed = 0
    for bucket, count in sorted(buckets.items()):
        if passed + count >= rank and count:
            # Durations are spread evenly over the logarithm within a bucket.
            position = bucket - 1 + (rank - passed) / count if bucket else 0.0
            return round(math.pow(_BUCKET_FACTOR, position) / 1_000, 6)
        passed += count
    return None


def build_point(amounts: Iterable[SeriesAmount]) -> dict[str, Any]:
    """Return the sums of some amounts, with the percentiles of the call durations."""
    point: dict[str, Any] = dict.fromkeys(COUNT_NAMES, 0)
    buckets: Counter[int] = Counter()
    for amount in amounts:
        if amount.name.startswith(_BUCKET_PREFIX):
            buckets[int(amount.name.removeprefix(_BUCKET_PREFIX))] += amount.amount
        elif amount.name in point:
            point[amount.name] += amount.amount
    point["tokens_saved"] = point["tokens_full"] - point["tokens_sent"]
    return {**point, "p50": estimate_percentile(buckets, 0.5), "p95": estimate_percentile(buckets, 0.95)}
