"""Amounts over time, per client, in steps of a minute, an hour and a day, and their table in a store."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolcrib.storage.audit import AuditRow, clean_text
from toolcrib.storage.sql_database import SqlConnection

Resolution = Literal["minute", "hour", "day"]

RESOLUTION_SECONDS: Final[dict[Resolution, int]] = {"minute": 60, "hour": 3_600, "day": 86_400}
# How long amounts of each resolution are kept.
KEPT_SECONDS: Final[dict[Resolution, int]] = {"minute": 86_400, "hour": 62 * 86_400, "day": 1_100 * 86_400}
# Over this number of rows, the oldest of the finest resolution are deleted.
MAX_SERIES_ROWS: Final = 500_000

_ADD: Final = (
    "INSERT INTO time_series (resolution, start, client, name, amount) VALUES (?, ?, ?, ?, ?) "
    "/* distinct */ ON CONFLICT (resolution, start, client, name) DO UPDATE SET amount = time_series.amount + excluded.amount"
)
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


@dataclass(frozen=True, slots=True)
class SeriesAmount:
    """An amount with a name, such as `calls`, of one client in the step that contains a time."""

    at: float
    client: str
    name: str
    amount: int


def add_amounts(connection: SqlConnection, amounts: Iterable[SeriesAmount]) -> None:
    """Add amounts to their step of every resolution."""
    totals: Counter[tuple[int, int, str, str]] = Counter()
    for amount in amounts:
        for seconds in RESOLUTION_SECONDS.values():
            totals[seconds, int(amount.at // seconds) * seconds, amount.client, amount.name] += amount.amount
    connection.executemany(_ADD, [(*key, total) for key, total in sorted(totals.items())])


def read_amounts(connection: SqlConnection, resolution: Resolution, since: float) -> list[SeriesAmount]:
    """Return the amounts of a resolution, from the step that contains a time on, sorted by time."""
    seconds = RESOLUTION_SECONDS[resolution]
    query = (
        "SELECT start, client, name, amount FROM time_series WHERE resolution = ? AND start >= ? "
        "ORDER BY start, client, name"
    )
    return [SeriesAmount(*row) for row in connection.execute(query, (seconds, int(since // seconds) * seconds))]


def prune_amounts(connection: SqlConnection, now: float) -> None:
    """Delete amounts that are too old, and the oldest minutes over `MAX_SERIES_ROWS`."""
    for resolution, seconds in RESOLUTION_SECONDS.items():
        oldest = now - KEPT_SECONDS[resolution]
        connection.execute("DELETE FROM time_series WHERE resolution = ? AND start < ?", (seconds, oldest))
    connection.execute(
        "DELETE FROM time_series WHERE (resolution, start, client, name) IN (SELECT resolution, start, client, name "
        "FROM time_series ORDER BY resolution DESC, start DESC, client, name LIMIT -1 OFFSET ?)",
        (MAX_SERIES_ROWS,),
    )


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
